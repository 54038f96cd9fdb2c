"""What is done with a batch: one optimizer step, or the loss on texts that stay the same."""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from depthbench.data.dataset import IGNORED, Dataset, ValidationSet
from depthbench.data.loss import LossSum, loss_sum, next_token_loss
from depthbench.errors import DepthbenchError
from depthbench.machine import choose_dtype
from depthbench.nn.backbones import backbone_kind
from depthbench.nn.branch import Load
from depthbench.nn.compiled import Compiler, compile_failed
from depthbench.nn.fused import PLAIN, load_kernels
from depthbench.nn.loss import chunk_of, loss_in_chunks, losses_in_chunks
from depthbench.train.config import TrialConfig
from depthbench.train.health.measure import Health, measure
from depthbench.train.health.sums import blocks_of, update_squares
from depthbench.train.optim import make_optimizer
from depthbench.train.outcome import Step, is_finite
from depthbench.train.team import Team
from depthbench.train.tensors import clip_gradients, norm_of

logger = logging.getLogger(__name__)


class Learner:
    """A model, its optimizer and the batches it learns from, in one of a team's processes."""

    def __init__(self, config: TrialConfig, dataset: Dataset, team: Team) -> None:
        """Raises `DepthbenchError` if the team cannot share a batch."""
        train = config.train
        self.config, self.dataset, self.team = config, dataset, team
        self.rows = team.rows(train.sequences, train.micro_sequences or train.sequences)
        self.device = torch.device(train.device)
        self.dtype, note = choose_dtype(train.dtype, self.device)
        self.notes = [note] if note else []
        self.model = team.build(config.model, config.seed, self.device)
        self.forward = team.forward_of(self.model)
        self.model.checkpointing = train.checkpointing
        if train.compile:
            self.model.compiler = Compiler()
            if self.model.design.checkpoint_unit == "branch":
                self.notes.append("compile: branches alone, for the state grows with depth")
        if train.document_mask:
            self.model.keep_documents_apart()
        self.kernels = PLAIN
        if train.kernels == "fused":
            self.kernels, notes = load_kernels(self.device)
            self.model.use_kernels(self.kernels)
            self.notes += notes
        each = len(self.rows) // (train.sequences // (train.micro_sequences or train.sequences))
        self.chunk = chunk_of(each * train.length, dataset.vocab, train.loss_chunk)
        if dataset.manifest.episodes is not None and (self.chunk or self.kernels.loss):
            raise DepthbenchError(
                "the questions of a task do not count, which only the plain loss leaves out. Use "
                "train.kernels=plain and no train.loss_chunk"
            )
        if self.chunk and not (train.loss_chunk or self.kernels.loss):
            self.notes.append(f"loss: logits of {self.chunk} tokens at a time, to save memory")
        self.kind = backbone_kind(config.model.backbone)
        self.optimizer = make_optimizer(self.model, config)

    def step(self, number: int) -> Step:
        """One optimizer step, on the cross entropy and what routers add to it.

        Where the compiler fails, the step is made without, and so are all that follow. Raises
        `DepthbenchError` instead in a team, whose processes must run the same.
        """
        try:
            return self._step(number)
        except Exception as error:
            if self.model.compiler is None or not compile_failed(error):
                raise
            self._compile_no_more(error)
        return self._step(number)

    def _compile_no_more(self, error: Exception) -> None:
        reason = " ".join(str(error).split("\n\n")[0].split()) or type(error).__name__
        if self.team.size > 1:
            raise DepthbenchError(
                f"train.compile = true: torch's compiler failed ({reason}). Use train.compile=false"
            ) from error
        self.model.compiler = None
        self.notes.append(f"compile: torch's compiler failed, nothing is compiled ({reason})")
        logger.warning(self.notes[-1])

    def _step(self, number: int) -> Step:
        train = self.config.train
        rate = train.learning_rate(number, self.config.learning_rate)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["rate_factor"]
        batch = self.dataset.batch(
            self.config.seed, number, train.sequences, train.length, self.rows
        )
        self.optimizer.zero_grad(set_to_none=True)
        size = (train.micro_sequences or train.sequences) // self.team.size
        parts = list(zip(*(half.split(size) for half in batch), strict=True))
        found = [
            self._backward(*part, share=1 / len(parts), last=number == len(parts))
            for number, part in enumerate(parts, start=1)
        ]
        self.team.exchange_rest(self.model)
        norm = norm_of(p.grad for p in self.model.parameters() if p.grad is not None)
        grad_norm = norm.item()
        if is_finite(grad_norm):
            clip_gradients(self.model.parameters(), train.max_grad_norm, norm)
            self.optimizer.step()
        router = [penalty for _, penalty in found if penalty is not None]
        return Step(
            self._mean([loss for loss, _ in found]),
            grad_norm,
            rate,
            self._mean(router) if router else None,
        )

    def _mean(self, numbers: Sequence[float]) -> float:
        """Over the parts of a batch, of all processes."""
        return self.team.totals([sum(numbers) / len(numbers)])[0] / self.team.size

    def _backward(
        self, inputs: Tensor, targets: Tensor, share: float, last: bool
    ) -> tuple[float, float | None]:
        """Add the gradients of one part of a batch; its cross entropy and router penalty."""
        loads: list[Load] = []
        with self.team.adding_up(self.model, last):
            loss = self._loss(inputs.to(self.device), targets.to(self.device), loads)
            penalty = self.kind.penalty(loads) if loads else None
            total = loss if penalty is None else loss + penalty
            (total if share == 1 else share * total).backward()
        return loss.item(), None if penalty is None else penalty.item()

    def _loss(self, inputs: Tensor, targets: Tensor, loads: list[Load]) -> Tensor:
        """Mean cross entropy over the tokenizer's vocabulary; rows that pad it predict nothing."""
        vocab, finish = self.dataset.vocab, None
        if self.kernels.loss is not None:
            finish = self.kernels.loss(targets, vocab)
        elif self.chunk is not None:
            finish = loss_in_chunks(targets, vocab, self.chunk)
        with self.autocast():
            if finish is not None:
                return self.forward(inputs, loads=loads, finish=finish)
            logits = self.forward(inputs, loads=loads)[..., :vocab]
        return functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())

    def autocast(self) -> AbstractContextManager[Any]:
        """Matrix products in the trial's dtype; weights stay float32."""
        low = self.dtype != torch.float32
        return torch.autocast(self.device.type, self.dtype if low else None, enabled=low)

    def health(self, tokens: Tensor) -> Health:
        """What there is to see by depth after a step, with states on ``tokens``."""
        low = self.dtype != torch.float32
        autocast = self.autocast() if low else None
        return measure(self.model, self.optimizer, tokens.to(self.device), autocast)

    @torch.no_grad()
    def update_norms(self) -> list[float]:
        """Norm of the last step of every block, without decay."""
        return update_squares(blocks_of(self.model), self.optimizer).sqrt().tolist()

    def _validation_loss(self, inputs: Tensor, targets: Tensor, sizes: Tensor) -> LossSum:
        vocab = self.dataset.vocab
        known = targets != IGNORED
        if not known.all():
            logits = self.model(inputs)[known][..., :vocab]
            return next_token_loss(logits, targets[known], sizes[known])
        chunk = chunk_of(inputs.numel(), vocab, self.config.train.loss_chunk)
        if chunk is None:
            return next_token_loss(self.model(inputs)[..., :vocab], targets, sizes)
        each = self.model(inputs, finish=losses_in_chunks(targets, vocab, chunk))
        return loss_sum(each, targets, sizes)

    @torch.no_grad()
    def loss_on(self, texts: ValidationSet) -> LossSum:
        """Loss on all tokens of ``texts``, to which every process adds its share."""
        total, size = LossSum(), self.config.train.sequences
        for start in range(0, len(texts.inputs), size):
            rows = range(start, min(start + size, len(texts.inputs)))[
                self.team.rank :: self.team.size
            ]
            # a model in parts runs in all processes or in none
            shown = torch.tensor(rows or [start])
            inputs, targets, sizes = (
                one[shown].to(self.device)
                for one in (texts.inputs, texts.targets, texts.target_bytes)
            )
            with self.autocast():
                found = self._validation_loss(inputs, targets, sizes)
            total += found if rows else LossSum()
        nats, tokens, size_in_bytes = self.team.totals([total.nats, total.tokens, total.bytes])
        return LossSum(nats, int(tokens), int(size_in_bytes))


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state by parameter: ``<parameter>.<name>``."""
    return {
        f"{name}.{key}": value
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


def like_parameter(model: nn.Module) -> Callable[[str], Tensor | None]:
    """For a key of `optimizer_tensors`: the parameter that it is laid out as, if it has a size."""
    named = dict(model.named_parameters())

    def find(key: str) -> Tensor | None:
        name, _, part = key.rpartition(".")
        return None if part == "step" else named[name]

    return find
