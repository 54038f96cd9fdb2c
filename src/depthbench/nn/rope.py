"""Rotary position embedding."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

from depthbench.nn.kernels import plain_gradients
from depthbench.nn.precision import at_least_float32
from depthbench.nn.rope_scaling import RopeScaling


def rotary_table(
    length: int,
    head_dim: int,
    base: float,
    device: torch.device,
    dtype: torch.dtype,
    scaling: RopeScaling | None = None,
) -> tuple[Float[Tensor, "t half"], Float[Tensor, "t half"]]:
    """Cosines and sines of ``position · base^(-2i/head_dim)`` (arXiv 2104.09864).

    ``scaling`` changes the frequencies, and the length of what is turned.
    Angles are formed in float64: at position 2048 float32 would already lose three digits.
    """
    exponents = torch.arange(0, head_dim, 2, device=device, dtype=torch.float64) / head_dim
    positions = torch.arange(length, device=device, dtype=torch.float64)
    frequencies, size = base**-exponents, 1.0
    if scaling is not None:
        frequencies, size = scaling.scaled(frequencies, base), scaling.size
    angles = torch.outer(positions, frequencies)
    return (size * angles.cos()).to(dtype), (size * angles.sin()).to(dtype)


def rotate(
    x: Float[Tensor, "b t h hd"],
    cos: Float[Tensor, "*rows t half"],
    sin: Float[Tensor, "*rows t half"],
) -> Float[Tensor, "b t h hd"]:
    """Rotate the pairs ``(x_i, x_{i + hd/2})`` by their angles."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = cos.unsqueeze(-2).to(x.dtype), sin.unsqueeze(-2).to(x.dtype)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


@dataclass(frozen=True)
class PairTurns:
    """RoPE on neighbouring pairs, as complex numbers: one contiguous product for all heads."""

    order: Int[Tensor, "features"]
    """Order of the rows of queries, keys and values that brings the pairs ``(i, i + hd/2)`` of
    every query and key head side by side. Logits do not change by it, because queries and keys
    are reordered alike."""
    turn: Complex[Tensor, "t turned"]
    """``exp(i angle)`` of every pair."""
    back: Complex[Tensor, "t turned"]
    """Its conjugate."""


def pair_turns(
    cos: Float[Tensor, "t half"], sin: Float[Tensor, "t half"], heads: int, tail: int
) -> PairTurns:
    """For ``heads`` heads that are rotated, and ``tail`` features behind them that are not."""
    half = cos.shape[1]
    rows = torch.arange(2 * heads * half + tail, device=cos.device)
    turned, rest = rows.split([2 * heads * half, tail])
    pairs = turned.view(heads, 2, half).transpose(1, 2).flatten()
    turn = torch.complex(cos, sin).repeat(1, heads)
    return PairTurns(torch.cat([pairs, rest]), turn, turn.conj_physical())


def turn_pairs_plain(
    qkv: Float[Tensor, "b t features"], turn: Complex[Tensor, "t turned"]
) -> tuple[Float[Tensor, "b t rotated"], Float[Tensor, "b t rest"]]:
    """The first features as neighbouring pairs, each times its ``turn``; and the rest as it is.

    In float32 or better: rounded queries and keys would move the logits.
    """
    qkv = at_least_float32(qkv)
    rotated = 2 * turn.shape[-1]
    pairs = torch.view_as_complex(qkv[..., :rotated].unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turn).flatten(-2), qkv[..., rotated:]


class _TurnPairs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv: Tensor, turn: Tensor, back: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(qkv, turn, back)
        return turn_pairs_plain(qkv, turn)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None, None]:
        """The rotation back, and both parts' gradients in one buffer."""
        qkv, turn, back = ctx.saved_tensors
        if torch.is_grad_enabled():
            again = plain_gradients(lambda x: turn_pairs_plain(x, turn), (qkv,), (True,), grads)
            return again[0], None, None
        rotated = 2 * turn.shape[-1]
        result = torch.empty(qkv.shape, dtype=grads[0].dtype, device=qkv.device)
        into = torch.view_as_complex(result[..., :rotated].unflatten(-1, (-1, 2)))
        pairs = torch.view_as_complex(grads[0].unflatten(-1, (-1, 2)))
        torch.mul(pairs, back, out=into)
        result[..., rotated:] = grads[1]
        return result.to(qkv.dtype), None, None


def turn_pairs(
    qkv: Float[Tensor, "b t features"], turns: PairTurns
) -> tuple[Float[Tensor, "b t rotated"], Float[Tensor, "b t rest"]]:
    """`turn_pairs_plain` with its own backward."""
    return _TurnPairs.apply(qkv, turns.turn, turns.back)  # pyright: ignore[reportReturnType]
