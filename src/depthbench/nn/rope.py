"""Rotary position embedding."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


def rotary_table(
    length: int, head_dim: int, base: float, device: torch.device, dtype: torch.dtype
) -> tuple[Float[Tensor, "t half"], Float[Tensor, "t half"]]:
    """Cosines and sines of ``position · base^(-2i/head_dim)`` (arXiv 2104.09864).

    Angles are formed in float64: at position 2048 float32 would already lose three digits.
    """
    exponents = torch.arange(0, head_dim, 2, device=device, dtype=torch.float64) / head_dim
    positions = torch.arange(length, device=device, dtype=torch.float64)
    angles = torch.outer(positions, base**-exponents)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate_plain(
    x: Float[Tensor, "b t h hd"], cos: Float[Tensor, "t half"], sin: Float[Tensor, "t half"]
) -> Float[Tensor, "b t h hd"]:
    """Rotate the pairs ``(x_i, x_{i + hd/2})`` by their angles: the plain version of `rotate`."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = cos[:, None].to(x.dtype), sin[:, None].to(x.dtype)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class _Rotate(torch.autograd.Function):
    """`rotate_plain` that saves the angles only: its gradient is the rotation back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        half = x.shape[-1] // 2
        first, second = x[..., :half], x[..., half:]
        cos, sin = cos[:, None].to(x.dtype), sin[:, None].to(x.dtype)
        out = torch.empty_like(x)
        torch.mul(first, cos, out=out[..., :half]).addcmul_(second, sin, value=-1)
        torch.mul(second, cos, out=out[..., half:]).addcmul_(first, sin)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _Rotate.apply(grads[0], cos, -sin), None, None  # pyright: ignore[reportReturnType]


def rotate(
    x: Float[Tensor, "b t h hd"], cos: Float[Tensor, "t half"], sin: Float[Tensor, "t half"]
) -> Float[Tensor, "b t h hd"]:
    """Rotate by position, without saving ``x`` for the backward pass."""
    if torch.compiler.is_compiling():
        return rotate_plain(x, cos, sin)
    return _Rotate.apply(x, cos, sin)  # pyright: ignore[reportReturnType]
