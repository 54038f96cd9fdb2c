"""How a step and a trial ended, and when a trial counts as diverged."""

import math
from dataclasses import dataclass, field
from typing import Literal

from depthbench.config import Frozen
from depthbench.data.loss import LossSum
from depthbench.train.config import TrainConfig


@dataclass
class Outcome:
    """How a trial ended; ``stopped`` trials go on from their checkpoint."""

    status: Literal["done", "diverged", "stopped"]
    steps: int
    tokens: int
    seconds: float
    """Wall time of the training steps, validation left out."""
    reason: str | None = None
    final_train_loss: float | None = None
    domains: dict[str, LossSum] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class Stopped(Frozen):
    """What ``train --json`` prints of a run that goes on with the same command."""

    schema_version: Literal[1] = 1
    status: Literal["stopped"] = "stopped"
    steps: int | None
    """That are done; None where training had not begun."""


@dataclass(frozen=True)
class Step:
    """What one optimizer step did."""

    loss: float
    """Cross entropy alone."""
    grad_norm: float
    """Before clipping."""
    rate: float
    router_penalty: float | None
    """What was added to the loss; None without routers."""


@dataclass
class Divergence:
    """Watches the training loss: not finite, or above its start for long after warm-up."""

    config: TrainConfig
    start: float | None = None
    above: int = 0

    def check(self, step: int, loss: float, grad_norm: float) -> str | None:
        """The reason in words once the trial has diverged, else None."""
        if not math.isfinite(loss):
            return f"the loss is not finite at step {step}"
        if not math.isfinite(grad_norm):
            return f"the gradient is not finite at step {step}"
        if self.start is None:
            self.start = loss
        high = step >= self.config.warmup_steps and loss > self.start
        self.above = self.above + 1 if high else 0
        if self.above < self.config.divergence_patience:
            return None
        return f"the loss was above its start ({self.start:.3f}) for {self.above} steps, to {step}"


def is_finite(value: float) -> bool:
    """Neither NaN nor infinite."""
    return abs(value) < float("inf")
