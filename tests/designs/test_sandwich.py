"""Sandwich norm: ``h ← h + N_out(F(N_in(h)))``."""

from torch import Tensor

from tests.oracles import Oracle, assert_equation, config_of


def equation(o: Oracle, h: Tensor) -> Tensor:
    for site in range(o.shape.sites):
        y = o.branch(site, o.norm(site, h, "norm_in"))
        h = h + o.norm(site, y, "norm_out")
    return h


def test_logits_and_gradients() -> None:
    assert_equation(config_of("sandwich"), equation)
