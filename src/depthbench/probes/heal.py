"""A few steps of training after blocks were left out."""

import math
from collections.abc import Callable, Sequence

import torch
from pydantic import Field

from depthbench.config import Frozen
from depthbench.errors import DepthbenchError
from depthbench.probes.batch import Batch
from depthbench.probes.loss import own_loss
from depthbench.probes.subject import Subject


class HealConfig(Frozen):
    """How a pruned model is trained on."""

    steps: int = Field(default=0, ge=0)
    """Optimizer steps."""
    learning_rate: float = Field(default=1e-4, gt=0)
    """Peak of AdamW's."""
    warmup_fraction: float = Field(default=0.1, ge=0, le=1)
    """Share of the steps."""
    batches: int = Field(default=4, ge=1)
    """Batches of text a step."""
    clip: float = Field(default=1.0, gt=0)
    """Largest norm of the gradient."""
    weight_decay: float = Field(default=0.0, ge=0)
    """On matrices."""


def heal(
    subject: Subject,
    batches: Sequence[Batch],
    config: HealConfig,
    progress: Callable[[int, float], None] = lambda *_: None,
) -> list[float]:
    """Train the subject's model on the batches in turn; the loss of every step, nats per token.

    AdamW with linear warm-up and a cosine to 0. Raises `DepthbenchError` without batches, and if
    a loss is not finite.
    """
    if not batches:
        raise DepthbenchError("there is no text left to heal on: ask for more --tokens")
    parameters = [one for one in subject.module.parameters() if one.is_floating_point()]
    wanted = [one.requires_grad for one in parameters]
    for one in parameters:
        one.requires_grad_()
    optimizer = torch.optim.AdamW(
        parameters, lr=config.learning_rate, weight_decay=config.weight_decay
    )
    losses: list[float] = []
    for step in range(config.steps):
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * _share(step, config)
        total = 0.0
        for number in range(config.batches):
            batch = batches[(step * config.batches + number) % len(batches)]
            loss = own_loss(subject.session(batch)) / config.batches
            loss.backward()
            total += loss.item()
        if not math.isfinite(total):
            raise DepthbenchError(
                f"healing: the loss is not finite at step {step + 1}. Lower --learning-rate"
            )
        torch.nn.utils.clip_grad_norm_(parameters, config.clip)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
        progress(step + 1, total)
    for one, kept in zip(parameters, wanted, strict=True):
        one.requires_grad_(kept)
    return losses


def _share(step: int, config: HealConfig) -> float:
    """Of the learning rate at ``step``, from 0."""
    warm = math.ceil(config.warmup_fraction * config.steps)
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, config.steps - warm)))
