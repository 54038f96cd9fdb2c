"""One run as its folder shows it now."""

import json
import math
import time
from pathlib import Path
from typing import Any, Literal

from depthbench.config import Frozen
from depthbench.designs import label_of
from depthbench.errors import DepthbenchError
from depthbench.study.single import RESULT
from depthbench.study.words import counted
from depthbench.train.config import TrialConfig
from depthbench.train.health import findings
from depthbench.train.metrics import METRICS, TIMING
from depthbench.train.record import Record
from depthbench.train.status import read_status
from depthbench.watch.tail import Tail

POINTS = 60
"""Stretches that the loss curve is shown in."""
RECENT = 20
"""Records over which the speed is measured."""
CONFIG = "config.json"

State = Literal["waiting", "running", "done", "diverged", "failed", "stopped", "lost"]
"""``waiting``: no record yet; ``lost``: its process ended without a word."""
OVER: tuple[State, ...] = ("done", "diverged", "failed", "stopped", "lost")


class Found(Frozen):
    """One finding of the health watch."""

    severity: str
    """``note``, ``warning`` or ``problem``."""
    step: int | None
    words: str


class RunView(Frozen):
    """What there is to see of a run. A missing value is None, never 0."""

    folder: str
    label: str
    """Design, shape and seed; the folder's name where there is no config yet."""
    state: State
    reason: str | None
    step: int
    steps: int | None
    """In all."""
    tokens: int
    total_tokens: int | None
    train_loss: float | None
    """Of the last record, in nats per token."""
    validation_loss: float | None
    """The last one, in bits per byte."""
    validation_step: int | None
    learning_rate: float | None
    grad_norm: float | None
    tokens_per_second: float | None
    """Over the last records."""
    seconds_left: float | None
    """At that speed, validation left out; None when it is over."""
    quiet_seconds: float | None
    """Since the last record was written."""
    losses: tuple[float | None, ...]
    """Training loss, each the mean of a stretch of records; None where none of it is finite."""
    findings: tuple[Found, ...]
    unread: int
    """Lines of the metrics that are no JSON."""

    @property
    def over(self) -> bool:
        """Whether nothing more is to come."""
        return self.state in OVER


class Run:
    """Reads a run's folder again and again; only what is new in its long files."""

    def __init__(self, folder: Path, row: dict[str, Any] | None = None) -> None:
        """``row``: its result, where a study keeps it."""
        self.folder, self.row = folder, row
        self.metrics, self.timing = Tail(folder / METRICS), Tail(folder / TIMING)
        self.records: dict[int, dict[str, Any]] = {}
        self.seconds: dict[int, float] = {}
        self.last: dict[str, Any] = {}
        self.validation: tuple[int, float] | None = None

    def look(self) -> RunView:
        """The run as it is now; files that are not there yet are no mistake."""
        self._take_in()
        config = _config(self.folder)
        train = None if config is None else config.train
        state, reason = self._state(config)
        step, tokens = self.last.get("step", 0), self.last.get("tokens", 0)
        speed = self._speed()
        total = None if train is None else train.steps * train.sequences * train.length
        left = None
        if speed and total is not None and state not in OVER:
            left = max(0, total - tokens) / speed
        return RunView(
            folder=str(self.folder),
            label=self.folder.name if config is None else _label(config),
            state=state,
            reason=reason,
            step=step,
            steps=None if train is None else train.steps,
            tokens=tokens,
            total_tokens=total,
            train_loss=self.last.get("train_loss"),
            validation_loss=None if self.validation is None else self.validation[1],
            validation_step=None if self.validation is None else self.validation[0],
            learning_rate=self.last.get("learning_rate"),
            grad_norm=self.last.get("grad_norm"),
            tokens_per_second=speed,
            seconds_left=left,
            quiet_seconds=_age(self.folder / METRICS),
            losses=stretches([self.records[step]["loss"] for step in sorted(self.records)]),
            findings=_findings(self.folder),
            unread=self.metrics.unread,
        )

    def _take_in(self) -> None:
        records, over = self.metrics.read()
        if over:
            self.records, self.last, self.validation = {}, {}, None
        for record in records:
            try:
                step = Record.parse(record).step
            except DepthbenchError:
                self.metrics.unread += 1
                continue
            self.records[step] = {"loss": record.get("train_loss"), "tokens": record.get("tokens")}
            if step >= self.last.get("step", 0):
                self.last = record
            loss = record.get("loss")
            if isinstance(loss, dict) and loss.get("bits_per_byte") is not None:
                self.validation = step, loss["bits_per_byte"]
        times, over = self.timing.read()
        if over:
            self.seconds = {}
        self.seconds |= {t["step"]: t["seconds"] for t in times if {"step", "seconds"} <= t.keys()}

    def _speed(self) -> float | None:
        """Tokens per second of training between the first and the last of the recent records."""
        known = [step for step in sorted(self.records) if step in self.seconds][-RECENT:]
        if not known:
            return None
        first, last = known[0], known[-1]
        tokens, seconds = self.records[last]["tokens"], self.seconds[last]
        if first != last:
            tokens, seconds = tokens - self.records[first]["tokens"], seconds - self.seconds[first]
        return tokens / seconds if seconds > 0 else None

    def _state(self, config: TrialConfig | None) -> tuple[State, str | None]:
        status = read_status(self.folder)
        row = self.row or _result(self.folder, config)
        goes_on = status is not None and status.state == "running" and not status.gone
        if row is not None and not (goes_on and row.get("status") == "failed"):
            return row["status"], row.get("reason")
        if status is None or goes_on:
            return ("running" if self.records else "waiting"), None
        if status.state == "running":
            return "lost", "its process ended without a word. The same command goes on"
        return status.state, status.reason


def stretches(losses: list[float | None]) -> tuple[float | None, ...]:
    """At most `POINTS` means of neighbouring values, in order."""
    size = math.ceil(len(losses) / POINTS) or 1
    means: list[float | None] = []
    for start in range(0, len(losses), size):
        known = [loss for loss in losses[start : start + size] if loss is not None]
        means.append(sum(known) / len(known) if known else None)
    return tuple(means)


def _config(folder: Path) -> TrialConfig | None:
    try:
        return TrialConfig.parse(json.loads((folder / CONFIG).read_text(encoding="utf-8")))
    except (OSError, ValueError, DepthbenchError):
        return None


def _label(config: TrialConfig) -> str:
    shape = config.model.shape
    return (
        f"{label_of(config.model.design)}, {counted(shape.layers, 'layer')}, "
        f"width {shape.width}, seed {config.seed}"
    )


def _result(folder: Path, config: TrialConfig | None) -> dict[str, Any] | None:
    """The row of ``result.json``, if it is this config's: an earlier one may still lie there."""
    try:
        row = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    fits = isinstance(row, dict) and (config is None or row.get("id") == config.id)
    return row if fits and row.get("status") in OVER else None


def _findings(folder: Path) -> tuple[Found, ...]:
    try:
        report = json.loads((folder / findings.FILE).read_text(encoding="utf-8"))
        found = report["findings"]
        return tuple(
            Found(severity=one["severity"], step=one.get("step"), words=one["words"])
            for one in found
        )
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def _age(path: Path) -> float | None:
    try:
        return max(0.0, time.time() - path.stat().st_mtime)
    except OSError:
        return None
