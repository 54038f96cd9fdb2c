"""The cross entropy in chunks is the cross entropy: value, gradients, and what is kept."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from depthbench.errors import DepthbenchError
from depthbench.nn.kernels import plain_kernels
from depthbench.nn.loss import LARGEST, chunk_of, loss_in_chunks, losses_in_chunks
from tests.fast import assert_same

VOCAB, ROWS, WIDTH, FACTOR = 29, 31, 8, 0.7
"""Two rows of the matrix only pad the vocabulary."""


def drawn() -> tuple[Tensor, Tensor, Tensor]:
    """What the head reads, its matrix, and targets."""
    generator = torch.Generator().manual_seed(0)
    x = 3 * torch.randn(2, 7, WIDTH, generator=generator, dtype=torch.float64)
    weight = torch.randn(ROWS, WIDTH, generator=generator, dtype=torch.float64)
    return x, weight, torch.randint(VOCAB, (2, 7), generator=generator)


def whole(targets: Tensor, factor: float = FACTOR) -> Callable[[Tensor, Tensor], Tensor]:
    def loss(x: Tensor, weight: Tensor) -> Tensor:
        logits = (factor * functional.linear(x, weight))[..., :VOCAB]
        wide = logits if logits.dtype == torch.float64 else logits.float()
        return functional.cross_entropy(wide.flatten(0, 1), targets.flatten())

    return loss


def in_chunks(targets: Tensor, chunk: int) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, weight: loss_in_chunks(targets, VOCAB, chunk)(x, weight, FACTOR)


@pytest.mark.parametrize("chunk", [1, 4, 7, 13, 14, 99])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_value_and_gradients(chunk: int, dtype: torch.dtype) -> None:
    """Chunks that divide 14 tokens and chunks that do not; padded rows get no gradient."""
    x, weight, targets = drawn()
    inputs = (x.to(dtype), weight.to(dtype))
    assert_same(in_chunks(targets, chunk), whole(targets), inputs, 100 * torch.finfo(dtype).eps)


def test_under_autocast_it_is_rounded_as_the_whole_is() -> None:
    x, weight, targets = drawn()
    inputs = (x.float(), weight.float())
    with torch.autocast("cpu", torch.bfloat16):
        assert_same(in_chunks(targets, 4), whole(targets), inputs, 2**-6)
        low, exact = in_chunks(targets, 4)(*inputs), whole(targets)(*inputs)
    assert low.item() == pytest.approx(exact.item(), rel=1e-6)
    assert abs(low.item() - whole(targets)(x, weight).item()) > 1e-5


def test_nothing_of_the_size_of_the_logits_is_kept() -> None:
    _, weight, _ = drawn()
    x, targets = torch.randn(1, 4000, WIDTH), torch.randint(VOCAB, (1, 4000))
    kept: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        in_chunks(targets, 50)(x.requires_grad_(), weight.float().requires_grad_())
    assert sum(kept) == 4000 * WIDTH + VOCAB * WIDTH


def test_a_second_derivative_needs_torchs_own_operations() -> None:
    x, weight, targets = drawn()
    loss = in_chunks(targets, 4)(x.requires_grad_(), weight)
    with pytest.raises(DepthbenchError, match="second derivatives through a loss in chunks"):
        torch.autograd.grad(loss, x, create_graph=True)
    twice = []
    for run in (in_chunks(targets, 4), whole(targets)):
        with plain_kernels():
            [slope] = torch.autograd.grad(run(x, weight), x, create_graph=True)
            twice += torch.autograd.grad(slope.square().sum(), x)
    torch.testing.assert_close(*twice, rtol=1e-12, atol=1e-15)


def test_losses_of_every_token() -> None:
    x, weight, targets = drawn()
    each = losses_in_chunks(targets, VOCAB, 4)(x.requires_grad_(), weight, FACTOR)
    assert not each.requires_grad
    assert each.shape == targets.shape
    assert each.mean().item() == pytest.approx(whole(targets)(x, weight).item(), rel=1e-14)
    row = FACTOR * weight[:VOCAB] @ x[1, 3].detach()
    expected = math.log(row.exp().sum().item()) - row[targets[1, 3]].item()
    assert each[1, 3].item() == pytest.approx(expected, rel=1e-14)


def test_chunks_begin_above_half_a_gigabyte() -> None:
    fit = LARGEST // (4 * 2**15)
    assert (chunk_of(fit, 2**15, None), chunk_of(fit + 1, 2**15, None)) == (None, fit)
    assert fit == 4096
    assert (chunk_of(100, 10, 7), chunk_of(100, 10, 100)) == (7, None)
    assert chunk_of(3, 2**40, None) == 1
