"""Where trials run side by side, and in which order."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from depthbench.data.loss import LossSum
from depthbench.study.config import Resources
from depthbench.study.plan import Planned
from depthbench.study.process import End, Job
from depthbench.study.store import Machine
from depthbench.train.outcome import Outcome

POLL_SECONDS = 0.25
RETRIES = 2


@dataclass
class Running:
    """A trial that is being trained."""

    planned: Planned
    tokens: int = 0
    pid: int | None = None
    """Of its process, once that is known."""
    node: str | None = None
    """Where it runs; None on this machine and while it waits for its place."""
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
    machine: Machine | None = None
    """Where it ran; None on this machine."""


@dataclass(frozen=True)
class Place:
    """Where trials are asked to run."""

    engine: str = "local"
    workers: int | None = None
    """Trials at once at most; None = as many as there is room for."""
    address: str | None = None
    """Of a cluster that runs already, for engines that have one."""
    log: tuple[str, ...] = ()
    """Trackers that hear of every trial's metrics."""


HERE = Place()
"""Processes of this machine, as many as it has room for."""


@dataclass(frozen=True)
class Need:
    """What one trial needs."""

    resources: Resources
    device: str

    @property
    def cores(self) -> int:
        """Cores of the machine."""
        return self.resources.cores

    @property
    def gpus(self) -> float:
        """GPUs, or a share of one."""
        return self.resources.gpus_on(self.device)


@dataclass(frozen=True)
class Setup:
    """What an engine is told when it is opened."""

    place: Place
    need: Need
    data: Path
    folder: Path
    """Of the study."""

    def job(self, planned: Planned, *, gpus: str | None = None, elsewhere: bool = False) -> Job:
        """What the trial's process is told."""
        return Job(
            config=planned.config.model_dump_json(),
            data=str(self.data.absolute()),
            folder=str(self.folder.absolute() / "trials" / planned.id),
            threads=self.need.resources.threads,
            processes=self.need.resources.processes,
            parallel=self.need.resources.parallel,
            gpus=gpus,
            elsewhere=elsewhere,
            log=self.place.log,
        )


class Engine(ABC):
    """Runs trials, each in a process of its own: a crash ends its own trial only.

    To add one: a file beside this one and a line in the registry in ``engines.py``.
    """

    here: ClassVar[bool]
    """Trials run on this machine and no other."""

    def __init__(self, setup: Setup) -> None:
        """Raises `DepthbenchError` if no trial can run."""
        self.setup = setup
        self.running: list[Running] = []

    @classmethod
    @abstractmethod
    def check(cls, place: Place, need: Need) -> None:
        """Raise `DepthbenchError` for what can be seen to be missing before anything is written."""

    @property
    @abstractmethod
    def free(self) -> int:
        """How many more trials can be started now."""

    @abstractmethod
    def start(self, planned: Planned) -> None:
        """Start one trial; it goes on from its checkpoint if it has one."""

    @abstractmethod
    def poll(self) -> list[Ended]:
        """Wait a moment for news; the trials that ended meanwhile.

        Raises `DepthbenchError` if no trial can run any more.
        """

    @abstractmethod
    def stop(self) -> None:
        """Let all trials write a checkpoint and end, and leave nothing running."""


def ended(running: Running, end: End) -> Ended:
    """The end of a trial, from what its process said."""
    return Ended(
        running.planned,
        None if end.outcome is None else _outcome(end.outcome),
        end.reason,
        time.monotonic() - running.started,
        end.broken_off,
        machine=None if end.machine is None else Machine.model_validate(end.machine),
    )


def _outcome(fields: dict[str, Any]) -> Outcome:
    domains = {name: LossSum(**part) for name, part in fields["domains"].items()}
    return Outcome(**{**fields, "domains": domains})


def drive(
    engine: Engine,
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
            while waiting and engine.free > 0:
                trial = waiting.pop(0)
                started.add(trial.id)
                engine.start(trial)
            if not engine.running and not waiting:
                return
            watch(engine.running, waiting)
            over = engine.poll()
            for one in over:
                one.earlier = earlier.setdefault(one.planned.id, [])
                if one.broken_off and len(one.earlier) < RETRIES:
                    one.earlier.append(f"tried again because {one.reason}")
                    started.remove(one.planned.id)
                else:
                    record(one)
            stale = bool(over)
    finally:
        engine.stop()
