"""Training on: a few hundred steps at a share of the peak rate, that a kill only delays."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from depthbench.config import Frozen
from depthbench.data.dataset import Dataset
from depthbench.errors import DepthbenchError
from depthbench.machine import choose_dtype
from depthbench.nn.model import Model
from depthbench.probes.batch import Batch
from depthbench.probes.loss import mean_loss
from depthbench.probes.subject import Subject
from depthbench.streams.sites import Change, travel
from depthbench.train.checkpoint import newest, prune, save
from depthbench.train.config import TrialConfig
from depthbench.train.optim import parameter_groups
from depthbench.train.step import optimizer_tensors, restore_optimizer
from depthbench.train.tensors import clip_gradients, norm_of

Hear = Callable[[int, float], None]
"""Hears how many steps are done, and the loss of the last."""


class TuneConfig(Frozen):
    """How a trained model is trained on."""

    steps: int = Field(default=500, ge=1)
    """Optimizer steps."""
    rate: float = Field(default=0.1, gt=0)
    """Peak of the learning rate, as a share of that which the model was trained with."""
    warmup: int = Field(default=50, ge=0)
    """Steps of the linear warm-up."""
    final_fraction: float = Field(default=0.1, ge=0, le=1)
    """Learning rate at the end over its peak."""
    save_every: int = Field(default=100, ge=1)
    """Steps between two checkpoints that a killed run goes on from."""

    def share(self, step: int) -> float:
        """Of the model's peak learning rate at ``step``, from 0: linear, then a cosine."""
        warm = min(self.warmup, self.steps // 2)
        if step < warm:
            return self.rate * (step + 1) / warm
        done = (step - warm) / max(1, self.steps - 1 - warm)
        low = self.final_fraction
        return self.rate * (low + (1 - low) * 0.5 * (1 + math.cos(math.pi * min(1.0, done))))


@dataclass(frozen=True)
class Course:
    """What a trial was trained on and how, for those who train it on."""

    config: TrialConfig
    dataset: Dataset
    device: torch.device

    def batch(self, seed: int, step: int) -> Batch:
        """Another batch than training's: its sampler's seeds are those behind the trial's own."""
        train = self.config.train
        own = self.config.seed + 1 + seed
        inputs, targets = self.dataset.batch(own, step, train.sequences, train.length)
        tokens = torch.cat([inputs, targets[:, -1:]], 1).to(self.device)
        return Batch(
            tokens, torch.ones_like(tokens, dtype=torch.bool), torch.zeros_like(tokens), ()
        )

    @cached_property
    def dtype(self) -> torch.dtype:
        """Of matrix products, as in training."""
        return choose_dtype(self.config.train.dtype, self.device)[0]

    def autocast(self) -> AbstractContextManager[Any]:
        """Matrix products in the trial's dtype; weights stay float32."""
        low = self.dtype != torch.float32
        return torch.autocast(self.device.type, self.dtype if low else None, enabled=low)

    def optimizer(self, model: Model, more: Sequence[nn.Parameter] = ()) -> torch.optim.AdamW:
        """Of the trial's rules; ``more`` parameters without decay, at the same rate."""
        groups = parameter_groups(model, self.config)
        if more:
            plain = {"rate_factor": 1.0, "weight_decay": 0.0, "eps": self.config.train.eps}
            groups.append({"params": list(more), "lr": self.config.learning_rate} | plain)
        train = self.config.train
        betas = (train.beta1, train.beta2)
        return torch.optim.AdamW(groups, lr=self.config.learning_rate, betas=betas)


class Pupil(nn.Module):
    """A model in training, with what is trained beside it for a while."""

    def __init__(self, model: Model, extra: nn.Module | None = None) -> None:
        super().__init__()
        self.model = model
        self.extra = extra if extra is not None else nn.Module()


def everything(step: int, name: str) -> bool:
    """Every parameter moves in every step."""
    return True


def tune(
    pupil: Pupil,
    course: Course,
    config: TuneConfig,
    loss: Callable[[Batch, int], Tensor],
    *,
    seed: int = 0,
    key: str = "",
    folder: Path | None = None,
    trained: Callable[[int, str], bool] = everything,
    hear: Hear = lambda step, loss: None,
    say: Callable[[str], None] = lambda _: None,
) -> list[float]:
    """Train on ``loss(batch, step)``; the loss of every step, nats per token.

    AdamW with the trial's own rules and fresh moments. ``trained(step, name)`` says which
    parameters move. With a ``folder``, a checkpoint is kept there every so often under ``key``,
    and the same call goes on from it; what it cannot go on from is named through ``say``. Raises
    `DepthbenchError` if a loss is not finite.
    """
    optimizer = course.optimizer(pupil.model, list(pupil.extra.parameters()))
    losses = [] if folder is None else _resume(pupil, optimizer, folder, key, say)
    named = dict(pupil.named_parameters())
    for step in range(len(losses), config.steps):
        for name, parameter in named.items():
            parameter.requires_grad_(trained(step, name))
        rate = course.config.learning_rate * config.share(step)
        for group in optimizer.param_groups:
            group["lr"] = rate * group["rate_factor"]
        optimizer.zero_grad(set_to_none=True)
        with course.autocast():
            found = loss(course.batch(seed, step), step)
        found.backward()
        if not math.isfinite(found.item()):
            raise DepthbenchError(
                f"training on: the loss is not finite at step {step + 1}. Lower the learning rate"
            )
        norm = norm_of(one.grad for one in named.values() if one.grad is not None)
        clip_gradients(named.values(), course.config.train.max_grad_norm, norm)
        optimizer.step()
        losses.append(found.item())
        hear(step + 1, losses[-1])
        if folder is not None and (step + 1) % config.save_every == 0:
            _save(pupil, optimizer, folder, key, losses)
    for parameter in named.values():
        parameter.requires_grad_()
        parameter.grad = None
    return losses


def changed_loss(subject: Subject, change: Change, batch: Batch) -> Tensor:
    """Mean next-token loss of the subject's model under ``change``."""
    session = subject.session(batch)
    state = travel(session, subject, change)
    return mean_loss(session.batch, session.logits(session.readout(state)))


@contextmanager
def lent(model: nn.Module) -> Iterator[None]:
    """Whatever is done to ``model`` inside, its weights are the same afterwards."""
    before = {name: one.clone() for name, one in model.state_dict().items()}
    try:
        yield
    finally:
        model.load_state_dict(before)


def _save(
    pupil: Pupil, optimizer: torch.optim.Optimizer, folder: Path, key: str, losses: list[float]
) -> None:
    tensors = {
        "model": {name: one.contiguous() for name, one in pupil.state_dict().items()},
        "optimizer": optimizer_tensors(pupil, optimizer),
    }
    save(folder, len(losses), key, tensors, {"losses": losses})
    prune(folder, 1, None)


def _resume(
    pupil: Pupil,
    optimizer: torch.optim.Optimizer,
    folder: Path,
    key: str,
    say: Callable[[str], None],
) -> list[float]:
    found, notes = newest(folder, key)
    if notes:
        at = 0 if found is None else found.manifest.step
        say(f"{'; '.join(notes)}: training on goes on from step {at}")
    if found is None:
        return []
    pupil.load_state_dict(found.tensors("model"))
    restore_optimizer(pupil, optimizer, found.tensors("optimizer"))
    return list(found.manifest.state["losses"])
