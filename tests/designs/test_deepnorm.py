"""DeepNorm: ``h ← N(α h + F(h))``, ``α = (2L)^(1/4)``, branches start at std × ``(8L)^(-1/4)``."""

import pytest
import torch
from torch import Tensor

from depthbench.errors import DepthbenchError
from depthbench.nn.model import Model
from tests.oracles import EPS, GQA, Oracle, assert_equation, config_of, rms

FOUR = GQA.model_copy(update={"layers": 4})


def equation(o: Oracle, h: Tensor) -> Tensor:
    alpha = (2 * o.shape.layers) ** 0.25
    for site in range(o.shape.sites):
        h = o.norm(site, alpha * h + o.branch(site, h))
    return h


def with_mean_removed(o: Oracle, h: Tensor) -> Tensor:
    alpha = (2 * o.shape.layers) ** 0.25
    for site in range(o.shape.sites):
        total = alpha * h + o.branch(site, h)
        mean = total.sum(-1, keepdim=True) / o.shape.width
        h = rms(total - mean, o.own(site, "norm.gain"), EPS)
    return h


@pytest.mark.parametrize("layers", [3, 4])
def test_logits_and_gradients(layers: int) -> None:
    shape = GQA.model_copy(update={"layers": layers})
    assert_equation(config_of("deepnorm", shape), equation)


def test_layernorm_option() -> None:
    assert_equation(config_of({"name": "deepnorm", "norm": "layernorm"}), with_mean_removed)


def test_start_scales_values_outputs_and_feed_forward_but_not_queries_and_keys() -> None:
    plain, deep = (Model.build(config_of(name, FOUR), seed=3) for name in ("prenorm", "deepnorm"))
    beta = 32**-0.25
    start, scaled = (dict(model.named_parameters()) for model in (plain, deep))
    for block in range(4):
        qkv = f"blocks.{block}.attention.qkv.weight"
        rows = FOUR.width + FOUR.kv_heads * FOUR.head_dim
        assert torch.equal(scaled[qkv][:rows], start[qkv][:rows])
        torch.testing.assert_close(scaled[qkv][rows:], beta * start[qkv][rows:])
        for name in ("attention.o", "feedforward.gate_up", "feedforward.down"):
            weight = f"blocks.{block}.{name}.weight"
            torch.testing.assert_close(scaled[weight], beta * start[weight])
    assert torch.equal(scaled["head.weight"], start["head.weight"])
    assert torch.equal(scaled["embed.weight"], start["embed.weight"])


def test_depth_scaled_start_is_refused_by_name() -> None:
    with pytest.raises(DepthbenchError, match=r"depth_scaled_init = true fights .*'deepnorm'"):
        Model.on_meta(config_of("deepnorm", depth_scaled_init=True))
