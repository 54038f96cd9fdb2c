"""RMS norm as one function that keeps no intermediate but one scale a row."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from depthbench.nn.kernels import holding, no_autocast, plain_gradients


def rms_norm_plain(
    x: Float[Tensor, "*axes d"], gain: Float[Tensor, "d"], eps: float
) -> Float[Tensor, "*axes d"]:
    """``x / sqrt(mean(x²) + eps) ⊙ gain`` in the dtype of ``gain``."""
    same = x.to(gain.dtype)
    if holding():
        return same * rms_scale(same.detach(), eps) * gain
    return torch.nn.functional.rms_norm(same, gain.shape, gain, eps)


def rms_scale(x: Float[Tensor, "*axes d"], eps: float) -> Float[Tensor, "*axes 1"]:
    """``1 / sqrt(mean(x²) + eps)``."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_()


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        same = x.to(gain.dtype)
        scale = rms_scale(same, eps)
        ctx.save_for_backward(x, gain, scale)
        ctx.eps = eps
        return (same * scale).mul_(gain)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        """``dx = s (g ⊙ dy) - x s³ mean(g ⊙ dy ⊙ x)``, ``dg = Σ dy ⊙ x s``.

        Layer norm's backward kernel with the mean set to 0 gives this less ``s mean(g ⊙ dy)``.
        """
        x, gain, scale = ctx.saved_tensors
        if torch.is_grad_enabled():
            dx, dgain = plain_gradients(
                lambda x, gain: rms_norm_plain(x, gain, ctx.eps),
                (x, gain),
                ctx.needs_input_grad[:2],
                grads,
            )
            return dx, dgain, None
        width = x.shape[-1]
        grad = grads[0].contiguous()
        dx, dgain, _ = torch.ops.aten.native_layer_norm_backward(
            grad,
            x.to(gain.dtype).contiguous(),
            gain.shape,
            torch.zeros_like(scale),
            scale,
            gain,
            None,
            [True, ctx.needs_input_grad[1], False],
        )
        with no_autocast(x):
            missing = (grad.view(-1, width) @ gain).view(scale.shape)
        dx.addcmul_(missing, scale, value=1 / width)
        return dx.to(x.dtype), dgain, None


def rms_norm_fast(
    x: Float[Tensor, "*axes d"], gain: Float[Tensor, "d"], eps: float
) -> Float[Tensor, "*axes d"]:
    """`rms_norm_plain` with its own backward."""
    if not torch.is_grad_enabled():
        same = x.to(gain.dtype)
        return (same * rms_scale(same, eps)).mul_(gain)
    return _RMSNorm.apply(x, gain, eps)  # pyright: ignore[reportReturnType]
