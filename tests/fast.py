"""How a version with its own backward is held against the plain one."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Outputs = Tensor | tuple[Tensor, ...]


def outputs_and_gradients(
    function: Callable[..., Outputs], inputs: Sequence[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs, and the gradients of their sum weighted by fixed random numbers."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    outputs = function(*leaves)
    outputs = (outputs,) if isinstance(outputs, Tensor) else outputs
    generator = torch.Generator().manual_seed(7)
    weights = [
        torch.randn(y.shape, generator=generator, dtype=torch.float64).to(y.dtype) for y in outputs
    ]
    gradients = torch.autograd.grad(outputs, leaves, weights)
    return list(outputs), list(gradients)


def assert_same(
    fast: Callable[..., Outputs],
    plain: Callable[..., Outputs],
    inputs: Sequence[Tensor],
    tolerance: float,
) -> None:
    """Outputs and every gradient agree to ``tolerance``, relative to the largest entry."""
    ours, ours_grads = outputs_and_gradients(fast, inputs)
    theirs, theirs_grads = outputs_and_gradients(plain, inputs)
    for got, expected in zip(ours + ours_grads, theirs + theirs_grads, strict=True):
        assert got.dtype == expected.dtype
        largest = expected.abs().max().item()
        assert largest > 0
        torch.testing.assert_close(got, expected, rtol=0, atol=tolerance * largest)


def second_gradients(function: Callable[..., Outputs], inputs: Sequence[Tensor]) -> list[Tensor]:
    """Gradients of the squared gradients' sum."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    outputs = function(*leaves)
    outputs = (outputs,) if isinstance(outputs, Tensor) else outputs
    total = torch.stack([y.pow(3).sum() for y in outputs]).sum()
    first = torch.autograd.grad(total, leaves, create_graph=True)
    return list(torch.autograd.grad(torch.stack([g.square().sum() for g in first]).sum(), leaves))
