"""Next-token loss in nats per token and bits per byte."""

import math
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional

from depthbench.study.store import DomainLoss


@dataclass(frozen=True)
class LossSum:
    """Sums over target tokens; add them over batches, divide once at the end."""

    nats: float = 0.0
    tokens: int = 0
    bytes: int = 0

    def __add__(self, other: Self) -> "LossSum":
        return LossSum(self.nats + other.nats, self.tokens + other.tokens, self.bytes + other.bytes)

    @property
    def nats_per_token(self) -> float:
        """``nats / tokens``. Raises `ValueError` without tokens."""
        if not self.tokens:
            raise ValueError("no target tokens were summed, so there is no loss per token")
        return self.nats / self.tokens

    @property
    def bits_per_byte(self) -> float:
        """``nats / (ln 2 · bytes)``. Raises `ValueError` without bytes."""
        if not self.bytes:
            raise ValueError("no target bytes were summed, so there is no loss per byte")
        return self.nats / (math.log(2) * self.bytes)

    def domain_loss(self) -> DomainLoss:
        """As the field of a result row."""
        return DomainLoss(
            nats_per_token=self.nats_per_token,
            bits_per_byte=self.bits_per_byte,
            tokens=self.tokens,
            bytes=self.bytes,
        )


def next_token_loss(logits: Tensor, targets: Tensor, target_bytes: Tensor) -> LossSum:
    """``Σ -ln softmax(logits)[target]`` over all targets, with their number and bytes.

    ``logits`` (b, t, v) at a position predict ``targets`` (b, t) at the same position: the targets
    are already shifted. Reduced precision is widened to float32, and sums are float64.

    Raises `ValueError` if shapes differ, or a target is no row of the vocabulary.
    """
    if logits.shape[:-1] != targets.shape or target_bytes.shape != targets.shape:
        raise ValueError(
            f"logits {tuple(logits.shape)}, targets {tuple(targets.shape)} and target_bytes "
            f"{tuple(target_bytes.shape)} do not belong together"
        )
    # cross_entropy would leave out its ignore_index (-100) without a word
    if targets.numel() and not 0 <= int(targets.min()) <= int(targets.max()) < logits.shape[-1]:
        raise ValueError(f"a target lies outside the vocabulary of {logits.shape[-1]}")
    wide = logits if logits.dtype == torch.float64 else logits.float()
    each = functional.cross_entropy(wide.flatten(0, -2), targets.flatten(), reduction="none")
    return loss_sum(each, targets, target_bytes)


def loss_sum(each: Tensor, targets: Tensor, target_bytes: Tensor) -> LossSum:
    """Sum of the losses of all ``targets``, in float64."""
    return LossSum(each.double().sum().item(), targets.numel(), int(target_bytes.sum()))
