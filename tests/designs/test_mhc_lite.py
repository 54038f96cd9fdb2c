"""mHC-lite: as mHC, but ``A = Σ_k softmax(ã)_k P_k`` over all permutations of the streams."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from depthbench.designs import parse_design
from depthbench.designs.mhc_lite import MHCLiteConnection
from depthbench.designs.sinkhorn import doubly_stochastic_error
from depthbench.errors import DepthbenchError
from depthbench.nn.block import Trace
from depthbench.nn.model import Model
from tests.oracles import GQA, Oracle, assert_equation, config_of, random_model, rms, tokens_of


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def equation_of(m: int) -> Callable[[Oracle, Tensor], Tensor]:
    """The equation with ``m`` streams; each stream is sent through every permutation by itself."""
    orders = list(itertools.permutations(range(m)))

    def equation(o: Oracle, h: Tensor) -> Tensor:
        streams = [h] * m
        for site in range(o.shape.sites):
            logits = rms(torch.cat(streams, dim=1)) @ o.own(site, "projection").T
            gates = o.own(site, "gates")
            read = sigmoid(gates[0] * logits[:, :m] + o.own(site, "bias_read"))
            write = 2 * sigmoid(gates[1] * logits[:, m : 2 * m] + o.own(site, "bias_write"))
            powers = torch.exp(gates[2] * logits[:, 2 * m :] + o.own(site, "bias_mix"))
            weights = powers / powers.sum(1, keepdim=True)
            mixed = torch.zeros_like(h)
            for i in range(m):
                mixed = mixed + read[:, i, None] * streams[i]
            y = o.branch(site, o.norm(site, mixed))
            new = [write[:, j, None] * y for j in range(m)]
            for k, order in enumerate(orders):
                for i, j in enumerate(order):
                    new[j] = new[j] + weights[:, k, None] * streams[i]
            streams = new
        return torch.stack(streams).sum(0) / m

    return equation


@pytest.mark.parametrize("m", [4, 3, 2, 1])
def test_logits_and_gradients(m: int) -> None:
    """Site 0 mixes equal streams with weights that sum to 1, and one stream mixes nothing."""

    def without_effect(name: str) -> bool:
        return name.endswith("bias_mix") and (m == 1 or "blocks.0.attention" in name)

    table = {"name": "mhc_lite", "streams": m}
    assert_equation(config_of(table), equation_of(m), without_effect=without_effect)


STREAMS = torch.arange(2 * 3 * 4 * 32, dtype=torch.float64).reshape(2, 3, 4, 32).sin()


@pytest.mark.parametrize("number", [1, 9, 23])
def test_each_logit_belongs_to_one_permutation(number: int) -> None:
    order = list(itertools.permutations(range(4)))[number]
    connection = connection_of(Model.build(config_of("mhc_lite"), seed=0, dtype=torch.float64))
    with torch.no_grad():
        connection.bias_mix.fill_(-60)
        connection.bias_mix[number] = 0
    _, route = connection.read(STREAMS)
    new = connection.write(STREAMS, torch.zeros(2, 3, 32, dtype=torch.float64), route, None)
    for old, place in enumerate(order):
        torch.testing.assert_close(new[:, :, place], STREAMS[:, :, old], rtol=1e-12, atol=1e-12)


def connection_of(model: Model) -> MHCLiteConnection:
    connection = model.blocks[0].attention_connection
    assert isinstance(connection, MHCLiteConnection)
    return connection


def test_exactly_doubly_stochastic_where_sinkhorn_is_not() -> None:
    model = random_model(config_of("mhc_lite"))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias_mix"):
                parameter.mul_(20)
    trace = Trace()
    model(tokens_of(GQA), trace=trace)
    assert len(trace.routes) == 6
    for _, route in trace.routes:
        (mix,) = route.mixes()
        assert mix.shape == (2, 6, 4, 4)
        assert max(doubly_stochastic_error(mix)) < 1e-14
        assert (mix[0, 0] != mix[0, 1]).any()


@pytest.mark.parametrize(
    ("start", "read", "write"), [("identity", (8, -8), (0, 0)), ("paper", (1, -1), (1, -1))]
)
def test_start(start: str, read: tuple[float, float], write: tuple[float, float]) -> None:
    model = Model.build(config_of({"name": "mhc_lite", "start": start}), seed=0)
    parameters = dict(model.named_parameters())
    for site in range(6):
        kind = "feedforward" if site % 2 else "attention"
        own = f"blocks.{site // 2}.{kind}_connection."
        for name, (high, low) in (("bias_read", read), ("bias_write", write)):
            expected = [float(low)] * 4
            expected[site % 4] = float(high)
            assert parameters[own + name].tolist() == expected
        assert parameters[own + "bias_mix"].tolist() == [0.0] + [-8.0] * 23
        assert not parameters[own + "projection"].any()
        assert parameters[own + "gates"].tolist() == pytest.approx([0.01] * 3)


def test_many_streams_are_refused() -> None:
    five: Any = parse_design({"name": "mhc_lite", "streams": 5})
    assert five.streams == 5
    message = r"streams = 6: each site weighs all permutations of the streams, 720 of 6\. Set .* 5"
    with pytest.raises(DepthbenchError, match=message):
        parse_design({"name": "mhc_lite", "streams": 6})
    with pytest.raises(DepthbenchError, match=r"streams = True: a number is needed"):
        parse_design({"name": "mhc_lite", "streams": True})


@pytest.mark.parametrize("streams", [1, 2, 4, 5])
def test_facts_hold(streams: int) -> None:
    design = Model.on_meta(config_of({"name": "mhc_lite", "streams": streams})).design
    for fact in design.facts():
        assert abs(fact.measured - fact.expected) <= fact.tolerance, fact
