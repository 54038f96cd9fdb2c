"""Highway: ``h ← g ⊙ F(N(h)) + (1 - g) ⊙ h`` with ``g = σ(W h + c)``."""

import math

import torch
from torch import Tensor

from depthbench.cost.flops import count_flops
from depthbench.designs.highway import GateRoute
from depthbench.nn.block import Trace
from depthbench.nn.model import Model
from tests.oracles import GQA, Oracle, assert_equation, config_of, tokens_of


def equation(o: Oracle, h: Tensor) -> Tensor:
    for site in range(o.shape.sites):
        y = o.branch(site, o.norm(site, h))
        rows = []
        for token, new in zip(h, y, strict=True):
            logit = o.own(site, "gate.weight") @ token + o.own(site, "bias")
            gate = 1 / (1 + torch.exp(-logit))
            rows.append(gate * new + token - gate * token)
        h = torch.stack(rows)
    return h


def test_logits_and_gradients() -> None:
    assert_equation(config_of("highway"), equation)


def gates_at_start(**options: float) -> list[Tensor]:
    trace = Trace()
    Model.build(config_of({"name": "highway", **options}), seed=0)(tokens_of(GQA), trace=trace)
    routes = [route for _, route in trace.routes if isinstance(route, GateRoute)]
    return [route.gate for route in routes if route.gate is not None]


def test_gates_start_near_the_sigmoid_of_the_bias() -> None:
    """At the start the state is small, and ``W`` moves the gates little, but does."""
    for options, bias in (({}, -2.0), ({"bias": 1.0}, 1.0)):
        gates = gates_at_start(**options)
        assert len(gates) == 6
        for gate in gates:
            assert 0 < (gate - 1 / (1 + math.exp(-bias))).abs().max() < 0.01


def test_gate_has_weight_decay_and_its_bias_has_none() -> None:
    connection = Model.on_meta(config_of("highway")).blocks[0].attention_connection
    assert not connection.starts()["bias"].decay
    assert connection.gate.starts()["weight"].decay


def test_stated_sums() -> None:
    """Two weighted terms a site."""
    assert count_flops(config_of("highway"), 10).own_sums == 4 * 10 * 32 * 6
