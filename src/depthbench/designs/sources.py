"""A bank of depth sources and its softmax mixes: what AttnRes designs share."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from depthbench.designs.base import Route
from depthbench.nn.precision import at_least_float32, full_precision


@dataclass(frozen=True)
class SourceRoute(Route):
    """Softmax weights over the sources that a site mixed, oldest first."""

    weights: Float[Tensor, "l b t"] | None = None


@dataclass(frozen=True)
class Sources:
    """Sources in order of their making, and what every later mix makes of each.

    A mix ``k`` has the query ``w_k ⊙ gain_k``, a parameter; so one product of a source with all
    queries, when the source is made, gives its logits for every mix that may come.
    """

    queries: Float[Tensor, "mixes d"]
    eps: float
    run: int
    """Number of neighbouring sites whose outputs add up to one source."""
    frozen: tuple[Float[Tensor, "b t d"], ...] = ()
    logits: tuple[Float[Tensor, "b t mixes"], ...] = ()
    running: Float[Tensor, "b t d"] | None = None
    """Sum of the outputs of a run that is not complete."""
    next_mix: int | None = None
    """Mix that reads next; None before the first site, which has one source."""
    position: int = 0
    """Place of the next site."""

    def freeze(self, source: Float[Tensor, "b t d"]) -> "Sources":
        """With one more source and no running sum."""
        logits = source_logits(source, self.queries, self.eps)
        return replace(
            self, frozen=(*self.frozen, source), logits=(*self.logits, logits), running=None
        )

    def at(self, position: int) -> "Sources":
        """Moved on to ``position``; a running sum whose run ends before it is frozen."""
        moved = replace(self, position=position)
        if self.running is None or position // self.run == (self.position - 1) // self.run:
            return moved
        return moved.freeze(self.running)

    def add(self, y: Float[Tensor, "b t d"], mix: int) -> "Sources":
        """With one more branch output; ``mix`` reads next."""
        total = y if self.running is None else self.running + y
        written = replace(self, running=total, next_mix=mix, position=self.position + 1)
        return written.at(written.position)

    def mix(self) -> tuple[Float[Tensor, "b t d"], SourceRoute]:
        """``Σ_i a_i v_i`` with ``a = softmax_i(w · RMSNorm(v_i))``; one source passes as it is."""
        values = self.frozen if self.running is None else (*self.frozen, self.running)
        if self.next_mix is None:
            return values[0], SourceRoute(weights=torch.ones_like(values[0][None, ..., 0]))
        logits = [logit[..., self.next_mix] for logit in self.logits]
        if self.running is not None:
            query = self.queries[self.next_mix : self.next_mix + 1]
            logits.append(source_logits(self.running, query, self.eps)[..., 0])
        weights = torch.softmax(torch.stack(logits), dim=0)
        return mix_plain(values, weights), SourceRoute(weights=weights)


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
