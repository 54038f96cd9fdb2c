"""A bank of depth sources and its softmax mixes: what AttnRes designs share."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import ClassVar, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from depthbench.designs.base import Route
from depthbench.designs.fast_sources import Chain, FastBank
from depthbench.nn.fused import PLAIN, Kernels, Mixer, suits
from depthbench.nn.kernels import fast, hold
from depthbench.nn.precision import at_least_float32, full_precision


@dataclass(frozen=True)
class SourceRoute(Route):
    """Softmax weights over the sources that a site mixed, oldest first."""

    weights: Float[Tensor, "l b t"] | None = None
    running: bool = False
    """Whether the last of them is that of a running sum."""
    chain: Chain | None = field(default=None, repr=False)
    """Where gradients go on, for the fast bank only."""

    def on_running_sum(self) -> Float[Tensor, "b t"] | None:
        return self.weights[-1] if self.running and self.weights is not None else None


@dataclass(frozen=True)
class PlainBank:
    """Complete sources, and what every mix makes of each, by torch's own operations."""

    queries: Float[Tensor, "mixes d"]
    eps: float
    values: tuple[Float[Tensor, "b t d"], ...] = ()
    logits: tuple[Float[Tensor, "b t mixes"], ...] = ()
    chain: None = None

    def append(self, source: Float[Tensor, "b t d"]) -> "PlainBank":
        """With one more source."""
        logits = source_logits(source, self.queries, self.eps)
        return replace(self, values=(*self.values, source), logits=(*self.logits, logits))

    def mix(
        self, mix: int, running: Tensor | None, running_logit: Tensor | None
    ) -> tuple[Float[Tensor, "b t d"], Float[Tensor, "l b t"], None]:
        """Mix ``mix`` over the sources and, if there is one, the running sum; its weights."""
        values, logits = self.values, [logit[..., mix] for logit in self.logits]
        if running is not None and running_logit is not None:
            values, logits = (*values, running), [*logits, running_logit]
        weights = hold(torch.softmax(torch.stack(logits), dim=0))
        return mix_plain(values, weights), weights, None


@dataclass(frozen=True)
class FusedBank:
    """Complete sources, mixed by another package's kernel; it makes the logits itself."""

    queries: Float[Tensor, "mixes d"]
    eps: float
    kernel: Mixer
    values: tuple[Float[Tensor, "b t d"], ...] = ()
    chain: None = None

    def append(self, source: Float[Tensor, "b t d"]) -> "FusedBank":
        """With one more source."""
        return replace(self, values=(*self.values, source.to(self.queries.dtype)))

    def mix(
        self, mix: int, running: Tensor | None, running_logit: Tensor | None
    ) -> tuple[Float[Tensor, "b t d"], Float[Tensor, "l b t"], None]:
        """As `PlainBank.mix`; the kernel knows of no other logit for the running sum."""
        assert running_logit is None
        last = () if running is None else (running.to(self.queries.dtype),)
        mixed, weights = self.kernel((*self.values, *last), self.queries[mix], self.eps)
        return mixed, weights, None


