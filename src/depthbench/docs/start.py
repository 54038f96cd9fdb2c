"""The init card: how a design starts, at several numbers of blocks."""

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from depthbench.check.signal import DEPTHS, WIDE, Signal, signal_at
from depthbench.check.start import TINY_EPS
from depthbench.check.subject import Subject, distance, tokens_of
from depthbench.config import Frozen
from depthbench.nn.model import Model


class InitCard(Frozen):
    """One design at one number of blocks, in float64."""

    signal: Signal
    distance: float | None
    """Of the logits to `prenorm`'s at the same backbone weights, over the largest; with
    ``norm_eps = 1e-12``, because a larger one adds a distance of its own. None: not finite."""


def init_cards(subject: Subject, depths: Sequence[int] = DEPTHS) -> list[InitCard]:
    """The card at every number of blocks."""
    return [_card(subject, layers) for layers in depths]


def _card(subject: Subject, layers: int) -> InitCard:
    off = distance(_logits(subject, layers), _logits(subject.plain(), layers))
    return InitCard(signal=signal_at(subject, layers), distance=off if math.isfinite(off) else None)


@lru_cache(maxsize=2 * len(DEPTHS))
@torch.no_grad()
def _logits(subject: Subject, layers: int) -> Tensor:
    shape = WIDE.model_copy(update={"layers": layers})
    config = subject.config(shape, norm_eps=TINY_EPS)
    return Model.build(config, seed=0, dtype=torch.float64)(tokens_of(length=16))
