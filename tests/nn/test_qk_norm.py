"""Normed queries and keys, biases, and heads of a width of their own, against naive attention."""

from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from depthbench.cost.flops import count_flops
from depthbench.nn.kernels import plain_kernels
from depthbench.nn.model import Model, ModelConfig
from depthbench.shapes import Shape
from tests.oracles import (
    GQA,
    Oracle,
    assert_equal,
    assert_equation,
    config_of,
    random_model,
    rms,
    tokens_of,
)

WIDE = GQA.model_copy(update={"head_width": 12})


class Normed(Oracle):
    """Queries and keys as `Backbone.qk_norm` and ``qkv_bias`` say, from the names of parameters."""

    def qkv(self, site: int, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        place = f"blocks.{site // 2}.attention."
        heads, kv, n = self.shape.heads, self.shape.kv_heads, self.shape.head_dim
        every = x @ self[place + "qkv.weight"].T
        if place + "qkv.bias" in self.parameters:
            every = every + self[place + "qkv.bias"]
        query, key, value = every.split([heads * n, kv * n, kv * n], dim=-1)
        parts = []
        for name, part in (("query", query), ("key", key)):
            gain = self.parameters.get(f"{place}{name}_norm.gain")
            if gain is not None and len(gain) == part.shape[-1]:
                part = rms(part, gain)
            heads_of = part.reshape(len(x), -1, n)
            if gain is not None and len(gain) == n:
                heads_of = rms(heads_of, gain)
            parts.append(heads_of)
        return parts[0], parts[1], value.reshape(len(x), -1, n)


def equation(o: Oracle, h: Tensor) -> Tensor:
    for site in range(o.shape.sites):
        h = h + o.branch(site, o.norm(site, h))
    return h


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("norm", [None, "head", "all"])
@pytest.mark.parametrize("shape", [GQA, WIDE], ids=["d over h", "wide"])
def test_logits_and_gradients(
    shape: Shape, norm: Literal["head", "all"] | None, bias: bool
) -> None:
    config = config_of("prenorm", shape, qk_norm=norm, qkv_bias=bias)
    assert_equation(config, equation, naive=Normed)


@torch.no_grad()
@pytest.mark.parametrize("design", ["hc", "moda", "value_residual"])
@pytest.mark.parametrize("backbone", ["dense", "hybrid"])
def test_any_design_steps_on_them(design: str, backbone: str) -> None:
    """Decoding and the plain versions agree with the forward; the counter with what is stated."""
    if (design, backbone) == ("moda", "hybrid"):
        pytest.skip("refused: see designs/test_moda.py")
    own: dict[str, Any] = {"name": backbone, "qk_norm": "head", "qkv_bias": True}
    own |= {"head_width": 8} if backbone == "hybrid" else {}
    scaled = {"name": "yarn", "factor": 2.0, "length": 4}
    config = config_of(design, WIDE, rope_scaling=scaled, **own)
    model, tokens = random_model(config), tokens_of(WIDE, 2, 9)
    logits, cache = model(tokens), model.cache(2, 9)
    steps = [model.step(one, cache) for one in (tokens[:, :4], tokens[:, 4:5], tokens[:, 5:])]
    assert_equal(torch.cat(steps, 1), logits, "steps")
    with plain_kernels():
        assert_equal(model(tokens), logits, "plain")
    if backbone == "dense":
        found = count_flops(config, 9)
        entries = 3 * (32 * 48 * 2 + 32 * 24 * 2 + 3 * 32 * 24)
        assert found.projections == 2 * 9 * entries
        assert found.attention == 2 * 9**2 * 3 * 48


def test_the_depth_cache_of_wide_heads_is_counted() -> None:
    """MoDA's scores and values: 4 T · heads · head width · 2b at block b."""
    found = count_flops(config_of("moda", WIDE), 9)
    stored = 2 * 9 * 2 * 2 * 32 * 24
    assert found.own_products == stored + 4 * 9 * 48 * (0 + 2 + 4)


def test_biases_start_at_nothing_and_do_not_decay() -> None:
    model = Model.build(config_of("prenorm", GQA, qkv_bias=True, qk_norm="all"), 0)
    plain = Model.build(config_of("prenorm", GQA), 0)
    ours = dict(model.named_parameters())
    assert not ours["blocks.0.attention.qkv.bias"].any()
    for name, one in plain.named_parameters():
        assert torch.equal(ours[name], one)


def test_configs_from_before_keep_their_digests() -> None:
    """Pinned at bd5ee0d, before there were the fields."""
    tables: list[tuple[dict[str, Any], str]] = [
        ({"design": "sandwich"}, "45dd81b6f2f6"),
        ({"design": "prenorm", "backbone": {"name": "moe", "experts": 4}}, "cc9879ff6725"),
        ({"design": "hc", "backbone": {"name": "hybrid"}}, "1bf8c0f89f9a"),
    ]
    for table, digest in tables:
        assert ModelConfig.parse({"shape": GQA.resolved(), **table}).digest() == digest
    digests = {
        config_of("prenorm", **backbone).digest()
        for backbone in (
            {},
            {"qk_norm": "head"},
            {"qk_norm": "all"},
            {"qkv_bias": True},
            {"rope_scaling": {"name": "linear", "factor": 2.0}},
            {"rope_scaling": {"name": "yarn", "factor": 2.0, "length": 8}},
        )
    }
    digests.add(config_of("prenorm", WIDE).digest())
    digests.add(config_of({"name": "sandwich", "before": False}).digest())
    assert len(digests) == 8
    again = ModelConfig.parse(config_of("prenorm", WIDE, qk_norm="all").resolved())
    assert again == config_of("prenorm", WIDE, qk_norm="all")
