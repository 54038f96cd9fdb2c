"""Trials side by side in processes of this machine."""

import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path

from depthbench.study.plan import Planned
from depthbench.study.worker import Message, work
from depthbench.train.outcome import Outcome

POLL_SECONDS = 0.25
RETRIES = 2
PRELOAD = ("depthbench.study.worker", "torch._dynamo")
"""Imported once for all trials; the second by torch itself, at the first optimizer: two seconds."""


@dataclass
class Running:
    """A trial that is being trained."""

    planned: Planned
    process: BaseProcess
    channel: Connection
    slot: int
    tokens: int = 0
    started: float = field(default_factory=time.monotonic)


@dataclass
class Ended:
    """A trial that is over: with an outcome, or with the reason why there is none."""

    planned: Planned
    outcome: Outcome | None
    reason: str | None
    seconds: float
    broken_off: bool = False
    """Its process was killed or told to stop: it can go on from its checkpoint."""
    earlier: list[str] = field(default_factory=list)
    """Why it was broken off before, in words."""


class Pool:
    """Up to ``workers`` trials at once, one process each; a crash ends its own trial only."""

    def __init__(self, workers: int, data: Path, folder: Path) -> None:
        self.workers, self.data, self.folder = workers, data, folder
        self.running: list[Running] = []
        self.context = _context()

    @property
    def free(self) -> int:
        """How many more trials can be started."""
        return self.workers - len(self.running)

    def start(self, planned: Planned) -> None:
        """Start one trial."""
        slot = min(set(range(self.workers)) - {one.slot for one in self.running})
        receive, send = self.context.Pipe(duplex=False)
        process = self.context.Process(
            target=work,
            args=(send, planned.config, self.data, self.folder / planned.id, slot),
            daemon=True,
        )
        process.start()
        send.close()
        self.running.append(Running(planned, process, receive, slot))

    def poll(self) -> list[Ended]:
        """Take in messages for a moment; the trials that ended meanwhile."""
        ended = []
        wait([one.channel for one in self.running], timeout=POLL_SECONDS)
        for one in list(self.running):
            end = self._take(one)
            if end is not None:
                self.running.remove(one)
                ended.append(end)
        return ended

    def _take(self, one: Running) -> Ended | None:
        message: Message | None = None
        try:
            while one.channel.poll():
                message = one.channel.recv()
                if isinstance(message, tuple):
                    one.tokens = message[1]
                else:
                    break
        except EOFError:
            one.process.join()
            code = one.process.exitcode
            return self._end(one, None, _death(code), broken_off=code is not None and code < 0)
        if isinstance(message, Outcome):
            if message.status == "stopped":
                return self._end(one, None, message.reason, broken_off=True)
            return self._end(one, message, None)
        if isinstance(message, str):
            return self._end(one, None, message)
        return None

    def _end(
        self, one: Running, outcome: Outcome | None, reason: str | None, broken_off: bool = False
    ) -> Ended:
        one.process.join()
        one.channel.close()
        seconds = time.monotonic() - one.started
        return Ended(one.planned, outcome, reason, seconds, broken_off)

    def stop(self) -> None:
        """End all trials at once."""
        for one in self.running:
            one.process.terminate()
        for one in self.running:
            one.process.join()
            one.channel.close()
        self.running.clear()


def _context() -> ForkServerContext | SpawnContext:
    """How processes start: forked from a server that has imported torch once, where possible.

    A trial then starts in milliseconds, and no thread or lock of this process is copied.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOAD))
    return context


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        return f"its process was killed by signal {-code} (out of memory?)"
    return f"its process ended with code {code} before the trial was over"


def drive(
    pool: Pool,
    needed: Callable[[], list[Planned]],
    record: Callable[[Ended], None],
    watch: Callable[[list[Running], list[Planned]], None],
) -> None:
    """Run what ``needed()`` names until nothing is left; longest first, each once.

    A trial whose process was broken off goes on from its checkpoint, `RETRIES` times at most.
    ``needed`` leaves out what is recorded; ``watch`` sees the running and the waiting trials.
    """
    started: set[str] = set()
    earlier: dict[str, list[str]] = {}
    waiting: list[Planned] = []
    stale = True
    try:
        while True:
            if stale:
                waiting = sorted(
                    (trial for trial in needed() if trial.id not in started),
                    key=lambda trial: (trial.phase == "shared", -trial.work),
                )
            while waiting and pool.free:
                trial = waiting.pop(0)
                started.add(trial.id)
                pool.start(trial)
            if not pool.running:
                return
            watch(pool.running, waiting)
            ended = pool.poll()
            for one in ended:
                one.earlier = earlier.setdefault(one.planned.id, [])
                if one.broken_off and len(one.earlier) < RETRIES:
                    one.earlier.append(f"tried again because {one.reason}")
                    started.remove(one.planned.id)
                else:
                    record(one)
            stale = bool(ended)
    finally:
        pool.stop()
