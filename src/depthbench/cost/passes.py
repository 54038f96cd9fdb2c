"""What a model does in one prefill, one decoded token and one training step."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from depthbench.cost.record import Kernel, Recorder
from depthbench.nn.block import Block
from depthbench.nn.cache import Cache
from depthbench.nn.kernels import other_device
from depthbench.nn.model import Model, ModelConfig
from depthbench.nn.norm import LayerNorm, RMSNorm
from depthbench.nn.packed import tensors_in

ATTENTION = "attention branch"
FEEDFORWARD = "feed-forward branch"
NORM = "norm"
HEAD = "head"
EMBEDDING = "embedding"
LOSS = "loss"
DESIGN = ""
"""Whatever runs in no part that has a name: reads, mixes, writes, the opening and the readout."""


@dataclass(frozen=True)
class Pass:
    """Kernels in order, and what was alive."""

    kernels: tuple[Kernel, ...]
    held: int
    """Bytes before it: parameters, and the cache in decoding."""
    peak: int
    """Largest number of bytes alive at once, those before it included."""
    kept: int
    """Bytes that a forward keeps for its backward; 0 where there is none."""
    state: int
    """Largest bytes of the design's state between two blocks."""


class Stage:
    """A model without numbers, ready to be watched.

    ``fast`` takes the versions with their own backward, which run on CPU; otherwise those that run
    on a GPU. Attention is one kernel in both.
    """

    def __init__(self, config: ModelConfig, dtype: torch.dtype, fast: bool) -> None:
        self.fast, self.mode = fast, FakeTensorMode()
        with self.mode:
            self.model = Model(config)
            if dtype != torch.float32:
                for module in self.model.modules():
                    for name, one in list(module.named_parameters(recurse=False)):
                        module.register_parameter(name, nn.Parameter(one.detach().to(dtype)))
        self.recorder = Recorder(list(self.model.parameters()))
        self.state = 0
        self._name_parts()

    def prefill(self, batch: int, length: int) -> Pass:
        """Logits of the last position of every sequence, with a cache filled."""
        with self._ready(), torch.no_grad():
            tokens = torch.zeros(batch, length, dtype=torch.long)
            cache = self.model.cache(batch, length)
            return self._watched(lambda: self.model.step(tokens, cache, last=True), tokens, cache)

    def decode(self, batch: int, context: int) -> Pass:
        """One token behind ``context`` others."""
        with self._ready(), torch.no_grad():
            tokens = torch.zeros(batch, 1, dtype=torch.long)
            cache = self.model.cache(batch, context + 1)
            cache.length = context
            return self._watched(lambda: self.model.step(tokens, cache), tokens, cache)

    def forward(self, batch: int, length: int) -> Pass:
        """Logits of all positions."""
        with self._ready(), torch.no_grad():
            tokens = torch.zeros(batch, length, dtype=torch.long)
            return self._watched(lambda: self.model(tokens), tokens)

    def train(self, batch: int, length: int, products: torch.dtype, checkpointing: bool) -> Pass:
        """Forward, loss and backward."""
        self.model.checkpointing = checkpointing
        mixed = products != torch.float32
        with self._ready(), torch.enable_grad():
            tokens = torch.zeros(batch, length, dtype=torch.long)
            recorder = self.recorder
            before = self._begin(tokens)
            with recorder:
                with torch.autocast("cpu", products) if mixed else nullcontext():
                    logits = self.model(tokens)
                recorder.parts.append(LOSS)
                loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens.flatten())
                recorder.parts.pop()
                del logits
                kept = recorder.live.now - before
                loss.backward()
            return self._end(before, kept)

    def _watched(self, run: Any, *held: Any) -> Pass:
        before = self._begin(*held)
        with self.recorder:
            run()
        return self._end(before, 0)

    def _begin(self, *held: Any) -> int:
        self.state = 0
        return self.recorder.start(*self.model.parameters(), *_tensors(held))

    def _end(self, before: int, kept: int) -> Pass:
        kernels = tuple(self.recorder.kernels)
        found = Pass(kernels, before, self.recorder.live.peak, kept, self.state)
        self.model.zero_grad(set_to_none=True)
        gc.collect()
        return found

    @contextmanager
    def _ready(self) -> Iterator[None]:
        # so that what a pass leaves in cycles is found without a look at everything else
        gc.freeze()
        try:
            with self.mode, nullcontext() if self.fast else other_device():
                yield
        finally:
            gc.unfreeze()

    def _name_parts(self) -> None:
        model, name = self.model, self.recorder.name_part
        name(model.embed, EMBEDDING)
        name(model.head, HEAD)
        for module in model.modules():
            if isinstance(module, RMSNorm | LayerNorm):
                name(module, NORM)
        for number, branch, _ in model.sites():
            name(branch, FEEDFORWARD if number % 2 else ATTENTION)
        for block in model.blocks:
            assert isinstance(block, Block)
            block.register_forward_hook(self._measure)

    def _measure(self, _: nn.Module, __: Any, state: Any) -> None:
        self.state = max(self.state, state_bytes(state))


def state_bytes(state: Any) -> int:
    """Bytes of the tensors in a design's state; one that stands there twice counts once."""
    unique = {id(one): one for one in tensors_in(state)}
    return sum(one.numel() * one.element_size() for one in unique.values())


def _tensors(held: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for one in held:
        if isinstance(one, Cache):
            found += [tensor for memory in one.memories() for tensor in memory.tensors()]
            found += [one.cos, one.sin]
        else:
            found.append(one)
    return found
