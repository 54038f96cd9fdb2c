"""What a model costs: operations, bytes, kernels and memory, of every pass and part."""

from collections.abc import Sequence
from typing import Literal

import torch

from depthbench.config import Frozen
from depthbench.cost.flops import Flops, count_flops
from depthbench.cost.memory import Memory, memory_of
from depthbench.cost.passes import (
    ATTENTION,
    DESIGN,
    EMBEDDING,
    FEEDFORWARD,
    HEAD,
    LOSS,
    NORM,
    Pass,
    Stage,
)
from depthbench.cost.record import Kernel
from depthbench.errors import unknown
from depthbench.nn.count import Parameters, count_parameters
from depthbench.nn.model import ModelConfig

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
Part = Literal[
    "projections", "attention", "head", "embedding", "norms", "element-wise", "design", "loss"
]
BRANCHES: tuple[Part, ...] = ("projections", "attention")
PARTS = {EMBEDDING: "embedding", HEAD: "head", NORM: "norms", LOSS: "loss", DESIGN: "design"}
"""Names here of parts that are whole; a branch has several."""


class Cost(Frozen):
    """Of some kernels."""

    flops: int
    """Multiplications and additions; see `Kernel.flops`."""
    bytes: int
    """Read and written."""
    kernels: int
    """One after another."""

    @property
    def intensity(self) -> float:
        """FLOPs for each byte that is read or written."""
        return self.flops / self.bytes


class PassCost(Frozen):
    """Of one prefill, one decoded token of every sequence, or one training step."""

    parts: dict[Part, Cost]
    total: Cost
    weight_bytes: int
    """Of parameters that are read, as often as they are read."""
    calls: int
    """Operations that the program asks for, views included."""
    peak_bytes: int
    """Largest number alive at once: parameters, cache and whatever is in flight."""
    state_bytes: int
    """Of what the design carries between blocks: its streams, sources or entries over depth."""
    kept_bytes: int = 0
    """That a forward keeps for its backward, parameters left out."""


class CacheCost(Frozen):
    """Bytes kept of earlier tokens; see `Model.cache`."""

    kv_bytes: int
    """Keys and values of attention, and the state of other branches that look back."""
    design_bytes: int
    """What the design keeps of earlier tokens: pooling sums, histories."""

    @property
    def total(self) -> int:
        """Of all."""
        return self.kv_bytes + self.design_bytes


class Ledger(Frozen):
    """All that one model costs at one context, batch and dtype."""

    parameters: Parameters
    context: int
    batch: int
    dtype: str
    stated: Flops
    """What the modules state of a forward over ``context`` tokens, logits at all of them."""
    cache: CacheCost
    prefill: PassCost
    """Of ``batch`` sequences of ``context`` tokens; logits of the last alone."""
    decode: PassCost
    """One token more of each."""
    memory: Memory

    @property
    def stated_prefill(self) -> int:
        """FLOPs of the prompts as the modules state them; logits of the last position alone."""
        stated = self.stated
        one = stated.projections + stated.attention + stated.own + stated.head // self.context
        return self.batch * one

    @property
    def excess(self) -> float:
        """Products in the branches of the run over those stated: above 1 where more is done."""
        stated = self.stated.projections + self.stated.attention
        run = [self.prefill.parts[name].flops for name in BRANCHES if name in self.prefill.parts]
        return sum(run) / (self.batch * stated)


def ledger_of(
    config: ModelConfig, *, context: int, batch: int = 1, dtype: str = "float32", fast: bool = False
) -> Ledger:
    """From the modules: operations as they state them, and every kernel of a run without numbers.

    ``fast`` takes the versions of a CPU, otherwise those of a GPU.
    """
    stage = stage_of(config, dtype, fast)
    return ledger_from(config, stage, context, batch, dtype)[0]


def ledger_from(
    config: ModelConfig, stage: Stage, context: int, batch: int, dtype: str
) -> tuple[Ledger, Pass, Pass]:
    """The ledger, with the prefill and the decoded token that it is of."""
    prefill, decode = stage.prefill(batch, context), stage.decode(batch, context)
    ledger = Ledger(
        parameters=count_parameters(config),
        context=context,
        batch=batch,
        dtype=dtype,
        stated=count_flops(config, context),
        cache=cache_of(stage, batch, context),
        prefill=cost_of(prefill),
        decode=cost_of(decode),
        memory=memory_of(config, dtype),
    )
    return ledger, prefill, decode


def stage_of(config: ModelConfig, dtype: str, fast: bool) -> Stage:
    """A model without numbers of ``config``."""
    return Stage(config, dtype_of(dtype), fast)


def dtype_of(name: str) -> torch.dtype:
    """Raises `DepthbenchError` for a name that is none."""
    if name not in DTYPES:
        raise unknown("dtype", name, DTYPES)
    return DTYPES[name]


def cache_of(stage: Stage, batch: int, capacity: int) -> CacheCost:
    """Bytes of the tensors that `Model.cache` makes."""
    with stage.mode:
        cache = stage.model.cache(batch, capacity)
        whole = cache.bytes
        kept = [one for one in cache.branches if one is not None]
        kv = sum(one.numel() * one.element_size() for memory in kept for one in memory.tensors())
    return CacheCost(kv_bytes=kv, design_bytes=whole - kv)


def cost_of(what: Pass) -> PassCost:
    """Kernels added up by part."""
    parts: dict[Part, list[Kernel]] = {}
    for kernel in what.kernels:
        parts.setdefault(part_of(kernel), []).append(kernel)
    return PassCost(
        parts={name: _sum(kernels) for name, kernels in parts.items()},
        total=_sum(what.kernels),
        weight_bytes=sum(one.weights for one in what.kernels),
        calls=sum(one.calls for one in what.kernels),
        peak_bytes=what.peak,
        state_bytes=what.state,
        kept_bytes=what.kept,
    )


def part_of(kernel: Kernel) -> Part:
    """What a kernel is called in tables."""
    if kernel.part in (ATTENTION, FEEDFORWARD):
        if kernel.kind == "product" and kernel.weights:
            return "projections"
        # products of what a branch has made itself: attention that is no kernel of its own, scans
        return "attention" if kernel.kind in ("attention", "product") else "element-wise"
    return PARTS[kernel.part]  # pyright: ignore[reportReturnType]


def _sum(kernels: Sequence[Kernel]) -> Cost:
    return Cost(
        flops=sum(one.flops for one in kernels),
        bytes=sum(one.bytes for one in kernels),
        kernels=len(kernels),
    )
