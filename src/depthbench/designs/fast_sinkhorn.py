"""Sinkhorn with the tokens on the last axis, as one function that keeps only its sums."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from depthbench.designs.sinkhorn import sinkhorn_plain
from depthbench.nn.kernels import plain_gradients
from depthbench.nn.precision import at_least_float32

_ROWS, _COLUMNS = 1, 0
"""The axis that is summed, of matrices laid out as ``(i, j, token)``."""


class _Sinkhorn(torch.autograd.Function):
    """The first round in logarithms, the others as plain divisions.

    After the first round every sum that is divided by lies in ``[1/m, m]``, so nothing can
    overflow or vanish any more, and an entry too small for the dtype then could not have grown by
    more than ``m`` in each half round.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, rounds: int) -> Tensor:
        ctx.rounds, ctx.dtype = rounds, logits.dtype
        m = logits.shape[-1]
        log = at_least_float32(logits).reshape(-1, m, m).permute(1, 2, 0).contiguous()
        log = torch.log_softmax(log, dim=_ROWS)
        first = log.exp()
        matrix = torch.softmax(log, dim=_COLUMNS)
        sums = log.new_empty(rounds - 1, 2, m, log.shape[-1])
        for row, column in sums:
            torch.sum(matrix, dim=_ROWS, out=row)
            matrix *= row.reciprocal().unsqueeze(_ROWS)
            torch.sum(matrix, dim=_COLUMNS, out=column)
            matrix *= column.reciprocal().unsqueeze(_COLUMNS)
        ctx.save_for_backward(logits, first, matrix, sums)
        return matrix.permute(2, 0, 1).contiguous().view(logits.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None]:
        """In gradients of the logarithms each half round is ``γ ← γ - P Σ γ``."""
        logits, first, matrix, sums = ctx.saved_tensors
        if torch.is_grad_enabled():
            again = plain_gradients(
                lambda x: sinkhorn_plain(x, ctx.rounds), (logits,), (True,), grads
            )
            return again[0], None
        matrix = matrix.clone()
        grad = grads[0].reshape(-1, *matrix.shape[:2]).permute(1, 2, 0) * matrix
        for row, column in reversed(sums.unbind()):
            grad.addcmul_(matrix, grad.sum(_COLUMNS, keepdim=True), value=-1)
            matrix *= column.unsqueeze(_COLUMNS)
            grad.addcmul_(matrix, grad.sum(_ROWS, keepdim=True), value=-1)
            matrix *= row.unsqueeze(_ROWS)
        grad.addcmul_(matrix, grad.sum(_COLUMNS, keepdim=True), value=-1)
        grad.addcmul_(first, grad.sum(_ROWS, keepdim=True), value=-1)
        return grad.permute(2, 0, 1).contiguous().view(logits.shape).to(ctx.dtype), None


def sinkhorn_fast(logits: Float[Tensor, "*bt s s"], rounds: int) -> Float[Tensor, "*bt s s"]:
    """`sinkhorn_plain` with its own backward."""
    return _Sinkhorn.apply(logits, rounds)  # pyright: ignore[reportReturnType]
