"""Health of one trial while it trains: when to look, what a record says, when to tell."""

import math
from pathlib import Path
from typing import Any

from depthbench.train.config import TrainConfig, TrialConfig
from depthbench.train.health.findings import FILE, report_of
from depthbench.train.health.history import History
from depthbench.train.health.spikes import Signal, Spike, Spikes
from depthbench.train.metrics import METRICS, Listener
from depthbench.train.outcome import Outcome, Step
from depthbench.train.record import read_records

GROWTH = 1.02
"""Of the number of measurements, before their findings are looked for again."""


class Monitor(Listener):
    """What one trial's records say, and the windows that spikes are held against.

    It writes ``health.json`` at validations, at the end, and when there is something new to tell.
    """

    def __init__(self, train: TrainConfig, folder: Path) -> None:
        self.config, self.folder = train.health, folder
        self.spikes = Spikes(train.health)
        self.history = History(train)
        self.told: set[tuple[str, int]] = set()
        self.seen = 0

    def measures(self, step: int) -> bool:
        """Whether to measure by depth after ``step`` finished steps."""
        return self.config.every > 0 and step % self.config.every == 0

    def sees_updates(self, step: int) -> bool:
        """Whether to look at update sizes after ``step`` finished steps."""
        return step % self.config.update_every == 0

    def watch(self, step: int, made: Step, updates: list[float] | None) -> dict[str, Any]:
        """``spikes`` of the step's record, where one begins, grows or ends.

        ``updates`` are the norms of each block's last step, learning rate included.
        """
        signals: list[tuple[Signal, list[float]]] = [
            ("loss", [made.loss]),
            ("gradient", [made.grad_norm]),
        ]
        if updates is not None and made.rate > 0:
            signals.append(("update", [size / made.rate for size in updates]))
        found: list[Spike] = []
        for signal, values in signals:
            if all(math.isfinite(value) for value in values):
                found += self.spikes.look(signal, step, values)
        return {"spikes": [spike.resolved() for spike in found]} if found else {}

    def begin(self, config: TrialConfig, folder: Path, step: int) -> None:
        (folder / FILE).unlink(missing_ok=True)
        for record in read_records(folder / METRICS):
            self.history.add(record)
        if step:
            self.tell(anyway=True)

    def record(self, record: dict[str, Any], timing: dict[str, Any]) -> None:
        self.history.add(record)
        # rules read the whole history: in a long run not for every measurement
        grown = len(self.history.measures) >= GROWTH * self.seen
        if "loss" in record or "spikes" in record or ("health" in record and grown):
            self.tell(anyway="loss" in record)

    def end(self, outcome: Outcome) -> None:
        if outcome.status == "diverged" and outcome.reason is not None:
            self.history.diverged = (outcome.steps, outcome.reason)
        self.tell(anyway=True)

    def tell(self, *, anyway: bool) -> None:
        """Write ``health.json`` if something new was found, or ``anyway``."""
        report = report_of(self.history)
        found = {(finding.kind, finding.step) for finding in report.findings}
        if anyway or found - self.told:
            report.write(self.folder)
        self.told, self.seen = found, len(self.history.measures)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps; the rest comes from the records."""
        return self.spikes.state()

    def restore(self, state: dict[str, Any]) -> None:
        """The way back from `state`; the records come with `begin`."""
        self.spikes.restore(state)
