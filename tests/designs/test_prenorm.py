"""Pre-norm: ``h ← h + F(N(h))``."""

import pytest
from torch import Tensor

from depthbench.shapes import Shape
from tests.oracles import GQA, Oracle, assert_equation, config_of


def equation(o: Oracle, h: Tensor) -> Tensor:
    for site in range(o.shape.sites):
        h = h + o.branch(site, o.norm(site, h))
    return h


@pytest.mark.parametrize(
    "shape",
    [
        GQA,
        GQA.model_copy(update={"kv_heads": 4}),
        Shape(layers=4, width=32, heads=2, kv_heads=1, ffn=40, vocab=99),
    ],
    ids=["grouped", "multi-head", "one-kv-head"],
)
def test_logits_and_gradients(shape: Shape) -> None:
    assert_equation(config_of("prenorm", shape), equation)
