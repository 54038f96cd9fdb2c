"""What a report reads of its trials' health: all findings, and the course of a few trials."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from depthbench.report.thin import evenly, stretches
from depthbench.study.findings import DesignFinding, Verdict, best_of
from depthbench.study.store import Row, Store
from depthbench.study.words import counted
from depthbench.train.health.findings import ORDER, HealthReport, read_report
from depthbench.train.health.history import Finding, Severity
from depthbench.train.health.spikes import Spike

POINTS = 240
"""Of a curve."""
COLUMNS = 32
"""Measurements of a heat map."""
DIGITS = 4
Standing = Literal["best shape", "worst shape", "only shape", "diverged"]
Grid = list[list[float | None]]


@dataclass(frozen=True)
class Signal:
    """One signal by depth, as a heat map shows it."""

    name: str
    words: str
    place: str
    """What its rows count."""
    log: bool
    """Shown by its logarithm to base 10."""
    read: Callable[[dict[str, Any]], Sequence[float | None] | None]
    """From a recorded measurement; None where it does not apply."""


def _plainly(name: str) -> Callable[[dict[str, Any]], Sequence[float | None] | None]:
    return lambda measured: measured.get(name)


def _mixing(measured: dict[str, Any]) -> Sequence[float | None] | None:
    if "mixing_row_error" not in measured:
        return None
    pairs = zip(measured["mixing_row_error"], measured["mixing_column_error"], strict=True)
    return [
        None if None in pair or not all(map(math.isfinite, pair)) else max(pair) for pair in pairs
    ]


SIGNALS = (
    Signal("gradient_norm", "gradient norm", "block", True, _plainly("gradient_norm")),
    Signal("update", "update over weight", "block", True, _plainly("update_over_weight")),
    Signal("second_moment", "Adam's second moment", "block", True, _plainly("second_moment")),
    Signal("output_norm", "output norm", "site", True, _plainly("output_norm")),
    Signal("output_variance", "output variance", "site", True, _plainly("output_variance")),
    Signal("state_rms", "state, root mean square", "state", True, _plainly("state_rms")),
    Signal("cosine", "cosine of neighbours", "pair", False, _plainly("neighbour_cosine")),
    Signal("mixing", "mixing error", "site", True, _mixing),
    Signal("drift", "low-precision drift", "state", True, _plainly("low_precision_drift")),
    Signal("busiest", "busiest expert's share", "router", False, _plainly("busiest_share")),
)


class Watched(NamedTuple):
    """A trial, and what was found while it trained."""

    row: Row
    report: HealthReport


@dataclass(frozen=True)
class Course:
    """How one trial went, thinned for a page."""

    row: Row
    standing: Standing
    steps: list[int]
    loss: list[float]
    """Mean of each stretch of records."""
    gradient: list[float]
    rate: list[float | None]
    spikes: list[Spike]
    """Of the loss."""
    measured: list[int]
    """Steps of the measurements."""
    signals: dict[str, Grid]
    """By depth, then by measurement; those that apply."""

    @property
    def name(self) -> str:
        """As a reader chooses it."""
        return f"{self.row.label}, {self.row.shape.layers} layers ({self.standing})"


def watched(store: Store, rows: Sequence[Row]) -> list[Watched]:
    """The trials that have findings on record, also if there are none in them."""
    found = ((row, read_report(store.folder / "trials" / row.id)) for row in rows)
    return [Watched(row, report) for row, report in found if report is not None]


def courses(store: Store, rows: Sequence[Row], verdict: Verdict) -> list[Course]:
    """Of every design the best and the worst shape; a diverged trial is the worst there is."""
    found = [
        course(store, row, standing)
        for design in verdict.designs
        for row, standing in representatives(design, rows)
    ]
    return [one for one in found if one is not None]


def representatives(design: DesignFinding, rows: Sequence[Row]) -> list[tuple[Row, Standing]]:
    """A trial of the best shape and one of the worst, at the design's used learning rate."""
    used = design.search.used
    own = [row for row in rows if row.label == design.label and used in (None, row.learning_rate)]
    lost = [row for row in own if row.status == "diverged"]
    best = best_of(design.curve)
    measured = [(loss, p) for p in design.curve if (loss := p.bits_per_byte) is not None]
    chosen: list[tuple[Row, Standing]] = []
    if best is not None:
        worst = max(measured, key=lambda pair: pair[0])[1]
        alone = worst is best and not lost
        chosen += _at(own, best.layers, best.width, "only shape" if alone else "best shape")
        if worst is not best and not lost:
            chosen += _at(own, worst.layers, worst.width, "worst shape")
    return [*chosen, *((row, "diverged") for row in lost[:1])]


