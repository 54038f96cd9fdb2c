"""What trials spent, and losses where they have spent the same: FLOPs, or measured time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from depthbench.cost.flops import known_flops
from depthbench.cost.training import training_flops
from depthbench.errors import DepthbenchError
from depthbench.report.study import TrainingCurve
from depthbench.study.store import Row
from depthbench.train.config import TrialConfig

Resource = Literal["flops", "seconds"]
RESOURCES: tuple[Resource, ...] = ("flops", "seconds")
Key = tuple[str, str]
"""Of a trial on a page: its label, and its id."""


@dataclass(frozen=True)
class Spent:
    """By one trial; None where it is not known."""

    flops: float | None
    """Of training, as the modules state them."""
    seconds: float | None
    """Of training alone, as measured: tokens over tokens per second."""
    forward: float | None
    """FLOPs of one token's forward, at the length of training."""
    unread: bool = False
    """Whether this version cannot read the trial's config, and so knows no FLOPs of it."""

    def of(self, resource: Resource) -> float | None:
        """This much of it."""
        return self.flops if resource == "flops" else self.seconds


def key_of(row: Row) -> Key:
    """An id says what was trained, not where: studies that share a page may share ids."""
    return row.label, row.id


def spent(row: Row) -> Spent:
    """Over all tokens that the trial has seen."""
    speed = row.tokens_per_second
    seconds = row.tokens / speed if speed else None
    try:
        trial = TrialConfig.parse(row.config, f"trial {row.id}")
    except DepthbenchError:
        # of a version with other fields: that model is not ours
        return Spent(None, seconds, None, unread=True)
    length = trial.train.length
    forward = known_flops(trial.model, length).forward
    return Spent(float(training_flops(trial, row.tokens)), seconds, forward / length)


@dataclass(frozen=True)
class Equal:
    """Training losses of all trials where each has spent ``budget``."""

    resource: Resource
    budget: float
    """What the thriftiest trial spent in all."""
    losses: dict[Key, float]
    """Nats per token, by trial."""


def at_equal(
    curves: Sequence[TrainingCurve], costs: Mapping[Key, Spent], resource: Resource
) -> Equal | None:
    """Training loss of every finished trial at the largest budget that all of them reached.

    ``costs`` are by trial. Read from each trial's smoothed curve, linear between the middles of its
    stretches. None where fewer than two trials tell what they spent, or all spent the same to a
    thousandth.
    """
    totals: dict[Key, tuple[TrainingCurve, float]] = {}
    for curve in curves:
        total = costs[key_of(curve.row)].of(resource)
        if curve.row.status == "done" and total and curve.row.tokens:
            totals[key_of(curve.row)] = (curve, total)
    if len(totals) < 2:
        return None
    amounts = [total for _, total in totals.values()]
    budget = min(amounts)
    if max(amounts) < 1.001 * budget:
        return None
    losses = {key: _loss_at(curve, budget / total) for key, (curve, total) in totals.items()}
    return Equal(resource, budget, losses)


def _loss_at(curve: TrainingCurve, share: float) -> float:
    """At this share of the trial's tokens."""
    ends = np.array(curve.tokens, dtype=float)
    middles = (ends + np.concatenate([[0.0], ends[:-1]])) / 2
    return float(np.interp(share * curve.row.tokens, middles, curve.nats_per_token))
