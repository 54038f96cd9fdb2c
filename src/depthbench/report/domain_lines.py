"""Loss by domain against the aspect ratio, one line a design."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from depthbench.config import digest_of
from depthbench.evals.programs import PLAIN
from depthbench.evals.result import Measured
from depthbench.probes.result import Number
from depthbench.report.evaluations import EvaluatedStudy, EvaluatedTrial
from depthbench.study.findings import Verdict
from depthbench.study.store import Row

SCORE = "nats_per_token"


@dataclass(frozen=True)
class DomainPoint:
    """A design at one shape."""

    layers: int
    width: int
    value: float
    """Mean over seeds, nats per token."""
    low: float | None
    high: float | None
    span: str
    """What lies between ``low`` and ``high``; empty where there is nothing."""
    by_seed: dict[int, float]

    @property
    def aspect_ratio(self) -> float:
        """``width / layers``."""
        return self.width / self.layers


@dataclass(frozen=True)
class DomainLine:
    """A design on one domain, wide to narrow."""

    domain: str
    label: str
    points: tuple[DomainPoint, ...]


def domain_lines(study: EvaluatedStudy | None, verdict: Verdict) -> list[DomainLine]:
    """Of trials as they are, at the learning rate that each design uses.

    What was measured on other text, or in other rows, is a domain of its own: such losses do not
    compare.
    """
    used = {design.label: design.search.used for design in verdict.designs}
    trials = [] if study is None else study.trials
    own = [one for one in trials if used.get(one.row.label) in (None, one.row.learning_rate)]
    found: dict[tuple[str, str], dict[tuple[str, int, int], list[tuple[Row, Number]]]] = {}
    for trial in own:
        for one, number in _losses(trial):
            key = (one.name, digest_of([one.policy, one.data_hash]))
            place = (trial.row.label, trial.row.shape.layers, trial.row.shape.width)
            found.setdefault(key, {}).setdefault(place, []).append((trial.row, number))
    names = [name for name, _ in found]
    lines: list[DomainLine] = []
    for (name, mark), places in found.items():
        domain = name if names.count(name) == 1 else f"{name} ({mark})"
        for label in used:
            points = [
                _point(layers, width, several)
                for (own_label, layers, width), several in places.items()
                if own_label == label
            ]
            if points:
                ordered = sorted(points, key=lambda one: -one.aspect_ratio)
                lines.append(DomainLine(domain, label, tuple(ordered)))
    return lines


def domains_of(lines: Sequence[DomainLine]) -> list[str]:
    """Every domain, in order."""
    return list(dict.fromkeys(line.domain for line in lines))


def _losses(trial: EvaluatedTrial) -> list[tuple[Measured, Number]]:
    every = [(one, one.number(SCORE)) for one in trial.evaluation.of("domain", PLAIN)]
    return [(one, number) for one, number in every if number is not None and _known(number)]


def _known(number: Number) -> bool:
    return number.value is not None and math.isfinite(number.value)


def _point(layers: int, width: int, several: Sequence[tuple[Row, Number]]) -> DomainPoint:
    by_seed = {row.seed: number.value for row, number in several if number.value is not None}
    value = statistics.fmean(by_seed.values())
    if len(by_seed) > 1:
        spread = statistics.stdev(by_seed.values())
        low, high, span = value - spread, value + spread, "± standard deviation over seeds"
    else:
        number = several[-1][1]
        low, high = number.low, number.high
        span = "" if low is None or high is None else number.span or "95 % over documents"
    return DomainPoint(layers, width, value, low, high, span, dict(sorted(by_seed.items())))
