"""The scan by chunks against the one by tokens; starts, memory and work of the branch."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from depthbench.nn.branch import Context
from depthbench.nn.cache import Room
from depthbench.nn.parameters import initialise
from depthbench.nn.ssm import SelectiveStateSpace, SSMSizes, scan, scan_plain, segment_sums
from tests.oracles import CONTEXT, assert_equal

SIZES = SSMSizes(width=32, heads=4, head_width=8, state=5, kernel=4, chunk=8)


def noise(*axes: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(axes, generator=generator, dtype=torch.float64)


def branch_of(sizes: SSMSizes = SIZES) -> SelectiveStateSpace:
    """Random, in float64."""
    branch = SelectiveStateSpace(sizes, 0.3, 0.3, 1e-6).double()
    initialise(branch, 0)
    with torch.no_grad():
        for seed, parameter in enumerate(branch.parameters()):
            parameter += 0.3 * noise(*parameter.shape, seed=seed)
    return branch


def inputs_of(length: int, state: bool) -> list[Tensor]:
    """Values, decays, writes and reads, and the state before them."""
    values, writes, reads = noise(2, length, 3, 6), noise(2, length, 4), noise(2, length, 4, seed=1)
    decays = -noise(2, length, 3).exp()
    found = [values, decays, writes, reads, *([noise(2, 4, 3, 6)] if state else [])]
    return [x.requires_grad_() for x in found]


@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize(("length", "chunk"), [(1, 4), (3, 4), (8, 4), (13, 4), (7, 64), (9, 1)])
def test_by_chunks_is_by_tokens(length: int, chunk: int, state: bool) -> None:
    """Outputs, the last state and all gradients."""
    results = []
    for by_chunks in (True, False):
        inputs = inputs_of(length, state)
        given = inputs if state else [*inputs, None]
        y, last = scan(*given, chunk) if by_chunks else scan_plain(*given)  # type: ignore[arg-type]  # tensors of several kinds
        loss = (y * noise(*y.shape, seed=2)).sum() + (last * noise(*last.shape, seed=3)).sum()
        results.append([y, last, *torch.autograd.grad(loss, inputs, allow_unused=True)])
    names = ["outputs", "state", "values", "decays", "writes", "reads", "state before"]
    for name, one, other in zip(names, *results, strict=False):
        if length == 1 and not state and name == "decays":
            assert not one.any(), "nothing decays before the first token"
        else:
            assert_equal(one, other, name)


@pytest.mark.parametrize("each", [-1e-4, -90.0, -1e6])
def test_float32_keeps_its_digits_behind_fast_decays(each: float) -> None:
    """A difference of cumulative sums would lose those of a slow stretch behind a fast one."""
    values, decays, writes, reads = (x.detach() for x in inputs_of(48, False))
    decays = torch.where(torch.arange(48)[:, None] < 24, each, decays * 1e-3)
    exact, _ = scan_plain(values, decays, writes, reads, None)
    single = [x.float() for x in (values, decays, writes, reads)]
    gradients = [x.requires_grad_() for x in single]
    y, _ = scan(*single, None, 64)  # type: ignore[arg-type]  # tensors of several kinds
    assert (y - exact).abs().max() < 3e-6 * exact.abs().max()
    y.sum().backward()
    assert all(x.grad is not None and x.grad.isfinite().all() for x in gradients)


def test_segment_sums_by_hand() -> None:
    found = segment_sums(torch.tensor([1.0, 10.0, 100.0]))
    low = -math.inf
    assert found.tolist() == [[0, low, low], [10, 0, low], [110, 100, 0]]


@pytest.mark.parametrize("sizes", [(5, 1, 1, 7), (1,) * 14, (14,)], ids=str)
def test_pieces_with_a_memory_are_the_whole(sizes: tuple[int, ...]) -> None:
    branch, x = branch_of(), noise(2, 14, 32)
    memory = branch.new_memory(Room(2, 14, torch.device("cpu"), torch.float64))
    with torch.no_grad():
        pieces = [branch(piece, CONTEXT, None, memory)[0] for piece in x.split(sizes, dim=1)]
        assert_equal(torch.cat(pieces, dim=1), branch(x, CONTEXT)[0], "outputs")


def test_memory_is_in_float32_or_better_and_does_not_grow() -> None:
    branch = branch_of()
    for dtype, kept in ((torch.bfloat16, torch.float32), (torch.float64, torch.float64)):
        memory = branch.new_memory(Room(2, 1000, torch.device("cpu"), dtype))
        assert {tensor.dtype for tensor in memory.tensors()} == {kept}
        numbers = sum(tensor.numel() for tensor in memory.tensors())
        assert numbers == 2 * (3 * (32 + 2 * 5) + 5 * 4 * 8)
        before = [tensor.data_ptr() for tensor in memory.tensors()]
        branch(noise(2, 9, 32), CONTEXT, None, memory)
        assert [tensor.data_ptr() for tensor in memory.tensors()] == before
        assert all(tensor.any() for tensor in memory.tensors())


def test_padding_on_the_left_leaves_no_trace() -> None:
    branch, x = branch_of(), noise(2, 14, 32)
    padded = Context(CONTEXT.cos, CONTEXT.sin, padding=torch.tensor([3, 0]))
    y, _ = branch(x, padded)
    assert_equal(y[:1, 3:], branch(x[:1, 3:], CONTEXT)[0], "behind padding")
    assert_equal(y[1:], branch(x[1:], CONTEXT)[0], "without padding")


@pytest.mark.parametrize("length", [5, 8, 16, 21])
def test_work_is_what_torch_counts(length: int) -> None:
    branch = branch_of()
    with FlopCounterMode(display=False) as counter:
        branch(noise(1, length, 32), CONTEXT)
    assert counter.get_total_flops() == branch.work(length).products == branch.work(length).total


def test_start() -> None:
    sizes = SSMSizes(width=16, heads=2000, head_width=1, state=2, kernel=4, chunk=8)
    branch = SelectiveStateSpace(sizes, 0.02, 0.05, 1e-6)
    initialise(branch, 0)
    decay = branch.log_decay.exp()
    assert 1 <= decay.min() < 1.1
    assert 15.9 < decay.max() <= 16 * (1 + 1e-6)
    assert decay.mean().item() == pytest.approx(8.5, abs=0.3)
    step = functional.softplus(branch.step_bias)
    assert 0.99e-3 < step.min() < 1.05e-3
    assert 0.095 < step.max() < 0.101
    assert step.log10().mean().item() == pytest.approx(-2.0, abs=0.05)
    assert (branch.skip == 1).all()
    assert branch.kernel.abs().max().item() == pytest.approx(0.5, abs=0.01)
    assert branch.into.weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert branch.out.weight.std().item() == pytest.approx(0.05, rel=0.02)
    starts = branch.starts()
    assert [name for name, start in starts.items() if start.decay] == ["kernel"]


def test_recurrence_in_float32_under_autocast() -> None:
    """Only the two projections are rounded: an error that does not grow with the length."""
    branch = branch_of().float()
    x = noise(1, 512, 32).float()
    exact, _ = branch(x, CONTEXT)
    with torch.autocast("cpu", torch.bfloat16):
        rounded, _ = branch(x, CONTEXT)
    error = (rounded - exact).norm(dim=-1)[0] / exact.norm(dim=-1)[0]
    assert error[:64].median() < 0.02
    assert error[-64:].median() < 0.02
