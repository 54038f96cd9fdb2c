"""What a tool that draws metrics must know of a run: the interface of all adapters."""

import importlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from depthbench.errors import DepthbenchError
from depthbench.train.outcome import Outcome


@dataclass(frozen=True)
class TrackedRun:
    """One training run as a tracker sees it."""

    id: str
    """The same whenever this run goes on; another one when it starts over, or in another folder."""
    name: str
    """For people."""
    group: str
    """The study or run it belongs to."""
    folder: Path
    config: dict[str, Any]
    """Resolved config of the trial."""
    step: int
    """Steps that are done: 0 at the start, more when it goes on."""
    before: bool
    """Whether this tracker has had records from this folder."""


class Tracker(ABC):
    """An adapter to one tool. What it raises never reaches training."""

    name: ClassVar[str]
    """What ``--log`` and the extra are called."""
    rewinds: ClassVar[bool]
    """Whether records behind ``TrackedRun.step`` are taken back; if not, they are not sent twice:
    a run that goes on repeats them exactly."""

    @classmethod
    @abstractmethod
    def check(cls) -> None:
        """Raise `DepthbenchError` if it cannot work here; called before training."""

    @abstractmethod
    def open(self, run: TrackedRun) -> int | None:
        """A run starts or goes on; the last step that the tool holds of it, if it can tell."""

    @abstractmethod
    def log(self, step: int, values: dict[str, float]) -> None:
        """The numbers of one record."""

    @abstractmethod
    def close(self, outcome: Outcome) -> None:
        """The run is over, or stopped until it goes on."""


def library(module: str, extra: str) -> Any:
    """An optional package; raises `DepthbenchError` that names the extra where it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise DepthbenchError(
            f"--log {extra}: the package cannot be imported ({error}). "
            f"Install it with: pip install 'depthbench[{extra}]'"
        ) from None
