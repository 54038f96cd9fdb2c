"""The gated product of SwiGLU as one function whose gradient fills one buffer."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from depthbench.nn.kernels import plain_gradients


def gate_plain(gate_up: Float[Tensor, "*axes two_f"]) -> Float[Tensor, "*axes f"]:
    """``silu(gate) ⊙ up`` of the concatenation ``[gate, up]``."""
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.silu(gate) * up


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        opened = functional.silu(gate)
        ctx.save_for_backward(gate_up, opened)
        return opened * up

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor | None:
        gate_up, opened = ctx.saved_tensors
        if torch.is_grad_enabled():
            return plain_gradients(gate_plain, (gate_up,), (True,), grads)[0]
        gate, up = gate_up.chunk(2, dim=-1)
        result = torch.empty_like(gate_up)
        into_gate, into_up = result.chunk(2, dim=-1)
        torch.mul(grads[0], opened, out=into_up)
        torch.ops.aten.silu_backward.grad_input(grads[0] * up, gate, grad_input=into_gate)
        return result


def gate_fast(gate_up: Float[Tensor, "*axes two_f"]) -> Float[Tensor, "*axes f"]:
    """`gate_plain` with its own backward."""
    if not torch.is_grad_enabled():
        return gate_plain(gate_up)
    return _Gate.apply(gate_up)  # pyright: ignore[reportReturnType]
