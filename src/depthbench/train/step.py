"""What is done with a batch: one optimizer step, or the loss on texts that stay the same."""

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from depthbench.data.dataset import Dataset, ValidationSet
from depthbench.data.loss import LossSum, next_token_loss
from depthbench.machine import choose_dtype
from depthbench.nn.backbones import backbone_kind
from depthbench.nn.branch import Load
from depthbench.nn.model import Model
from depthbench.train.config import TrialConfig
from depthbench.train.health import norm_of
from depthbench.train.optim import make_optimizer
from depthbench.train.outcome import Step, is_finite


class Learner:
    """A model, its optimizer and the batches it learns from."""

    def __init__(self, config: TrialConfig, dataset: Dataset) -> None:
        train = config.train
        self.config, self.dataset = config, dataset
        self.device = torch.device(train.device)
        self.dtype, note = choose_dtype(train.dtype, self.device)
        self.notes = [note] if note else []
        self.model = Model.build(config.model, config.seed, self.device)
        self.model.checkpointing = train.checkpointing
        if train.document_mask:
            self.model.keep_documents_apart()
        self.kind = backbone_kind(config.model.backbone)
        self.optimizer = make_optimizer(self.model, config)

    def step(self, number: int) -> Step:
        """One optimizer step, on the cross entropy and what routers add to it."""
        train = self.config.train
        rate = train.learning_rate(number, self.config.learning_rate)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["rate_factor"]
        batch = self.dataset.batch(self.config.seed, number, train.sequences, train.length)
        self.optimizer.zero_grad(set_to_none=True)
        size = train.micro_sequences or train.sequences
        parts = [
            self._backward(*part, share=size / train.sequences)
            for part in zip(*(half.split(size) for half in batch), strict=True)
        ]
        losses, penalties = zip(*parts, strict=True)
        norm = norm_of(p.grad for p in self.model.parameters() if p.grad is not None)
        grad_norm = norm.item()
        if is_finite(grad_norm):
            torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), train.max_grad_norm, norm)
            self.optimizer.step()
        router = None if penalties[0] is None else sum(penalties) / len(penalties)
        return Step(sum(losses) / len(losses), grad_norm, rate, router)

    def _backward(
        self, inputs: Tensor, targets: Tensor, share: float
    ) -> tuple[float, float | None]:
        """Add the gradients of one part of a batch; its cross entropy and router penalty."""
        loads: list[Load] = []
        with self.autocast():
            logits = self._logits(inputs, loads)
        flat = logits.float().flatten(0, 1)
        loss = functional.cross_entropy(flat, targets.to(self.device).flatten())
        penalty = self.kind.penalty(loads) if loads else None
        total = loss if penalty is None else loss + penalty
        (total if share == 1 else share * total).backward()
        return loss.item(), None if penalty is None else penalty.item()

    def _logits(self, inputs: Tensor, loads: list[Load] | None = None) -> Tensor:
        """Over the tokenizer's vocabulary: rows that only pad the embedding are no prediction."""
        return self.model(inputs.to(self.device), loads=loads)[..., : self.dataset.vocab]

    def autocast(self) -> AbstractContextManager[Any]:
        """Matrix products in the trial's dtype; weights stay float32."""
        low = self.dtype != torch.float32
        return torch.autocast(self.device.type, self.dtype if low else None, enabled=low)

    @torch.no_grad()
    def loss_on(self, texts: ValidationSet) -> LossSum:
        """Loss on all tokens of ``texts``."""
        total = LossSum()
        size = self.config.train.sequences
        parts = zip(
            texts.inputs.split(size),
            texts.targets.split(size),
            texts.target_bytes.split(size),
            strict=True,
        )
        for inputs, targets, sizes in parts:
            with self.autocast():
                logits = self._logits(inputs)
            total += next_token_loss(logits, targets.to(self.device), sizes.to(self.device))
        return total


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state by parameter: ``<parameter>.<name>``."""
    return {
        f"{name}.{key}": value.detach().cpu()
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state[parameter].items()
    }


def restore_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]
) -> None:
    """The way back from `optimizer_tensors`."""
    named = dict(model.named_parameters())
    for key, value in tensors.items():
        name, _, part = key.rpartition(".")
        parameter = named[name]
        # the step counts on CPU whatever the parameter's device, unless the step is fused there
        place = parameter.device if value.ndim or optimizer.defaults["fused"] else value.device
        optimizer.state[parameter][part] = value.to(place)
