"""Fast reading, writing, projecting and Sinkhorn of streams against the plain versions."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from depthbench.designs.fast_sinkhorn import sinkhorn_fast
from depthbench.designs.fast_streams import (
    mix_and_write_fast,
    normed_projection_fast,
    read_streams_fast,
)
from depthbench.designs.sinkhorn import doubly_stochastic_error, sinkhorn_plain
from depthbench.designs.streams import (
    mix_and_write_plain,
    normed_projection_plain,
    read_streams_plain,
)
from tests.fast import assert_same, second_gradients

Case = tuple[Callable[..., Tensor], Callable[..., Tensor], list[Tensor]]


def numbers(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(len(shape) + shape[-1])
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def case(name: str) -> Case:
    streams = numbers(2, 3, 4, 10)
    if name == "read":
        return read_streams_fast, read_streams_plain, [streams, numbers(2, 3, 4)]
    if name == "wide read":
        wide = [numbers(2, 3, 4, 130), numbers(2, 3, 4)]
        return read_streams_fast, read_streams_plain, wide
    if name == "write":
        inputs = [streams, numbers(2, 3, 4, 4), numbers(2, 3, 10), numbers(2, 3, 4)]
        return mix_and_write_fast, mix_and_write_plain, inputs
    if name == "projection":
        return (
            lambda x, w: normed_projection_fast(x, w, 1e-2),
            lambda x, w: normed_projection_plain(x, w, 1e-2),
            [streams, numbers(6, 10)],
        )
    rounds = {"one round": 1, "two rounds": 2, "sinkhorn": 20}[name]
    return (
        lambda x: sinkhorn_fast(x, rounds),
        lambda x: sinkhorn_plain(x, rounds),
        [2 * numbers(2, 3, 4, 4)],
    )


NAMES = ["read", "wide read", "write", "projection", "one round", "two rounds", "sinkhorn"]


@pytest.mark.parametrize("name", NAMES)
def test_equals_plain_in_float64(name: str) -> None:
    quick, plain, inputs = case(name)
    assert_same(quick, plain, inputs, 1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_equals_plain_in_float32(name: str) -> None:
    quick, plain, inputs = case(name)
    assert_same(quick, plain, [x.float() for x in inputs], 1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_coefficients_stay_float32_under_autocast(name: str) -> None:
    quick, plain, inputs = case(name)

    def cast(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def run(*leaves: Tensor) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return function(*leaves)

        return run

    assert_same(cast(quick), plain, [x.float() for x in inputs], 1e-5)


def test_backward_inside_autocast_stays_float32() -> None:
    quick, plain, inputs = case("write")
    with torch.autocast("cpu", torch.bfloat16):
        assert_same(quick, quick, [x.float() for x in inputs], 0)
        leaves = [x.float().requires_grad_() for x in inputs]
        got = torch.autograd.grad(quick(*leaves).pow(2).sum(), leaves)
    expected = torch.autograd.grad(plain(*leaves).pow(2).sum(), leaves)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", ["read", "write", "projection", "two rounds"])
def test_gradient_and_second_derivative(name: str) -> None:
    quick, plain, inputs = case(name)
    leaves = [x.requires_grad_() for x in inputs]
    assert torch.autograd.gradcheck(quick, leaves)
    for got, expected in zip(
        second_gradients(quick, inputs), second_gradients(plain, inputs), strict=True
    ):
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)


def test_two_backwards_of_one_graph_agree() -> None:
    for name in ("write", "sinkhorn"):
        quick, _, inputs = case(name)
        leaves = [x.requires_grad_() for x in inputs]
        total = quick(*leaves).pow(3).sum()
        first = torch.autograd.grad(total, leaves, retain_graph=True)
        second = torch.autograd.grad(total, leaves)
        for one, other in zip(first, second, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("spread", [16.0, 100.0, 1e4])
def test_sinkhorn_of_huge_logits_is_finite_and_equals_plain(spread: float) -> None:
    logits = (spread * numbers(5, 7, 4, 4)).float().requires_grad_()
    matrix = sinkhorn_fast(logits, 20)
    torch.testing.assert_close(matrix, sinkhorn_plain(logits, 20), rtol=0, atol=2e-4)
    assert doubly_stochastic_error(matrix)[1] < 1e-5
    (grad,) = torch.autograd.grad(matrix.pow(2).sum(), logits)
    assert grad.isfinite().all()


def test_bfloat16_streams_keep_their_dtype_and_float32_coefficients() -> None:
    _, plain, inputs = case("write")
    streams, mix, y, write = inputs
    mixed = [streams.bfloat16(), mix.float(), y.bfloat16(), write.float()]
    assert_same(mix_and_write_fast, plain, mixed, 2e-2)
