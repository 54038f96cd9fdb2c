"""One trial: train a model on a dataset, watch it, and say how it ended."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from depthbench.data.dataset import Dataset, ValidationSet
from depthbench.data.loss import LossSum, next_token_loss
from depthbench.errors import DepthbenchError
from depthbench.files import append_line, make_folder, save_atomic, write_atomic
from depthbench.machine import choose_dtype
from depthbench.nn.backbones import backbone_kind
from depthbench.nn.branch import Load
from depthbench.nn.model import Model
from depthbench.train.config import TrainConfig, TrialConfig
from depthbench.train.health import measure, norm_of
from depthbench.train.optim import make_optimizer

HEALTH_SEQUENCES = 2
"""Sequences whose depth states are watched: enough for a mean, too few to cost time."""


@dataclass
class Outcome:
    """How a trial ended."""

    status: Literal["done", "diverged"]
    steps: int
    tokens: int
    seconds: float
    """Wall time of the training steps, validation left out."""
    reason: str | None = None
    final_train_loss: float | None = None
    domains: dict[str, LossSum] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


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
        if not _is_finite(loss):
            return f"the loss is not finite at step {step}"
        if not _is_finite(grad_norm):
            return f"the gradient is not finite at step {step}"
        if self.start is None:
            self.start = loss
        high = step >= self.config.warmup_steps and loss > self.start
        self.above = self.above + 1 if high else 0
        if self.above < self.config.divergence_patience:
            return None
        return f"the loss was above its start ({self.start:.3f}) for {self.above} steps, to {step}"


class Trial:
    """A model, its optimizer and its data, ready to be trained once."""

    def __init__(self, config: TrialConfig, dataset: Dataset, folder: Path) -> None:
        """Raises `DepthbenchError` if data and model do not fit together."""
        vocab = config.model.shape.vocab
        if dataset.vocab > vocab:
            raise DepthbenchError(
                f"the tokenizer has {dataset.vocab} tokens but shape.vocab = {vocab}. "
                f"Set vocab to at least {dataset.vocab}"
            )
        self.config, self.dataset, self.folder = config, dataset, folder
        train = config.train
        self.device = torch.device(train.device)
        self.dtype, note = choose_dtype(train.dtype, self.device)
        self.notes = [note] if note else []
        self.model = Model.build(config.model, config.seed, self.device)
        self.model.checkpointing = train.checkpointing
        if train.document_mask:
            self.model.keep_documents_apart()
        self.kind = backbone_kind(config.model.backbone)
        self.optimizer = make_optimizer(self.model, config)
        self.validation = dataset.validation(train.length, train.validation_tokens)
        self.divergence = Divergence(train)

    def run(self, report: Callable[[int, int], None]) -> Outcome:
        """Train to the end or to divergence; ``report(steps, tokens)`` is called as it goes on."""
        train = self.config.train
        make_folder(self.folder)
        write_atomic(self.folder / "config.json", self.config.model_dump_json(indent=2) + "\n")
        (self.folder / "metrics.jsonl").unlink(missing_ok=True)
        evaluations = train.evaluation_steps()
        seconds, loss, domains = 0.0, float("nan"), {}
        for step in range(train.steps):
            started = time.perf_counter()
            made = self._step(step)
            loss, grad_norm = made.loss, made.grad_norm
            seconds += time.perf_counter() - started
            done = step + 1
            reason = self.divergence.check(step, loss, grad_norm)
            record: dict[str, Any] = {
                "step": done,
                "tokens": self._tokens(done),
                "train_loss": loss if _is_finite(loss) else None,
                "grad_norm": grad_norm if _is_finite(grad_norm) else None,
                "learning_rate": made.rate,
                "tokens_per_second": self._tokens(done) / seconds,
            }
            if made.router_penalty is not None:
                penalty = made.router_penalty
                record["router_penalty"] = penalty if _is_finite(penalty) else None
            if reason is not None:
                self._log(record)
                tokens = self._tokens(done)
                return Outcome("diverged", done, tokens, seconds, reason, notes=self.notes)
            if done in evaluations:
                domains = self.evaluate()
                record |= self._validation_record(domains) | self._health_record()
            if done in evaluations or done == 1 or done % train.log_every == 0:
                self._log(record)
                report(done, self._tokens(done))
        outcome = Outcome("done", train.steps, self._tokens(train.steps), seconds, notes=self.notes)
        outcome.final_train_loss, outcome.domains = loss, domains
        if not _is_finite(_together(domains).nats_per_token):
            outcome.status, outcome.reason = "diverged", "the validation loss is not finite"
        elif train.save_model:
            self._save()
        return outcome

    def _step(self, step: int) -> Step:
        """One optimizer step, on the cross entropy and what routers add to it."""
        train = self.config.train
        rate = train.learning_rate(step, self.config.learning_rate)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["rate_factor"]
        inputs, targets = self.dataset.batch(self.config.seed, step, train.sequences, train.length)
        loads: list[Load] = []
        with self._autocast():
            logits = self._logits(inputs, loads)
        flat = logits.float().flatten(0, 1)
        loss = functional.cross_entropy(flat, targets.to(self.device).flatten())
        penalty = self.kind.penalty(loads) if loads else None
        self.optimizer.zero_grad(set_to_none=True)
        (loss if penalty is None else loss + penalty).backward()
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        norm = norm_of(gradients)
        grad_norm = norm.item()
        if _is_finite(grad_norm):
            torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), train.max_grad_norm, norm)
            self.optimizer.step()
        return Step(loss.item(), grad_norm, rate, None if penalty is None else penalty.item())

    def _logits(self, inputs: Tensor, loads: list[Load] | None = None) -> Tensor:
        """Over the tokenizer's vocabulary: rows that only pad the embedding are no prediction."""
        return self.model(inputs.to(self.device), loads=loads)[..., : self.dataset.vocab]

    def _tokens(self, steps: int) -> int:
        return steps * self.config.train.sequences * self.config.train.length

    def _autocast(self) -> AbstractContextManager[Any]:
        low = self.dtype != torch.float32
        return torch.autocast(self.device.type, self.dtype if low else None, enabled=low)

    @torch.no_grad()
    def evaluate(self) -> dict[str, LossSum]:
        """Loss on the fixed validation tokens of every domain."""
        return {name: self._loss_on(texts) for name, texts in self.validation.items()}

    def _loss_on(self, texts: ValidationSet) -> LossSum:
        total = LossSum()
        size = self.config.train.sequences
        parts = zip(
            texts.inputs.split(size),
            texts.targets.split(size),
            texts.target_bytes.split(size),
            strict=True,
        )
        for inputs, targets, sizes in parts:
            with self._autocast():
                logits = self._logits(inputs)
            total += next_token_loss(logits, targets.to(self.device), sizes.to(self.device))
        return total

    def _validation_record(self, domains: dict[str, LossSum]) -> dict[str, Any]:
        total = _together(domains)
        if not _is_finite(total.nats_per_token):
            return {"loss": None}
        return {
            "loss": total.domain_loss().resolved(),
            "domains": {name: part.domain_loss().resolved() for name, part in domains.items()},
        }

    def _health_record(self) -> dict[str, Any]:
        tokens: Tensor = next(iter(self.validation.values())).inputs[:HEALTH_SEQUENCES]
        with self._autocast():
            health = measure(self.model, self.optimizer, tokens.to(self.device))
        return {"health": health.resolved()}

    def _log(self, record: dict[str, Any]) -> None:
        append_line(self.folder / "metrics.jsonl", record)

    def _save(self) -> None:
        step = f"step-{self.config.train.steps:06d}"
        weights = {k: v.detach().cpu() for k, v in self.model.state_dict().items()}
        save_atomic(
            self.folder / "checkpoints" / step / "model.safetensors",
            lambda path: save_file(weights, path),
        )


def _together(domains: dict[str, LossSum]) -> LossSum:
    return sum(domains.values(), LossSum())


def _is_finite(value: float) -> bool:
    return abs(value) < float("inf")
