"""LayerScale: ``h ← h + λ ⊙ F(N(h))`` with a vector ``λ``."""

from typing import Any

import pytest
import torch
from torch import Tensor

from depthbench.cost.flops import count_flops
from depthbench.nn.model import Model
from tests.oracles import GQA, Oracle, assert_equation, config_of


def equation(o: Oracle, h: Tensor) -> Tensor:
    for site in range(o.shape.sites):
        y = o.branch(site, o.norm(site, h))
        h = h + torch.stack([o.own(site, "factor") * token for token in y])
    return h


def test_logits_and_gradients() -> None:
    assert_equation(config_of("layerscale"), equation)


@pytest.mark.parametrize(
    ("layers", "options", "start"),
    [
        (3, {}, 0.1),
        (18, {}, 0.1),
        (19, {}, 1e-4),
        (19, {"start": 1e-6}, 1e-6),
        (3, {"start": 0.0}, 0.0),
    ],
)
def test_start(layers: int, options: dict[str, Any], start: float) -> None:
    shape = GQA.model_copy(update={"layers": layers})
    model = Model.build(config_of({"name": "layerscale", **options}, shape), seed=0)
    factors = {n: p for n, p in model.named_parameters() if n.endswith("connection.factor")}
    assert len(factors) == 2 * layers
    for factor in factors.values():
        assert torch.equal(factor, torch.full((32,), start))


def test_stated_sums() -> None:
    """One weighted term a site."""
    assert count_flops(config_of("layerscale"), 10).own_sums == 2 * 10 * 32 * 6