def _at(
    rows: Sequence[Row], layers: int, width: int, standing: Standing
) -> list[tuple[Row, Standing]]:
    shapes = [row for row in rows if (row.shape.layers, row.shape.width) == (layers, width)]
    done = [row for row in shapes if row.status == "done"]
    return [(row, standing) for row in done[:1]]


def course(store: Store, row: Row, standing: Standing) -> Course | None:
    """The course of a trial; None where it recorded no loss, or was never measured."""
    records = store.metrics(row.id)
    known = [r for r in records if r.get("train_loss") is not None and r.get("grad_norm")]
    measured = [(r["step"], r["health"]) for r in records if "health" in r]
    if not known or not measured:
        return None
    parts = stretches(known, POINTS)
    kept = evenly(measured, COLUMNS)
    grids = {signal.name: _grid(signal, [health for _, health in kept]) for signal in SIGNALS}
    spikes = [Spike.parse(one) for record in records for one in record.get("spikes", ())]
    last = {spike.step: spike for spike in spikes if spike.signal == "loss"}
    return Course(
        row=row,
        standing=standing,
        steps=[part[-1]["step"] for part in parts],
        loss=[_mean(part, "train_loss") for part in parts],
        gradient=[_mean(part, "grad_norm") for part in parts],
        rate=[part[-1].get("learning_rate") for part in parts],
        spikes=list(last.values()),
        measured=[step for step, _ in kept],
        signals={name: grid for name, grid in grids.items() if grid},
    )


def findings(trials: Sequence[Watched]) -> list[tuple[Row, Finding]]:
    """Every finding of every trial, the most serious first."""
    found = [(one.row, finding) for one in trials for finding in one.report.findings]
    return sorted(found, key=lambda pair: ORDER.index(pair[1].severity))


def summary(trials: Sequence[Watched]) -> str:
    """How many trials were watched, and in how many something stood out."""
    having = [one for one in trials if one.report.findings]
    text = f"{counted(len(trials), 'trial')} watched by depth while training; "
    if not having:
        return f"{text}nothing stood out in any."
    kinds: dict[Severity, str] = {"problem": "problem", "warning": "warning", "note": "note"}
    every = [finding.severity for one in having for finding in one.report.findings]
    parts = [counted(every.count(s), word) for s, word in kinds.items() if s in every]
    return f"{text}something stood out in {len(having)}: {', '.join(parts)}."


def _grid(signal: Signal, measured: Sequence[dict[str, Any]]) -> Grid:
    columns = [signal.read(health) for health in measured]
    depth = max((len(column) for column in columns if column is not None), default=0)
    blank: list[float | None] = [None] * depth
    rows = zip(*(blank if column is None else column for column in columns), strict=True)
    return [[_shown(value, signal.log) for value in row] for row in rows]


def _shown(value: float | None, log: bool) -> float | None:
    if value is None or not math.isfinite(value) or (log and value <= 0):
        return None
    return float(f"{math.log10(value) if log else value:.{DIGITS}g}")


def _mean(part: Sequence[dict[str, Any]], key: str) -> float:
    return float(f"{sum(record[key] for record in part) / len(part):.5g}")
