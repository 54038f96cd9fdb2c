"""What trials spent, and losses where they have spent the same: FLOPs, or measured time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from depthbench.cost.flops import Flops, count_flops
from depthbench.errors import DepthbenchError
from depthbench.nn.model import ModelConfig
from depthbench.report.study import TrainingCurve
from depthbench.study.store import Row
from depthbench.train.config import TrialConfig

Resource = Literal["flops", "seconds"]
RESOURCES: tuple[Resource, ...] = ("flops", "seconds")


@dataclass(frozen=True)
class Spent:
    """By one trial; None where it is not known."""

    flops: float | None
    """Of training, as the modules state them."""
    seconds: float | None
    """Of training alone, as measured: tokens over tokens per second."""
    forward: float | None
    """FLOPs of one token's forward, at the length of training."""

    def of(self, resource: Resource) -> float | None:
        """This much of it."""
        return self.flops if resource == "flops" else self.seconds


def spent(row: Row) -> Spent:
    """Over all tokens that the trial has seen."""
    speed = row.tokens_per_second
    seconds = row.tokens / speed if speed else None
    try:
        trial = TrialConfig.parse(row.config, f"trial {row.id}")
    except DepthbenchError:
        # of a version with other fields: that model is not ours
        return Spent(None, seconds, None)
    length = trial.train.length
    flops = _flops_of(trial.model.model_dump_json(), length)
    return Spent(float(flops.training_step * row.tokens // length), seconds, flops.forward / length)


@lru_cache(maxsize=4096)
def _flops_of(told: str, length: int) -> Flops:
    """Kept, because a study trains one model under many seeds and rates."""
    return count_flops(ModelConfig.model_validate_json(told), length)


@dataclass(frozen=True)
class Equal:
    """Training losses of all trials where each has spent ``budget``."""

    resource: Resource
    budget: float
    """What the thriftiest trial spent in all."""
    losses: dict[str, float]
    """Nats per token, by trial."""


def at_equal(
    curves: Sequence[TrainingCurve], costs: Mapping[str, Spent], resource: Resource
) -> Equal | None:
    """Training loss of every finished trial at the largest budget that all of them reached.

    ``costs`` are by trial. Read from each trial's smoothed curve, linear between the middles of its
    stretches. None where fewer than two trials tell what they spent, or all spent the same to a
    thousandth.
    """
    totals: dict[str, tuple[TrainingCurve, float]] = {}
    for curve in curves:
        total = costs[curve.row.id].of(resource)
        if curve.row.status == "done" and total and curve.row.tokens:
            totals[curve.row.id] = (curve, total)
    if len(totals) < 2:
        return None
    amounts = [total for _, total in totals.values()]
    budget = min(amounts)
    if max(amounts) < 1.001 * budget:
        return None
    losses = {name: _loss_at(curve, budget / total) for name, (curve, total) in totals.items()}
    return Equal(resource, budget, losses)


def _loss_at(curve: TrainingCurve, share: float) -> float:
    """At this share of the trial's tokens."""
    ends = np.array(curve.tokens, dtype=float)
    middles = (ends + np.concatenate([[0.0], ends[:-1]])) / 2
    return float(np.interp(share * curve.row.tokens, middles, curve.nats_per_token))
