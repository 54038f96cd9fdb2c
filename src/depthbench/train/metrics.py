"""The metrics of a trial: one JSON line a record, which is the truth, and who else is told."""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from depthbench.files import append_line, write_atomic
from depthbench.train.config import TrialConfig
from depthbench.train.outcome import Outcome
from depthbench.train.record import read_records

METRICS = "metrics.jsonl"
TIMING = "timing.jsonl"
"""What depends on the clock, apart from the metrics, so that equal runs have equal metrics."""


class Listener(ABC):
    """Hears what the metrics say, after it has been written."""

    @abstractmethod
    def begin(self, config: TrialConfig, folder: Path, step: int) -> None:
        """Training starts, or goes on behind ``step`` steps; later records are void."""

    @abstractmethod
    def record(self, record: dict[str, Any], timing: dict[str, Any]) -> None:
        """One record of ``metrics.jsonl``, and the one of ``timing.jsonl`` beside it."""

    @abstractmethod
    def end(self, outcome: Outcome) -> None:
        """Training is over; ``stopped`` if it goes on another time."""


class Metrics:
    """``metrics.jsonl`` and ``timing.jsonl`` in the folder of a trial."""

    def __init__(self, folder: Path, listeners: Sequence[Listener] = ()) -> None:
        self.folder, self.listeners = folder, listeners
        self.count = 0
        """Records that were written up to now, in this run and before."""

    def begin(self, config: TrialConfig, step: int, count: int = 0) -> list[str]:
        """Keep the metrics of the first ``step`` steps alone; none for 0.

        ``count`` is how many of them there were. What is missing, in words.
        """
        kept: list[dict[str, Any]] = []
        if step == 0:
            (self.folder / METRICS).unlink(missing_ok=True)
            (self.folder / TIMING).unlink(missing_ok=True)
        else:
            kept = [one for one in read_records(self.folder / METRICS) if one["step"] <= step]
            lines = [json.dumps(one, allow_nan=False, sort_keys=True) + "\n" for one in kept]
            write_atomic(self.folder / METRICS, "".join(lines))
        self.count = count
        for one in self.listeners:
            one.begin(config, self.folder, step)
        if len(kept) == count:
            return []
        return [f"{METRICS} holds {len(kept)} of the {count} records of the first {step} steps"]

    def add(self, record: dict[str, Any], seconds: float, tokens: int) -> None:
        """Write a record; ``seconds`` were spent on the ``tokens`` so far."""
        timing = {
            "step": record["step"],
            "seconds": seconds,
            "tokens_per_second": tokens / seconds,
        }
        append_line(self.folder / METRICS, record)
        self.count += 1
        append_line(self.folder / TIMING, timing)
        for one in self.listeners:
            one.record(record, timing)

    def end(self, outcome: Outcome) -> None:
        """Tell that training is over."""
        for one in self.listeners:
            one.end(outcome)
