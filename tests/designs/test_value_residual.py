"""Value residual: ``V'_b = λ2 V_b + λ1 V_0`` in every attention but the first."""

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from depthbench.cost.flops import count_flops
from depthbench.nn.kernels import plain_kernels
from depthbench.nn.model import Model
from depthbench.shapes import Shape
from tests.oracles import (
    GQA,
    Oracle,
    assert_equal,
    assert_equation,
    config_of,
    random_model,
    tokens_of,
    turn,
)

FOUR = GQA.model_copy(update={"layers": 4})


def attention(o: Oracle, site: int, x: Tensor, value: Tensor) -> Tensor:
    """Causal attention with these values in place of its own."""
    query, key, _ = o.qkv(site, x)
    group, rows = o.shape.heads // o.shape.kv_heads, []
    for t in range(len(x)):
        heads = []
        for head in range(o.shape.heads):
            kv, q = head // group, turn(query[t, head], t)
            scores = torch.stack([q @ turn(key[s, kv], s) for s in range(t + 1)])
            weights = torch.softmax(scores / math.sqrt(o.shape.head_dim), dim=0)
            heads.append(sum(weights[s] * value[s, kv] for s in range(t + 1)))
        rows.append(torch.cat(heads))  # type: ignore[arg-type]  # sum() is typed with its 0
    return torch.stack(rows) @ o[f"blocks.{site // 2}.attention.o.weight"].T


def programmed(
    program: Sequence[int], constants: tuple[float, float] | None = None
) -> Callable[[Oracle, Tensor], Tensor]:
    """The equation for blocks in this order; ``constants`` are ``λ1`` and ``λ2`` if not learned."""

    def run(o: Oracle, h: Tensor) -> Tensor:
        first = None
        for block in program:
            site = 2 * block
            x = o.norm(site, h)
            own = o.qkv(site, x)[2]
            mixed = own
            if first is None:
                first = own
            elif block > 0 and constants is None:
                mixed = o.own(site, "own") * own + o.own(site, "first") * first
            elif block > 0 and constants is not None:
                mixed = constants[1] * own + constants[0] * first
            h = h + attention(o, site, x, mixed)
            h = h + o.swiglu(site + 1, o.norm(site + 1, h))
        return h

    return run


@pytest.mark.parametrize(
    "shape",
    [
        GQA,
        GQA.model_copy(update={"kv_heads": 4}),
        Shape(layers=4, width=32, heads=4, kv_heads=1, ffn=24, vocab=99),
        GQA.model_copy(update={"layers": 1}),
    ],
    ids=["grouped", "multi-head", "one-kv-head", "one-block"],
)
def test_logits_and_gradients(shape: Shape) -> None:
    assert_equation(config_of("value_residual", shape), programmed(range(shape.layers)))


def test_constant_coefficients() -> None:
    table = {"name": "value_residual", "learned": False, "first": 0.75, "own": 2.0}
    assert_equation(config_of(table), programmed(range(3), (0.75, 2.0)))


@pytest.mark.parametrize(
    "program", [[0, 2, 3], [1, 2, 3], [0, 2, 1, 3], [0, 1, 1, 2], [1, 0, 2], [0, 0, 1]], ids=str
)
def test_programs(program: list[int]) -> None:
    """The attention that runs first hands its unmixed values on; block 0 never mixes."""
    assert_equation(config_of("value_residual", FOUR), programmed(program), program)


def test_start() -> None:
    model = Model.build(config_of({"name": "value_residual", "first": 0.25}, FOUR), seed=0)
    own = {n: p.item() for n, p in model.named_parameters() if p.ndim == 0}
    assert own == {
        f"blocks.{block}.attention_connection.{name}": value
        for block in (1, 2, 3)
        for name, value in (("first", 0.25), ("own", 0.5))
    }
    held = Model.build(config_of({"name": "value_residual", "learned": False}, FOUR), seed=0)
    assert [n for n, p in held.named_parameters() if p.ndim == 0] == []


def test_own_values_alone_are_prenorm() -> None:
    """``λ1 = 0``, ``λ2 = 1``."""
    table = {"name": "value_residual", "learned": False, "first": 0.0, "own": 1.0}
    ours, plain = (random_model(config_of(design)) for design in (table, "prenorm"))
    assert_equal(ours(tokens_of(GQA)), plain(tokens_of(GQA)), "logits")


@pytest.mark.parametrize("learned", [True, False])
def test_bfloat16_autocast_by_both_kernels(learned: bool) -> None:
    """The mix keeps to the values' precision: no error beyond that of the products."""
    model = Model.build(config_of({"name": "value_residual", "learned": learned}), seed=0)
    tokens = tokens_of(GQA, length=16)
    exact = model(tokens)
    with torch.autocast("cpu", torch.bfloat16):
        fast = model(tokens).float()
        with plain_kernels():
            plain = model(tokens).float()
    for rounded in (fast, plain):
        assert (rounded - exact).norm() < 0.02 * exact.norm()


def test_work_counts_the_sum_of_two_values() -> None:
    flops = count_flops(config_of("value_residual", FOUR), 16)
    assert flops.own_products == 0
    assert flops.own_sums == 3 * 16 * 2 * 8 * 4
