"""Exponents and crossovers against closed forms."""

import pytest

from depthbench.cost.flops import count_flops
from depthbench.cost.growth import crossover, fit, growth
from depthbench.nn.model import ModelConfig
from depthbench.shapes import Shape

SHAPE = Shape(layers=8, width=256, heads=8, kv_heads=8, ffn=688, vocab=257)


def config(design: str, shape: Shape = SHAPE) -> ModelConfig:
    return ModelConfig.parse({"shape": shape, "design": design})


def test_exponents_of_laws_that_are_exact() -> None:
    found = {one.what: one for one in growth(config("hc"), 1024)}
    for what, exponents in {
        "attention, FLOPs": (1, 1, 2),
        "keys and values, bytes": (1, 1, 1),
    }.items():
        one = found[what]
        assert (one.layers, one.width, one.context) == pytest.approx(exponents, abs=1e-9)
        assert one.deviation == pytest.approx(1.0, abs=1e-9)
    # 192 T d L, but for a few products of coefficients
    own = found["design's own, FLOPs"]
    assert (own.layers, own.width, own.context) == pytest.approx((1, 1, 1), abs=0.02)
    whole = found["forward, FLOPs"]
    assert 0.9 < whole.layers < 1.0
    assert 1.0 < whole.width < 2.0
    assert 1.0 < whole.context < 2.0


def test_sources_grow_with_the_square_of_depth() -> None:
    [own] = [one for one in growth(config("attnres"), 256) if one.what == "design's own, FLOPs"]
    assert own.layers == pytest.approx(2.0, abs=0.15)


def test_a_planted_law_is_found() -> None:
    points = [(n, d, t) for n in (2, 4) for d in (8, 16) for t in (10, 30)]
    found = fit("planted", points, [3.0 * n**1.5 * d**2 / t for n, d, t in points])
    assert (found.layers, found.width, found.context) == pytest.approx((1.5, 2.0, -1.0))


@pytest.mark.parametrize("kv_heads", [8, 2])
def test_at_the_crossover_both_parts_are_equal(kv_heads: int) -> None:
    one = config("prenorm", SHAPE.model_copy(update={"kv_heads": kv_heads}))
    tokens = crossover(one).tokens
    d = SHAPE.width
    by_hand = (2 * d * d + 2 * d * kv_heads * 32 + 3 * d * SHAPE.ffn) / d
    assert tokens == pytest.approx(by_hand)
    flops = count_flops(one, round(tokens))
    assert flops.attention == pytest.approx(flops.projections, rel=1e-3)
