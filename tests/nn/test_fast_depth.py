"""Attention over time and depth with the flash kernel against one plain softmax."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from depthbench.designs import parse_design
from depthbench.errors import DepthbenchError
from depthbench.nn.attention import attend_time_and_depth, attend_time_and_depth_plain
from depthbench.nn.branch import Entry
from depthbench.nn.fast_depth import attend_time_and_depth_fast, channels_first
from depthbench.nn.kernels import plain_kernels
from depthbench.nn.model import Model, ModelConfig
from depthbench.shapes import Shape
from tests.fast import assert_same


def numbers(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def inputs(kv_heads: int) -> list[Tensor]:
    shapes = [(2, 5, 4, 6), (2, 5, kv_heads, 6), (2, 5, kv_heads, 6), (2, 5, 4, 6)]
    shapes += 6 * [(2, 5, kv_heads, 6)]
    return [2 * numbers(*shape, seed=seed) for seed, shape in enumerate(shapes)]


def over(fast: bool, first: bool = True) -> Callable[..., Tensor]:
    attend = attend_time_and_depth_fast if fast else attend_time_and_depth_plain

    def run(query: Tensor, key: Tensor, value: Tensor, own: Tensor, *bank: Tensor) -> Tensor:
        if first and fast:
            own, *bank = (channels_first(x) for x in (own, *bank))
        pairs = zip(bank[:3], bank[3:], strict=True)
        return attend(query, key, value, own, [Entry(k, v) for k, v in pairs])

    return run


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("first", [False, True])
def test_equals_plain_in_any_layout(kv_heads: int, first: bool) -> None:
    assert_same(over(True, first), over(False), inputs(kv_heads), 1e-12)


def test_equals_plain_in_float32() -> None:
    assert_same(over(True), over(False), [x.float() for x in inputs(2)], 1e-5)


def test_gradcheck() -> None:
    leaves = [x[:1, :3, :, :2].clone().requires_grad_() for x in inputs(2)]
    assert torch.autograd.gradcheck(over(True), leaves)


def test_paired_channels_are_put_in_their_own_order() -> None:
    x = torch.tensor([0.0, 3.0, 1.0, 4.0, 2.0, 5.0]).expand(1, 2, 3, 6)
    ordered = channels_first(x, paired=True)
    torch.testing.assert_close(ordered, torch.arange(6.0).expand(1, 2, 3, 6), rtol=0, atol=0)
    assert ordered.permute(3, 0, 1, 2).is_contiguous()


def test_under_autocast_it_stays_float32() -> None:
    single = [x.float() for x in inputs(2)]
    with torch.autocast("cpu", torch.bfloat16):
        out = over(True)(*single)
    torch.testing.assert_close(out, over(False)(*single), rtol=1e-5, atol=1e-5)


def test_the_switch_and_second_derivatives() -> None:
    query, key, value, own, *bank = [x.requires_grad_() for x in inputs(2)]
    out = attend_time_and_depth(query, key, value, own, [Entry(bank[0], bank[1])])
    assert type(out.grad_fn).__name__ == "_AttendTimeAndDepthBackward"
    with pytest.raises(DepthbenchError, match="attention over depth"):
        torch.autograd.grad(out.sum(), query, create_graph=True)
    with plain_kernels():
        out = attend_time_and_depth(query, key, value, own, [Entry(bank[0], bank[1])])
    assert type(out.grad_fn).__name__ != "_AttendTimeAndDepthBackward"


@pytest.mark.parametrize("rotate", [False, True])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_model_and_graph_used_twice(rotate: bool, checkpointing: bool) -> None:
    shape = Shape(layers=3, width=16, heads=4, kv_heads=2, ffn=10, vocab=19)
    design = parse_design({"name": "moda", "rotate_depth_keys": rotate})
    model = Model.build(ModelConfig(shape=shape, design=design), 0).double()
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.add_(0.2 * numbers(*parameter.shape, seed=number))
    model.checkpointing = checkpointing
    tokens = torch.arange(12).view(2, 6)
    parameters = list(model.parameters())
    loss = model(tokens).pow(2).mean()
    first = torch.autograd.grad(loss, parameters, retain_graph=True)
    second = torch.autograd.grad(loss, parameters)
    with plain_kernels():
        expected = torch.autograd.grad(model(tokens).pow(2).mean(), parameters)
    for one, other, right in zip(first, second, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
        torch.testing.assert_close(one, right, rtol=1e-10, atol=1e-10)
