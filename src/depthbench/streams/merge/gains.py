"""Norm gains after a merge: what every branch is fed has the size per channel that it had."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from depthbench.config import Frozen
from depthbench.nn.model import Model
from depthbench.probes.batch import Batch
from depthbench.probes.loss import own_loss
from depthbench.probes.own import OwnSession
from depthbench.streams.tune import Course

SMALL = 1e-12
"""Mean square of a channel that is nothing."""


class Recalibration(Frozen):
    """What new gains did to the loss of texts that they were not made from."""

    samples: int
    """Sequences that the gains were made from."""
    loss_before: float
    loss_after: float
    kept: bool
    """Gains that make the loss larger are put back."""


@torch.no_grad()
def recalibrate(old: Model, new: Model, course: Course, samples: int, seed: int) -> Recalibration:
    """``g_c ← g_c · rms_old(x_c) / rms_new(x_c)`` for the inputs ``x`` of every branch.

    From about ``samples`` training sequences, and half as many to see whether it helps.
    """
    rows = course.config.train.sequences
    count = max(1, round(samples / rows))
    # far behind the steps that anybody trains
    first = 2**32
    batches = [course.batch(seed, first + number) for number in range(count)]
    others = [course.batch(seed, first + count + number) for number in range(max(1, count // 2))]
    norms = [connection.input_norm() for _, _, connection in new.sites()]
    before = _loss(new, others)
    kept = [None if norm is None else norm.gain.clone() for norm in norms]
    wanted, found = (_squares(model, batches) for model in (old, new))
    for norm, target, own in zip(norms, wanted, found, strict=True):
        if norm is not None:
            ratio = (target / own.clamp(min=SMALL)).sqrt()
            norm.gain.mul_(torch.where((target > SMALL) & (own > SMALL), ratio, 1.0).to(norm.gain))
    after = _loss(new, others)
    if not after <= before:
        for norm, gain in zip(norms, kept, strict=True):
            if norm is not None and gain is not None:
                norm.gain.copy_(gain)
    return Recalibration(
        samples=count * rows, loss_before=before, loss_after=after, kept=after <= before
    )


def _loss(model: Model, batches: Sequence[Batch]) -> float:
    return sum(own_loss(OwnSession(model, one)).item() for one in batches) / len(batches)


def _squares(model: Model, batches: Sequence[Batch]) -> list[Float[Tensor, "d"]]:
    """Mean over tokens of the squares of every branch's input, by site."""
    total: dict[int, Tensor] = {}

    def add(site: int, x: Tensor, y: Tensor) -> Tensor:
        squares = x.double().square().mean((0, 1))
        total[site] = total.get(site, torch.zeros_like(squares)) + squares
        return y

    for batch in batches:
        model(batch.tokens, tap=add)
    return [total[site] / len(batches) for site in sorted(total)]
