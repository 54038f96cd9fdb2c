"""The process of one trial, seen from outside; light to import, as a cluster's processes do."""

import multiprocessing
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from typing import Any

PRELOAD = ("depthbench.study.worker", "torch._dynamo")
"""Imported once for all trials; the second by torch itself, at the first optimizer: two seconds."""


@dataclass(frozen=True)
class Job:
    """What the process of a trial must know, as plain values that any node understands."""

    config: str
    """The trial's config as JSON."""
    data: str
    folder: str
    threads: int = 1
    processes: int = 1
    parallel: str = "ddp"
    """How the model lies on several processes."""
    gpus: str | None = None
    """What ``CUDA_VISIBLE_DEVICES`` is set to; None leaves it as it is."""
    elsewhere: bool = False
    """The result row is written on another machine, so the process says where it ran."""
    log: tuple[str, ...] = ()
    """Trackers that hear of the metrics."""


@dataclass(frozen=True)
class End:
    """How the process of a trial ended, as plain values."""

    outcome: dict[str, Any] | None
    """The fields of `Outcome`; None if there is none, for ``reason``."""
    reason: str | None = None
    broken_off: bool = False
    """It can go on from its checkpoint."""
    machine: dict[str, Any] | None = None
    """The fields of `Machine`, of a trial that ran elsewhere."""
    refused: bool = False
    """The reason holds for every trial: the run cannot go on."""
    last: bool = True
    """The process ends with its trial; otherwise it takes the next."""


def places(cores: float, gpus: float, cores_each: int, gpus_each: float) -> int:
    """Trials that a machine has room for at once; a GPU is shared by whole shares only."""
    room = [cores // cores_each]
    if gpus_each:
        room.append(gpus // gpus_each if gpus_each >= 1 else int(1 / gpus_each) * gpus)
    return int(min(room))


Message = tuple[int, int] | End
"""Progress (steps, tokens), or the end."""


class TrialProcess:
    """A process that trains trials, one after another: a warm one begins at once."""

    def __init__(self, job: Job) -> None:
        context = _context()
        self.channel, other = context.Pipe()
        # a daemon may have no children; this one ends by itself when its parent is gone
        alone = job.processes == 1
        self.process = context.Process(target=_work, args=(other,), daemon=alone)
        self.process.start()
        other.close()
        self.tokens = 0
        self.begin(job)

    @property
    def pid(self) -> int:
        """Number of the process."""
        assert self.process.pid is not None
        return self.process.pid

    @property
    def gone(self) -> bool:
        """Whether it has ended, so that it can train no more."""
        return self.channel.closed

    def begin(self, job: Job) -> None:
        """Train ``job``'s trial; the one before must be over."""
        self.tokens = 0
        # a process that is gone is found by `take`
        with suppress(OSError):
            self.channel.send(job)

    def take(self) -> End | None:
        """Take in what was said; the end of the trial once there is one."""
        try:
            while self.channel.poll():
                message: Message = self.channel.recv()
                if isinstance(message, End):
                    if message.last:
                        self.join()
                    return message
                self.tokens = message[1]
        except (EOFError, ConnectionResetError):
            self.join()
            code = self.process.exitcode
            # one that ended well without a result was told to end when it was about to begin
            return End(None, death(code), broken_off=code is not None and code <= 0)
        return None

    def terminate(self) -> None:
        """Let it write a checkpoint and end."""
        self.process.terminate()

    def join(self) -> None:
        """Wait until it has ended; what it still said is dropped, and without a trial it ends."""
        self.channel.close()
        self.process.join()


def wait_for_any(processes: list[TrialProcess], seconds: float) -> None:
    """Return when one of them has said something, or after ``seconds``."""
    channels: list[Connection] = [one.channel for one in processes]
    wait(channels, timeout=seconds)


def _work(channel: Connection) -> None:
    # here, because only the trial's process needs torch: it has it from its fork server
    from depthbench.study.worker import work

    work(channel)


def _context() -> ForkServerContext | SpawnContext:
    """How processes start: forked from a server that has imported torch once, where possible.

    A trial then starts in milliseconds, and no thread or lock of this process is copied.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOAD))
    return context


def death(code: int | None) -> str:
    """Why a process that ended before its trial did so, in words."""
    if code is not None and code < 0:
        return f"its process was killed by signal {-code} (out of memory?)"
    return f"its process ended with code {code} before the trial was over"
