"""Sinkhorn projection: against plain row and column division, and its known errors."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from depthbench.designs.fast_sinkhorn import sinkhorn_fast
from depthbench.designs.sinkhorn import doubly_stochastic_error, sinkhorn_plain

Sinkhorn = Callable[[Tensor, int], Tensor]

both = pytest.mark.parametrize("sinkhorn", [sinkhorn_plain, sinkhorn_fast])


def normal_matrices(spread: float, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return (spread * torch.randn(10000, 4, 4, generator=generator, dtype=torch.float64)).to(dtype)


@both
@pytest.mark.parametrize("rounds", [1, 2, 20])
def test_rows_first_then_columns(sinkhorn: Sinkhorn, rounds: int) -> None:
    logits = normal_matrices(2.0)[:50]
    expected = torch.exp(logits)
    for _ in range(rounds):
        expected = expected / expected.sum(2, keepdim=True)
        expected = expected / expected.sum(1, keepdim=True)
    torch.testing.assert_close(sinkhorn(logits, rounds), expected, rtol=1e-12, atol=0)


@both
def test_one_round_by_hand(sinkhorn: Sinkhorn) -> None:
    logits = torch.tensor([[1.0, 1.0], [1.0, 3.0]], dtype=torch.float64).log()
    # rows: [1/2, 1/2], [1/4, 3/4]; columns sum to 3/4 and 5/4
    expected = torch.tensor([[2 / 3, 2 / 5], [1 / 3, 3 / 5]], dtype=torch.float64)
    torch.testing.assert_close(sinkhorn(logits, 1), expected, rtol=1e-14, atol=0)


@both
@pytest.mark.parametrize(
    ("spread", "least", "most"), [(1.0, 1e-4, 2e-3), (4.0, 0.05, 0.1), (16.0, 0.9, 1.0)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_row_error_after_twenty_rounds_grows_with_the_spread(
    sinkhorn: Sinkhorn, spread: float, least: float, most: float, dtype: torch.dtype
) -> None:
    """Of the worst of ten thousand normal 4 × 4 matrices; its tail is what the bands allow for."""
    rows, columns = doubly_stochastic_error(sinkhorn(normal_matrices(spread, dtype), 20))
    assert least < rows < most
    assert columns < 1e-6


@both
@pytest.mark.parametrize("spread", [100.0, 1e4, 1e30])
def test_huge_logits_stay_finite(sinkhorn: Sinkhorn, spread: float) -> None:
    logits = normal_matrices(spread, torch.float32).requires_grad_()
    matrix = sinkhorn(logits, 20)
    matrix.square().sum().backward()
    assert matrix.isfinite().all()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


@both
def test_bfloat16_logits_are_projected_in_float32(sinkhorn: Sinkhorn) -> None:
    matrix = sinkhorn(normal_matrices(1.0).to(torch.bfloat16), 20)
    assert matrix.dtype == torch.float32
    assert doubly_stochastic_error(matrix)[1] < 1e-6


def test_error_of_rows_and_columns() -> None:
    matrix = torch.tensor([[0.5, 0.25], [0.5, 0.5]], dtype=torch.float64)
    assert doubly_stochastic_error(matrix) == (0.25, 0.25)
    assert doubly_stochastic_error(torch.eye(3)) == (0.0, 0.0)
    matrix = torch.tensor([[0.5, 0.5], [0.75, 0.25]], dtype=torch.float64)
    assert doubly_stochastic_error(matrix) == (0.0, 0.25)


@pytest.mark.parametrize("spread", [1.0, 4.0, 16.0, 100.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_fast_version_and_its_gradient_are_those_of_the_plain_one(
    spread: float, dtype: torch.dtype
) -> None:
    digits = torch.finfo(dtype).eps
    results = []
    for sinkhorn in (sinkhorn_plain, sinkhorn_fast):
        logits = normal_matrices(spread, dtype).view(100, 100, 4, 4).requires_grad_()
        matrix = sinkhorn(logits, 20)
        (matrix * torch.linspace(-1, 1, 16, dtype=dtype).view(4, 4)).sum().backward()
        results.append((matrix.detach(), logits.grad))
    (matrix, gradient), (fast_matrix, fast_gradient) = results
    # in float32 the plain version rounds logarithms of up to 3 spreads
    assert (fast_matrix - matrix).abs().max() < 100 * spread * digits
    assert (fast_gradient - gradient).abs().max() < 100 * spread * digits
