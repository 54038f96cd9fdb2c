"""One trial: train a model on a dataset, watch it, and say how it ended."""

import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from depthbench.data.dataset import Dataset, ValidationSet
from depthbench.data.loss import LossSum, next_token_loss
from depthbench.errors import DepthbenchError
from depthbench.files import append_line, make_folder, read_lines, write_atomic
from depthbench.machine import choose_dtype
from depthbench.nn.backbones import backbone_kind
from depthbench.nn.branch import Load
from depthbench.nn.model import Model
from depthbench.train.checkpoint import Checkpoint, newest, prune, read, remove, save
from depthbench.train.config import TrialConfig
from depthbench.train.health import measure, norm_of
from depthbench.train.optim import make_optimizer
from depthbench.train.outcome import Divergence, Outcome, Step

Status = Literal["done", "diverged", "stopped"]
HEALTH_SEQUENCES = 2
"""Sequences whose depth states are watched: enough for a mean, too few to cost time."""


Report = Callable[[int, int], None]
"""``report(steps, tokens)`` is called as training goes on."""


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
        self.done = 0
        self.loss = float("nan")
        self.seconds = 0.0
        self.domains: dict[str, LossSum] = {}
        self.best: tuple[int, float] | None = None
        """Step and validation loss of the best checkpoint."""

    @property
    def checkpoints(self) -> Path:
        """Folder of the trial's checkpoints."""
        return self.folder / "checkpoints"

    def run(
        self,
        report: Report,
        *,
        resume: bool | Path = False,
        stop: Callable[[], bool] = lambda: False,
    ) -> Outcome:
        """Train to the end, to divergence, or until ``stop()`` is true after a step.

        ``resume`` goes on from the last whole checkpoint of this very config, if there is one, or
        from the one in the folder it names; the result is that of a run that was never
        interrupted, bit for bit in one process on CPU.
        """
        train = self.config.train
        make_folder(self.folder)
        write_atomic(self.folder / "config.json", self.config.model_dump_json(indent=2) + "\n")
        self._begin(resume)
        evaluations = train.evaluation_steps()
        while self.done < train.steps:
            started = time.perf_counter()
            made = self._step(self.done)
            self.loss = made.loss
            self.seconds += time.perf_counter() - started
            self.done += 1
            reason = self.divergence.check(self.done - 1, made.loss, made.grad_norm)
            record = self._record(made)
            if reason is not None:
                self._log(record)
                remove(self.checkpoints)
                return self._outcome("diverged", reason)
            if self.done in evaluations:
                self.domains = self.evaluate()
                record |= self._validation_record() | self._health_record()
            if self.done in evaluations or self.done == 1 or self.done % train.log_every == 0:
                self._log(record)
                report(self.done, self._tokens(self.done))
            stopped = self.done < train.steps and stop()
            if stopped or (train.save_every and self.done % train.save_every == 0):
                self.save()
            if stopped:
                return self._outcome("stopped", f"stopped after step {self.done}")
        return self._end()

    def _begin(self, resume: bool | Path) -> None:
        """State of step 0, or of the last checkpoint; metrics of later steps are cut off."""
        metrics = self.folder / "metrics.jsonl"
        found, notes = self._found(resume)
        self.notes += notes
        if found is None:
            # what the process drew before must not show in what it saves
            torch.manual_seed(self.config.seed % 2**63)
            remove(self.checkpoints)
            metrics.unlink(missing_ok=True)
            (self.folder / "timing.jsonl").unlink(missing_ok=True)
            return
        self._restore(found)
        kept = [record for record in read_lines(metrics) if record["step"] <= self.done]
        lines = [json.dumps(record, allow_nan=False, sort_keys=True) + "\n" for record in kept]
        write_atomic(metrics, "".join(lines))

    def _found(self, resume: bool | Path) -> tuple[Checkpoint | None, list[str]]:
        if isinstance(resume, bool):
            return newest(self.checkpoints, self.config.id) if resume else (None, [])
        found = read(resume)
        if found.manifest.config != self.config.id:
            raise DepthbenchError(
                f"{resume} is a checkpoint of another config (its trial is "
                f"{found.manifest.config}, this one {self.config.id}). Use the settings that it "
                "was made with, or --resume never"
            )
        return found, []

    def save(self) -> None:
        """A checkpoint of now; the best is the one of the least validation loss so far."""
        here = _together(self.domains)
        if here.tokens and (self.best is None or here.nats_per_token < self.best[1]):
            self.best = (self.done, here.nats_per_token)
        tensors = {
            "model": {k: v.detach().cpu() for k, v in self.model.state_dict().items()},
            "optimizer": optimizer_tensors(self.model, self.optimizer),
            "rng": {"torch": torch.get_rng_state()},
        }
        state = {
            "loss": self.loss if _is_finite(self.loss) else None,
            "start_loss": self.divergence.start,
            "above_start": self.divergence.above,
            "seconds": self.seconds,
            "domains": {name: asdict(part) for name, part in self.domains.items()},
            "best": self.best,
        }
        save(self.checkpoints, self.done, self.config.id, tensors, state)
        best = self.best[0] if self.best and self.config.train.keep_best else None
        prune(self.checkpoints, self.config.train.keep_last, best)

    def _restore(self, found: Checkpoint) -> None:
        state = found.manifest.state
        self.model.load_state_dict(found.tensors("model"))
        restore_optimizer(self.model, self.optimizer, found.tensors("optimizer"))
        torch.set_rng_state(found.tensors("rng")["torch"])
        self.done = found.manifest.step
        self.loss = float("nan") if state["loss"] is None else state["loss"]
        self.divergence.start = state["start_loss"]
        self.divergence.above = state["above_start"]
        self.seconds = state["seconds"]
        self.domains = {name: LossSum(**part) for name, part in state["domains"].items()}
        self.best = None if state["best"] is None else (state["best"][0], state["best"][1])

    def _outcome(self, status: Status, reason: str | None = None) -> Outcome:
        tokens = self._tokens(self.done)
        return Outcome(status, self.done, tokens, self.seconds, reason, notes=self.notes)

    def _end(self) -> Outcome:
        outcome = self._outcome("done")
        outcome.final_train_loss, outcome.domains = self.loss, self.domains
        if not _is_finite(_together(self.domains).nats_per_token):
            outcome.status, outcome.reason = "diverged", "the validation loss is not finite"
        elif self.config.train.save_model:
            self.save()
            return outcome
        remove(self.checkpoints)
        return outcome

    def _record(self, made: Step) -> dict[str, Any]:
        """The step's metrics; what depends on the clock goes to ``timing.jsonl``."""
        record: dict[str, Any] = {
            "step": self.done,
            "tokens": self._tokens(self.done),
            "train_loss": made.loss if _is_finite(made.loss) else None,
            "grad_norm": made.grad_norm if _is_finite(made.grad_norm) else None,
            "learning_rate": made.rate,
        }
        if made.router_penalty is not None:
            penalty = made.router_penalty
            record["router_penalty"] = penalty if _is_finite(penalty) else None
        return record

    def _step(self, step: int) -> Step:
        """One optimizer step, on the cross entropy and what routers add to it."""
        train = self.config.train
        rate = train.learning_rate(step, self.config.learning_rate)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["rate_factor"]
        inputs, targets = self.dataset.batch(self.config.seed, step, train.sequences, train.length)
        self.optimizer.zero_grad(set_to_none=True)
        size = train.micro_sequences or train.sequences
        parts = [
            self._backward(*part, share=size / train.sequences)
            for part in zip(inputs.split(size), targets.split(size), strict=True)
        ]
        losses, penalties = zip(*parts, strict=True)
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        norm = norm_of(gradients)
        grad_norm = norm.item()
        if _is_finite(grad_norm):
            torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), train.max_grad_norm, norm)
            self.optimizer.step()
        router = None if penalties[0] is None else sum(penalties) / len(penalties)
        return Step(sum(losses) / len(losses), grad_norm, rate, router)

    def _backward(
        self, inputs: Tensor, targets: Tensor, share: float
    ) -> tuple[float, float | None]:
        """Add the gradients of one part of a batch; its cross entropy and router penalty."""
        loads: list[Load] = []
        with self._autocast():
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

    def _validation_record(self) -> dict[str, Any]:
        total, domains = _together(self.domains), self.domains
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
        speed = self._tokens(self.done) / self.seconds
        timing = {"step": self.done, "seconds": self.seconds, "tokens_per_second": speed}
        append_line(self.folder / "timing.jsonl", timing)


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


def _together(domains: dict[str, LossSum]) -> LossSum:
    return sum(domains.values(), LossSum())


def _is_finite(value: float) -> bool:
    return abs(value) < float("inf")
