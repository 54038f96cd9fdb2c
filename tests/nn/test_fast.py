"""The fast norm, gate and rotation against the plain ones."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from depthbench.nn.attention import Attention
from depthbench.nn.branch import Backbone, Context
from depthbench.nn.fast_norm import rms_norm_fast, rms_norm_plain
from depthbench.nn.fast_swiglu import gate_fast, gate_plain
from depthbench.nn.kernels import fast, plain_kernels
from depthbench.nn.norm import RMSNorm
from depthbench.nn.parameters import initialise
from depthbench.nn.rope import pair_turns, rotary_table, turn_pairs, turn_pairs_plain
from depthbench.shapes import Shape
from tests.fast import assert_same, second_gradients

Case = tuple[Callable[..., Tensor], Callable[..., Tensor], list[Tensor]]


def numbers(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(len(shape) + shape[-1])
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def case(name: str) -> Case:
    if name == "norm":
        inputs = [3 * numbers(2, 5, 12), 1 + numbers(12)]
        return (
            lambda x, g: rms_norm_fast(x, g, 1e-2),
            lambda x, g: rms_norm_plain(x, g, 1e-2),
            inputs,
        )
    if name == "gate":
        return gate_fast, gate_plain, [numbers(2, 5, 14)]
    cos, sin = rotary_table(5, 4, 100.0, torch.device("cpu"), torch.float64)
    turns = pair_turns(cos, sin, 3, 6)

    def joined(parts: tuple[Tensor, Tensor]) -> Tensor:
        return torch.cat(parts, dim=-1)

    return (
        lambda x: joined(turn_pairs(x, turns)),
        lambda x: joined(turn_pairs_plain(x, turns.turn)),
        [numbers(2, 5, 18)],
    )


@pytest.mark.parametrize("name", ["norm", "gate", "turn"])
def test_equals_plain_in_float64(name: str) -> None:
    quick, plain, inputs = case(name)
    assert_same(quick, plain, inputs, 1e-12)


@pytest.mark.parametrize("name", ["norm", "gate", "turn"])
@torch.no_grad()
def test_equals_plain_where_nothing_is_differentiated(name: str) -> None:
    quick, plain, inputs = case(name)
    torch.testing.assert_close(quick(*inputs), plain(*inputs), rtol=1e-12, atol=1e-12)
    if name == "norm":
        low = inputs[0].bfloat16()
        assert quick(low, inputs[1]).dtype == plain(low, inputs[1]).dtype


@pytest.mark.parametrize("name", ["norm", "gate", "turn"])
def test_gradient_and_second_derivative(name: str) -> None:
    quick, plain, inputs = case(name)
    leaves = [x.requires_grad_() for x in inputs]
    assert torch.autograd.gradcheck(quick, leaves)
    for got, expected in zip(
        second_gradients(quick, inputs), second_gradients(plain, inputs), strict=True
    ):
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["norm", "gate"])
def test_equals_plain_in_float32(name: str) -> None:
    quick, plain, inputs = case(name)
    assert_same(quick, plain, [x.float() for x in inputs], 2e-6)


def test_gate_equals_plain_in_bfloat16() -> None:
    assert_same(gate_fast, gate_plain, [numbers(2, 5, 14).bfloat16()], 2e-2)


def test_norm_of_bfloat16_is_float32_with_a_bfloat16_gradient() -> None:
    x, gain = numbers(2, 5, 12).bfloat16(), numbers(12).float()
    with torch.autocast("cpu", torch.bfloat16):
        assert rms_norm_fast(x, gain, 1e-6).dtype == torch.float32
        for parts in zip(
            torch.autograd.functional.vjp(lambda x, g: rms_norm_fast(x, g, 1e-6).sum(), (x, gain))[
                1
            ],
            torch.autograd.functional.vjp(lambda x, g: rms_norm_plain(x, g, 1e-6).sum(), (x, gain))[
                1
            ],
            strict=True,
        ):
            torch.testing.assert_close(*parts, rtol=2e-2, atol=2e-2)


def test_norm_without_gradient_for_one_input() -> None:
    x, gain = numbers(3, 12), numbers(12)
    loose = gain.clone().requires_grad_()
    rms_norm_fast(x, loose, 1e-6).pow(2).sum().backward()
    again = gain.clone().requires_grad_()
    rms_norm_plain(x, again, 1e-6).pow(2).sum().backward()
    assert loose.grad is not None
    assert again.grad is not None
    torch.testing.assert_close(loose.grad, again.grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_attention_equals_plain_and_ran_fast(kv_heads: int) -> None:
    shape = Shape(layers=1, width=24, heads=4, kv_heads=kv_heads, ffn=4, vocab=9)
    branch = Attention(shape, Backbone(), 0.3, 0.3, 0.3).double()
    initialise(branch, 0)
    context = Context(*rotary_table(7, 6, 10.0, torch.device("cpu"), torch.float64))
    x = numbers(2, 7, 24)

    def run(x: Tensor, qkv: Tensor, o: Tensor) -> Tensor:
        weights = {"qkv.weight": qkv, "o.weight": o}
        return torch.func.functional_call(branch, weights, (x, context))[0]

    def plainly(*inputs: Tensor) -> Tensor:
        with plain_kernels():
            return run(*inputs)

    assert_same(run, plainly, [x, branch.qkv.weight, branch.o.weight], 1e-10)
    assert graph_names(run(x, branch.qkv.weight, branch.o.weight)) >= {"_TurnPairsBackward"}
    plain = graph_names(plainly(x, branch.qkv.weight, branch.o.weight))
    assert "_TurnPairsBackward" not in plain


def graph_names(tensor: Tensor) -> set[str]:
    """Names of all nodes behind ``tensor``."""
    names: set[str] = set()
    waiting = [tensor.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None:
            names.add(node.name())
            waiting.extend(next_node for next_node, _ in node.next_functions)
    return names


def test_the_switch() -> None:
    norm = RMSNorm(12, 1e-6)
    initialise(norm, 0)
    x = numbers(2, 12).float()
    assert "_RMSNormBackward" in graph_names(norm(x))
    with plain_kernels():
        assert not fast(x)
        assert "_RMSNormBackward" not in graph_names(norm(x))
    assert fast(x)
    assert not fast(x.to("meta"))
