"""LayerNorm scaling: ``h ← h + F(N(h) / sqrt(b + 1))``, blocks counted from 0."""

import pytest
from torch import Tensor

from depthbench.errors import DepthbenchError
from depthbench.nn.model import Model
from tests.oracles import GQA, Oracle, assert_equation, config_of


def equation(o: Oracle, h: Tensor) -> Tensor:
    for site in range(o.shape.sites):
        block = [0, 0, 1, 1, 2, 2, 3, 3][site]
        h = h + o.branch(site, o.norm(site, h) / (block + 1) ** 0.5)
    return h


@pytest.mark.parametrize("layers", [3, 4])
def test_logits_and_gradients(layers: int) -> None:
    shape = GQA.model_copy(update={"layers": layers})
    assert_equation(config_of("lns", shape), equation)


def test_depth_scaled_start_would_cancel_the_design_and_is_refused_by_name() -> None:
    with pytest.raises(DepthbenchError, match=r"depth_scaled_init = true cancels .*'lns'"):
        Model.on_meta(config_of("lns", depth_scaled_init=True))
