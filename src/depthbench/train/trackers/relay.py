"""Between the metrics of a trial and one tracker: what it has had, and what it may not break."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import Field

from depthbench.config import Frozen, digest_of
from depthbench.designs import label_of
from depthbench.errors import DepthbenchError
from depthbench.files import make_folder, read_lines, replace_text
from depthbench.train.config import TrialConfig
from depthbench.train.metrics import METRICS, TIMING, Listener
from depthbench.train.outcome import Outcome
from depthbench.train.record import read_records
from depthbench.train.trackers.base import TrackedRun, Tracker

FOLDER = "trackers"
STEPS = ("step", "timing/step")
"""The step is the place of a value, not a value."""
TRIALS = "trials"


class Mark(Frozen):
    """How far a tracker has come with this folder: ``trackers/<name>.json``."""

    attempt: int = Field(default=0, ge=0)
    """How often training has started at step 0."""
    step: int = Field(default=0, ge=0)
    """Last step that was sent in this attempt."""


class Relay(Listener):
    """Sends records to a tracker, each step once; after its first failure, nothing more."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker = tracker
        self.mark = Mark()
        self.path = Path()
        self.failure: str | None = None

    def begin(self, config: TrialConfig, folder: Path, step: int) -> None:
        """Open the run; when it goes on, send what the tracker has missed."""
        self.failure = None
        self.path = folder / FOLDER / f"{self.tracker.name}.json"
        self._guarded(lambda: self._begin(config, folder, step))

    def record(self, record: dict[str, Any], timing: dict[str, Any]) -> None:
        """Send one record, unless the tracker has its step from before an interruption."""
        self._guarded(lambda: self._send(record, timing))

    def end(self, outcome: Outcome) -> None:
        """Close the run; what went wrong stands in the outcome's notes."""
        self._guarded(lambda: self.tracker.close(outcome))
        if self.failure is not None:
            outcome.notes.append(self.failure)

    def _begin(self, config: TrialConfig, folder: Path, step: int) -> None:
        earlier = _read(self.path)
        if step == 0:
            self.mark = Mark(attempt=earlier.attempt + 1)
        else:
            self.mark = earlier.model_copy(update={"attempt": max(1, earlier.attempt)})
        held = self.tracker.open(self._run(config, folder, step, before=earlier.attempt > 0))
        if held is not None:
            self._mark(held)
        if self.tracker.rewinds and self.mark.step > step:
            self._mark(step)
        if step:
            timings = {one["step"]: one for one in read_lines(folder / TIMING)}
            for record in read_records(folder / METRICS):
                self._send(record, timings.get(record["step"], {}))
        self._mark(self.mark.step)

    def _run(self, config: TrialConfig, folder: Path, step: int, *, before: bool) -> TrackedRun:
        place = folder.resolve()
        design, shape = label_of(config.model.design), config.model.shape
        return TrackedRun(
            id=f"{config.id}-{digest_of(str(place))[:6]}-{self.mark.attempt}",
            name=f"{design} L{shape.layers} d{shape.width} seed {config.seed} {config.id}",
            group=(place.parents[1] if place.parent.name == TRIALS else place).name,
            folder=folder,
            config=config.resolved(),
            step=step,
            before=before,
        )

    def _send(self, record: dict[str, Any], timing: dict[str, Any]) -> None:
        step = record["step"]
        if step <= self.mark.step:
            return
        values = flatten(record | {"timing": timing})
        self.tracker.log(step, {k: v for k, v in values.items() if k not in STEPS})
        self._mark(step)

    def _mark(self, step: int) -> None:
        self.mark = self.mark.model_copy(update={"step": step})
        # no fsync: losing it sends a step twice, which is less bad than waiting for the disk
        make_folder(self.path.parent)
        replace_text(self.path, self.mark.model_dump_json())

    def _guarded(self, act: Callable[[], None]) -> None:
        """Whatever a tool or its network does, training goes on."""
        if self.failure is not None:
            return
        try:
            act()
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            self.failure = f"--log {self.tracker.name} ended after step {self.mark.step}: {reason}"
            logging.getLogger(__name__).warning(self.failure)


def flatten(record: dict[str, Any], place: str = "") -> dict[str, float]:
    """Numbers of a nested record by path (``health/gradient_norm/0``); missing ones left out."""
    values: dict[str, float] = {}
    for key, value in record.items():
        name = f"{place}{key}"
        if isinstance(value, list):
            values |= flatten({str(place): one for place, one in enumerate(value)}, f"{name}/")
        elif isinstance(value, dict):
            values |= flatten(value, f"{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            values[name] = value
    return values


def _read(path: Path) -> Mark:
    """None yet, or unreadable: then the tracker starts over."""
    try:
        return Mark.parse(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, DepthbenchError):
        return Mark()
