"""Post-norm: ``h ← N(h + F(h))``."""

import pytest
from torch import Tensor

from tests.oracles import GQA, Oracle, assert_equation, config_of


def equation(o: Oracle, h: Tensor) -> Tensor:
    for site in range(o.shape.sites):
        h = o.norm(site, h + o.branch(site, h))
    return h


@pytest.mark.parametrize("layers", [1, 3])
def test_logits_and_gradients(layers: int) -> None:
    shape = GQA.model_copy(update={"layers": layers})
    assert_equation(config_of("postnorm", shape), equation)