@dataclass(frozen=True)
class Sources(ABC):
    """Sources in order of their making, and what every later mix makes of each.

    A mix ``k`` has the query ``w_k ⊙ gain_k``, a parameter; so one product of a source with all
    queries, when the source is made, gives its logits for every mix that may come.
    """

    first: Float[Tensor, "b t d"]
    """The embedding."""
    bank: FastBank | PlainBank | FusedBank
    run: int
    """Number of neighbouring sites whose outputs add up to one source."""
    running: Float[Tensor, "b t d"] | None = None
    """Sum of outputs that is not a source yet."""
    next_mix: int | None = None
    """Mix that belongs to the last site; None before the first, which has one source."""
    position: int = 0
    """Place of the next site."""
    plain_logits: ClassVar[bool] = True
    """Whether every logit is a query's, so that another package's kernel can make them."""

    @classmethod
    def opened(
        cls,
        embedding: Float[Tensor, "b t d"],
        queries: Float[Tensor, "mixes d"],
        eps: float,
        run: int,
        kernels: Kernels = PLAIN,
    ) -> "Sources":
        """With the embedding as the only source."""
        queries, kernel = at_least_float32(queries), kernels.mix_sources
        if kernel and cls.plain_logits and suits(embedding) and queries.shape[1] % 16 == 0:
            bank = FusedBank(queries, eps, kernel)
        else:
            bank = (FastBank if fast(embedding) else PlainBank)(queries, eps)
        return cls(embedding, bank.append(embedding), run)

    @property
    def begun(self) -> bool:
        """Whether the run of the last site is not complete."""
        return self.running is not None

    def at(self, position: int) -> "Sources":
        """Moved on to ``position``; a running sum whose run ends before it is frozen."""
        moved = replace(self, position=position)
        if not self.begun or position // self.run == (self.position - 1) // self.run:
            return moved
        return moved.frozen()

    def frozen(self) -> "Sources":
        """With the running sum as one more source."""
        assert self.running is not None
        return replace(self, bank=self.bank.append(self.running), running=None)

    def after(self, route: SourceRoute) -> "Sources":
        """Behind the mix that returned ``route``: gradients go on where that mix leaves them."""
        if isinstance(self.bank, PlainBank) or route.chain is None:
            return self
        return replace(self, bank=replace(self.bank, chain=route.chain))

    def add(self, y: Float[Tensor, "b t d"], mix: int) -> "Sources":
        """With one more branch output, of the site that mix ``mix`` belongs to."""
        total = y if self.running is None else self.running + y
        written = replace(self, running=total, next_mix=mix, position=self.position + 1)
        return written.at(written.position)

    @abstractmethod
    def mix(self) -> tuple[Float[Tensor, "b t d"], SourceRoute]:
        """What the next site reads."""

    def readout(self) -> Float[Tensor, "b t d"]:
        """What the final norm reads."""
        return self.mix()[0]

    def alone(self) -> tuple[Float[Tensor, "b t d"], SourceRoute]:
        """The embedding as it is, where it is the only source."""
        return self.first, SourceRoute(weights=torch.ones_like(self.bank.values[0][None, ..., 0]))

    def running_logit(self, mix: int) -> Float[Tensor, "b t"] | None:
        """What mix ``mix`` makes of the running sum, if there is one and the bank wants it."""
        if self.running is None or isinstance(self.bank, FusedBank):
            return None
        query = self.bank.queries[mix : mix + 1]
        return source_logits(self.running, query, self.bank.eps)[..., 0]


@final
@dataclass(frozen=True)
class SumSources(Sources):
    """A site mixes the complete sums of runs and, if its run has begun, the running sum."""

    def mix(self) -> tuple[Float[Tensor, "b t d"], SourceRoute]:
        """``Σ_i a_i v_i`` with ``a = softmax_i(w · RMSNorm(v_i))``; one source passes as it is."""
        if self.next_mix is None:
            return self.alone()
        logit = self.running_logit(self.next_mix)
        mixed, weights, chain = self.bank.mix(self.next_mix, self.running, logit)
        return mixed, SourceRoute(weights=weights, running=self.begun, chain=chain)


def source_logits(
    source: Float[Tensor, "b t d"], queries: Float[Tensor, "mixes d"], eps: float
) -> Float[Tensor, "b t mixes"]:
    """``(w_k ⊙ gain_k) · v / sqrt(mean(v²) + eps)`` for every mix ``k``, in float32 or better."""
    with full_precision(source):
        source = at_least_float32(source)
        scale = torch.rsqrt(source.square().mean(-1, keepdim=True) + eps)
        return nn.functional.linear(source, queries) * scale


def mix_plain(
    values: tuple[Float[Tensor, "b t d"], ...], weights: Float[Tensor, "l b t"]
) -> Float[Tensor, "b t d"]:
    """``Σ_i a_i v_i``."""
    total = weights[0].unsqueeze(-1) * values[0]
    for weight, value in zip(weights[1:], values[1:], strict=True):
        total = total + weight.unsqueeze(-1) * value
    return total
