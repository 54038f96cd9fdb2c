"""Reading, mixing and projecting streams with hand-written backward.

The small matrices of all tokens go through batched products, the norm is folded into the skinny
projection, and no normed or weighted copy of the streams is formed or kept.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from depthbench.designs.streams import (
    mix_and_write_plain,
    normed_projection_plain,
    read_streams_plain,
)
from depthbench.nn.fast_norm import rms_scale
from depthbench.nn.fused import PLAIN, Kernels, power_of_two, suits
from depthbench.nn.kernels import fast, no_autocast, plain_gradients
from depthbench.nn.precision import at_least_float32

_WIDE = 128
"""Width from which a product with one row of coefficients beats a loop over the streams."""


def _weighted_sum(weights: Float[Tensor, "n s"], streams: Float[Tensor, "n s d"]) -> Tensor:
    """``Σ_s w_s H_s``."""
    if streams.shape[2] >= _WIDE:
        return torch.bmm(weights[:, None], streams)[:, 0]
    columns = weights.unsqueeze(-1)
    total = streams[:, 0] * columns[:, 0]
    for stream in range(1, streams.shape[1]):
        total.addcmul_(streams[:, stream], columns[:, stream])
    return total


def _dots(streams: Float[Tensor, "n s d"], vector: Float[Tensor, "n d"]) -> Tensor:
    """``H_s · v``."""
    return torch.bmm(streams, vector.unsqueeze(-1))[..., 0]


class _Read(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, streams: Tensor, read: Tensor) -> Tensor:
        ctx.save_for_backward(streams, read)
        with no_autocast(streams):
            same = streams.to(read.dtype)
            return _weighted_sum(read.flatten(0, 1), same.flatten(0, 1)).view_as(streams[:, :, 0])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        streams, read = ctx.saved_tensors
        if torch.is_grad_enabled():
            return tuple(
                plain_gradients(read_streams_plain, (streams, read), ctx.needs_input_grad, grads)
            )
        with no_autocast(streams):
            same = streams.to(read.dtype).flatten(0, 1)
            dread = _dots(same, grads[0].flatten(0, 1)).view_as(read)
        return (read.unsqueeze(-1) * grads[0].unsqueeze(2)).to(streams.dtype), dread


class _Write(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, streams: Tensor, mix: Tensor, y: Tensor, write: Tensor) -> Tensor:
        ctx.save_for_backward(streams, mix, y, write)
        with no_autocast(streams):
            old = streams.to(mix.dtype).flatten(0, 1)
            new = torch.bmm(mix.contiguous().flatten(0, 1).transpose(1, 2), old).view(streams.shape)
        new.addcmul_(write.unsqueeze(-1), y.to(mix.dtype).unsqueeze(2))
        return new.to(streams.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """``dH = A dH'``, ``dA = H dH'ᵀ``, ``dy = Σ_j β_j dH'_j``, ``dβ_j = y · dH'_j``."""
        streams, mix, y, write = ctx.saved_tensors
        if torch.is_grad_enabled():
            inputs = (streams, mix, y, write)
            return tuple(plain_gradients(mix_and_write_plain, inputs, ctx.needs_input_grad, grads))
        grad = grads[0].to(mix.dtype).flatten(0, 1)
        with no_autocast(streams):
            old = streams.to(mix.dtype).flatten(0, 1)
            rows = torch.cat([mix, write.unsqueeze(2)], dim=2).flatten(0, 1)
            back = torch.bmm(rows, grad).unflatten(0, streams.shape[:2])
            dmix = torch.bmm(old, grad.transpose(1, 2)).view_as(mix)
            dwrite = _dots(grad, y.to(mix.dtype).flatten(0, 1)).view_as(write)
        dstreams, dy = back.split([streams.shape[2], 1], dim=2)
        return dstreams.to(streams.dtype), dmix, dy[:, :, 0].to(y.dtype), dwrite


class _NormedProjection(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        with no_autocast(x):
            same = at_least_float32(x)
            scale = rms_scale(same, eps)
            product = torch.nn.functional.linear(same, weight).mul_(scale)
        ctx.save_for_backward(x, weight, scale, product)
        ctx.eps = eps
        return product

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        """``dx = s W dp - x s² (dp · p) / d``."""
        x, weight, scale, product = ctx.saved_tensors
        if torch.is_grad_enabled():
            dx, dweight = plain_gradients(
                lambda x, weight: normed_projection_plain(x, weight, ctx.eps),
                (x, weight),
                ctx.needs_input_grad[:2],
                grads,
            )
            return dx, dweight, None
        same = at_least_float32(x)
        scaled = grads[0] * scale
        along = (scaled * product).sum(-1, keepdim=True).mul_(scale).div_(-x.shape[-1])
        with no_autocast(x):
            dx = scaled @ weight
            dweight = scaled.flatten(0, -2).t() @ same.flatten(0, -2)
        return dx.addcmul_(same, along).to(x.dtype), dweight, None


def read_streams_fast(
    streams: Float[Tensor, "b t s d"], read: Float[Tensor, "b t s"]
) -> Float[Tensor, "b t d"]:
    """`read_streams_plain` with its own backward."""
    return _Read.apply(streams, read)  # pyright: ignore[reportReturnType]


def mix_and_write_fast(
    streams: Float[Tensor, "b t s d"],
    mix: Float[Tensor, "b t s s"],
    y: Float[Tensor, "b t d"],
    write: Float[Tensor, "b t s"],
) -> Float[Tensor, "b t s d"]:
    """`mix_and_write_plain` with its own backward."""
    return _Write.apply(streams, mix, y, write)  # pyright: ignore[reportReturnType]


def normed_projection_fast(
    x: Float[Tensor, "*axes d"], weight: Float[Tensor, "k d"], eps: float
) -> Float[Tensor, "*axes k"]:
    """`normed_projection_plain` with its own backward."""
    return _NormedProjection.apply(x, at_least_float32(weight), eps)  # pyright: ignore[reportReturnType]


def read_streams(
    streams: Float[Tensor, "b t s d"], read: Float[Tensor, "*bt s"], kernels: Kernels = PLAIN
) -> Float[Tensor, "b t d"]:
    """``Σ_s α_s H_s``, by the version that suits ``streams``."""
    if kernels.read_streams is not None and suits(streams):
        return kernels.read_streams(streams, read)
    if not fast(streams):
        return read_streams_plain(streams, read)
    return read_streams_fast(streams, read.expand(streams.shape[:3]))


def mix_and_write(
    streams: Float[Tensor, "b t s d"],
    mix: Float[Tensor, "*bt s s"] | None,
    y: Float[Tensor, "b t d"],
    write: Float[Tensor, "*bt s"],
    kernels: Kernels = PLAIN,
) -> Float[Tensor, "b t s d"]:
    """`mix_and_write_plain`, by the version that suits ``streams``."""
    fused = kernels.mix_and_write
    if fused and mix is not None and suits(streams) and power_of_two(streams.shape[2]):
        return fused(streams, mix, y, write)
    if mix is None or not fast(streams):
        return mix_and_write_plain(streams, mix, y, write)
    each = streams.shape[:3]
    return mix_and_write_fast(streams, mix.expand(*each, each[2]), y, write.expand(each))


def normed_projection(
    x: Float[Tensor, "*axes d"], weight: Float[Tensor, "k d"], eps: float
) -> Float[Tensor, "*axes k"]:
    """``W x / sqrt(mean(x²) + eps)``, by the version that suits ``x``."""
    return (normed_projection_fast if fast(x) else normed_projection_plain)(x, weight, eps)
