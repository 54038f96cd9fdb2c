"""Cross entropy of a head's logits that are formed for some of the tokens at a time."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional

from depthbench.nn.kernels import first_order_only, no_autocast, plain_only
from depthbench.nn.precision import at_least_float32

LARGEST = 2**29
"""Bytes that the float32 logits of a batch may take before they are formed in parts."""

Finish = Callable[[Tensor, Tensor, float], Tensor]
"""``finish(x, W, factor)`` makes of ``x`` (b, t, d) what is wanted of logits ``factor · W x``."""


def chunk_of(tokens: int, vocab: int, asked: int | None) -> int | None:
    """Tokens whose logits are formed at a time: ``asked``, or all that fit in `LARGEST`.

    None where that is all of them.
    """
    chunk = asked or max(1, LARGEST // (4 * vocab))
    return chunk if chunk < tokens else None


def loss_in_chunks(targets: Int[Tensor, "b t"], vocab: int, chunk: int) -> Finish:
    """Makes the mean cross entropy over the first ``vocab`` rows of ``W``.

    Its gradients are made together with it, chunk by chunk, so no product is done twice.
    """

    def finish(x: Tensor, weight: Tensor, factor: float) -> Tensor:
        mean = _mean_loss_plain if plain_only() else _MeanLoss.apply
        rows, own = x.flatten(0, 1), weight[:vocab]
        return mean(rows, own, targets.flatten(), factor, chunk)  # pyright: ignore[reportReturnType]

    return finish


def losses_in_chunks(targets: Int[Tensor, "b t"], vocab: int, chunk: int) -> Finish:
    """Makes the cross entropy (b, t) of every token, without gradients."""

    @torch.no_grad()
    def finish(x: Tensor, weight: Tensor, factor: float) -> Tensor:
        rows, flat = x.flatten(0, 1), targets.flatten()
        parts = []
        for part in _chunks(len(rows), chunk):
            logits = factor * functional.linear(rows[part], weight[:vocab])
            wide = at_least_float32(logits)
            parts.append(functional.cross_entropy(wide, flat[part], reduction="none"))
        return torch.cat(parts).view(targets.shape)

    return finish


def _mean_loss_plain(
    x: Tensor, weight: Tensor, targets: Tensor, factor: float, chunk: int
) -> Tensor:
    logits = (factor * functional.linear(x[part], weight) for part in _chunks(len(x), chunk))
    parts = zip(logits, targets.split(chunk), strict=True)
    losses = [
        functional.cross_entropy(at_least_float32(one), own, reduction="sum") for one, own in parts
    ]
    return torch.stack(losses).sum() / len(x)


class _MeanLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, targets: Tensor, factor: float, chunk: int
    ) -> Tensor:
        """``dlogits = (softmax(logits) - one_hot) / n``, rounded as the logits are."""
        low = _dtype_of_products(weight)
        rows, matrix = x.to(low), weight.to(low)
        dx, dweight = torch.empty_like(x), torch.zeros_like(weight)
        total = at_least_float32(x.new_zeros(()))
        with no_autocast(x):
            for part in _chunks(len(rows), chunk):
                index = targets[part, None]
                logits = at_least_float32(factor * functional.linear(rows[part], matrix))
                largest = logits.logsumexp(1, keepdim=True)
                total += (largest - logits.gather(1, index)).sum()
                slope = logits.sub_(largest).exp_()
                slope.scatter_add_(1, index, slope.new_full(index.shape, -1.0))
                slope = slope.mul_(factor / len(rows)).to(low)
                dx[part] = slope @ matrix
                dweight += slope.t() @ rows[part]
        ctx.save_for_backward(dx, dweight)
        return total / len(rows)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        first_order_only("a loss in chunks")
        dx, dweight = ctx.saved_tensors
        return grads[0] * dx, grads[0] * dweight, None, None, None


def _chunks(count: int, chunk: int) -> Iterator[slice]:
    for start in range(0, count, chunk):
        yield slice(start, start + chunk)


def _dtype_of_products(weight: Tensor) -> torch.dtype:
    kind = weight.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
