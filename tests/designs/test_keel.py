"""KEEL: ``h ← N_post(α h + F(N_pre(h)))``, ``α = 2L``, with two exceptions in block 0."""

import pytest
from torch import Tensor

from depthbench.nn.model import Model
from tests.oracles import GQA, Oracle, assert_equation, config_of


def equation(o: Oracle, h: Tensor) -> Tensor:
    h = h + o.branch(0, o.norm(0, h, "norm_pre"))
    h = o.norm(1, h + o.branch(1, o.norm(1, h, "norm_pre")), "norm_post")
    for site in range(2, o.shape.sites):
        y = o.branch(site, o.norm(site, h, "norm_pre"))
        h = o.norm(site, 2 * o.shape.layers * h + y, "norm_post")
    return h


@pytest.mark.parametrize("layers", [1, 3, 4])
def test_logits_and_gradients(layers: int) -> None:
    shape = GQA.model_copy(update={"layers": layers})
    assert_equation(config_of("keel", shape), equation)


def test_first_attention_has_no_post_norm() -> None:
    names = {name for name, _ in Model.on_meta(config_of("keel")).named_parameters()}
    assert "blocks.0.attention_connection.norm_post.gain" not in names
    assert "blocks.1.attention_connection.norm_post.gain" in names
