"""Softmax mixes over a list of sources: no stack, and each source's gradient in place.

Plain automatic differentiation forms the gradient of every source anew at every mix and adds them
up. Here a chain runs through all appends and mixes: its tensors hold nothing (one number,
expanded) but stand for the stacked sources and logits, so their gradients are two buffers that go
backwards along the chain. Each mix adds its part in place; each append takes its slice out.
The buffers travel as ordinary gradients, so several backward passes, several forwards at once and
states that are continued twice need no care.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from depthbench.nn.fast_norm import rms_scale
from depthbench.nn.kernels import first_order_only, no_autocast

_CHUNK = 2**17
"""Entries of a source that are worked on at a time, to stay in the cache."""

Chain = tuple[Tensor, Tensor]
"""Stand-ins of the stacked sources ``(l, b, t, d)`` and of their logits ``(l, mixes, b, t)``."""


def _stand_in(like: Tensor, *shape: int) -> Tensor:
    return like.new_empty(()).expand(shape)


class _Append(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, value: Tensor, queries: Tensor, eps: float, *before: Tensor
    ) -> tuple[Tensor, ...]:
        count = before[0].shape[0] if before else 0
        logits, scale = _logits_of(value, queries, eps)
        ctx.save_for_backward(value, queries, scale, logits)
        ctx.count = count
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(logits)
        return (
            logits,
            _stand_in(value, count + 1, *value.shape),
            _stand_in(value, count + 1, *logits.shape),
        )

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        first_order_only("depth sources")
        _, of_values, of_logits = grads
        if of_values is None or of_logits is None:
            return (None, None, None, None, None)[: 5 if ctx.count else 3]
        value, queries, scale, logits = ctx.saved_tensors
        flat = value.flatten(0, 1)
        scaled = of_logits[ctx.count].flatten(1) * scale
        along = (scaled * logits.flatten(1)).sum(0).mul_(scale).div_(-flat.shape[1])
        with no_autocast(value):
            dvalue = torch.addmm(of_values[ctx.count].flatten(0, 1), scaled.t(), queries)
            dqueries = scaled @ flat
        dvalue.addcmul_(flat, along.unsqueeze(1))
        own = (dvalue.view(value.shape), dqueries, None)
        return (*own, of_values[: ctx.count], of_logits[: ctx.count]) if ctx.count else own


class _Mix(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        of_values: Tensor,
        of_logits: Tensor,
        running: Tensor | None,
        running_logit: Tensor | None,
        mix: int,
        *bank: Tensor,
    ) -> tuple[Tensor, ...]:
        count = of_values.shape[0]
        values = [*bank[:count]] if running is None else [*bank[:count], running]
        rows = [logits[mix] for logits in bank[count:]]
        mixed, weights = _mixed(values, rows if running_logit is None else [*rows, running_logit])
        ctx.save_for_backward(weights, *values)
        ctx.count, ctx.mix, ctx.mixes = count, mix, of_logits.shape[1]
        ctx.set_materialize_grads(False)
        return (
            mixed,
            weights,
            _stand_in(of_values, *of_values.shape),
            _stand_in(of_logits, *of_logits.shape),
        )

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        first_order_only("depth sources")
        dx, dweights, of_values, of_logits = grads
        weights, *values = ctx.saved_tensors
        nothing = (None,) * (1 + 2 * ctx.count)
        if dx is None and dweights is None:
            return (of_values, of_logits, None, None, *nothing)
        dx = torch.zeros_like(values[0]) if dx is None else dx.contiguous()
        if of_values is None:
            of_values = dx.new_zeros(ctx.count, *dx.shape)
        if of_logits is None:
            of_logits = dx.new_zeros(ctx.count, ctx.mixes, *dx.shape[:2])
        drunning = torch.zeros_like(dx) if len(values) > ctx.count else None
        into = [*of_values] if drunning is None else [*of_values, drunning]
        dots = _spread([v.flatten(0, 1) for v in values], weights, dx, into)
        if dweights is not None:
            dots += dweights
        dlogits = weights * (dots - (weights * dots).sum(0))
        of_logits[:, ctx.mix] += dlogits[: ctx.count]
        dlast = None if drunning is None else dlogits[ctx.count]
        return (of_values, of_logits, drunning, dlast, *nothing)


def _logits_of(
    value: Float[Tensor, "b t d"], queries: Float[Tensor, "mixes d"], eps: float
) -> tuple[Float[Tensor, "mixes b t"], Float[Tensor, "n"]]:
    """Products of every query with the normed source, and the scale of that norm."""
    flat = value.flatten(0, 1)
    scale = rms_scale(flat, eps)[:, 0]
    with no_autocast(value):
        return (queries @ flat.t()).mul_(scale).unflatten(1, value.shape[:2]), scale


def _mixed(
    values: list[Float[Tensor, "b t d"]], logits: list[Float[Tensor, "b t"]]
) -> tuple[Float[Tensor, "b t d"], Float[Tensor, "l b t"]]:
    """The mix, and its weights."""
    weights = torch.softmax(torch.stack(logits), dim=0)
    mixed = _weighted_sum([v.flatten(0, 1) for v in values], weights.flatten(1))
    return mixed.view(values[0].shape), weights


def _weighted_sum(
    values: list[Float[Tensor, "n d"]], weights: Float[Tensor, "l n"]
) -> Float[Tensor, "n d"]:
    """``Σ_i a_i v_i``, a stretch of tokens at a time."""
    total = torch.empty_like(values[0])
    tokens, width = total.shape
    step = max(1, _CHUNK // width)
    columns = weights.unsqueeze(-1)
    for start in range(0, tokens, step):
        part = slice(start, start + step)
        into = total[part]
        torch.mul(values[0][part], columns[0, part], out=into)
        for value, column in zip(values[1:], columns[1:], strict=True):
            into.addcmul_(value[part], column[part])
    return total


def _spread(
    values: list[Float[Tensor, "n d"]],
    weights: Float[Tensor, "l b t"],
    dx: Float[Tensor, "b t d"],
    into: list[Float[Tensor, "b t d"]],
) -> Float[Tensor, "l b t"]:
    """Add ``a_i dx`` to the gradient of each source; return ``v_i · dx``."""
    grad, columns = dx.flatten(0, 1), weights.flatten(1).unsqueeze(-1)
    dots = torch.empty_like(weights)
    rows, slots = dots.flatten(1), [slot.flatten(0, 1) for slot in into]
    step = max(1, _CHUNK // grad.shape[1])
    for start in range(0, len(grad), step):
        part = slice(start, start + step)
        here = grad[part]
        product = torch.empty_like(here)
        for row, value, column, slot in zip(rows, values, columns, slots, strict=True):
            torch.sum(torch.mul(value[part], here, out=product), dim=-1, out=row[part])
            slot[part].addcmul_(here, column[part])
    return dots


@dataclass(frozen=True)
class FastBank:
    """Sources and their logits for every mix, cut from the graph, and the chain that stands in."""

    queries: Float[Tensor, "mixes d"]
    eps: float
    values: tuple[Float[Tensor, "b t d"], ...] = ()
    logits: tuple[Float[Tensor, "mixes b t"], ...] = ()
    chain: Chain | None = None
    """None where no gradients are formed."""

    def append(self, source: Float[Tensor, "b t d"]) -> "FastBank":
        """With one more source."""
        source = source.to(self.queries.dtype)
        if not torch.is_grad_enabled():
            logits, _ = _logits_of(source, self.queries, self.eps)
            values = (*self.values, source)
            return replace(self, values=values, logits=(*self.logits, logits), chain=None)
        logits, *chain = _Append.apply(source, self.queries, self.eps, *(self.chain or ()))  # pyright: ignore[reportGeneralTypeIssues]
        return replace(
            self,
            values=(*self.values, source.detach()),
            logits=(*self.logits, logits),
            chain=(chain[0], chain[1]),
        )

    def mix(
        self, mix: int, running: Tensor | None, running_logit: Tensor | None
    ) -> tuple[Float[Tensor, "b t d"], Float[Tensor, "l b t"], Chain | None]:
        """Mix ``mix``, its weights, and the chain that the next append or mix continues.

        Going on from this bank's own chain instead is right as well, but forms gradients twice.
        """
        running = None if running is None else running.to(self.queries.dtype)
        if self.chain is None:
            last = [] if running is None or running_logit is None else [running]
            rows = [logits[mix] for logits in self.logits]
            if running_logit is not None:
                rows.append(running_logit)
            return *_mixed([*self.values, *last], rows), None
        mixed, weights, *chain = _Mix.apply(  # pyright: ignore[reportGeneralTypeIssues]
            *self.chain, running, running_logit, mix, *self.values, *self.logits
        )
        return mixed, weights, (chain[0], chain[1])
