"""mHC: ``x = N(Σ σ(α̃_i) H_i)``, new ``H_j = Σ_i Sinkhorn(Ã)[i, j] H_i + 2σ(β̃_j) y``."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from depthbench.designs.mhc import MHCConnection
from depthbench.designs.sinkhorn import doubly_stochastic_error
from depthbench.designs.streams import StreamRoute
from depthbench.nn.block import Trace
from depthbench.nn.model import Model
from tests.oracles import GQA, Oracle, assert_equation, config_of, random_model, rms, tokens_of


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def doubly_stochastic(logits: Tensor, rounds: int) -> Tensor:
    """Rows to sum 1, then columns, ``rounds`` times, for ``(t, m, m)`` logits."""
    matrix = torch.exp(logits)
    for _ in range(rounds):
        matrix = matrix / matrix.sum(2, keepdim=True)
        matrix = matrix / matrix.sum(1, keepdim=True)
    return matrix


def equation_of(m: int, rounds: int) -> Callable[[Oracle, Tensor], Tensor]:
    """The equation with these options."""

    def equation(o: Oracle, h: Tensor) -> Tensor:
        streams = [h] * m
        for site in range(o.shape.sites):
            flat = rms(torch.cat(streams, dim=1))
            logits = flat @ o.own(site, "projection").T
            gates = o.own(site, "gates")
            read = sigmoid(gates[0] * logits[:, :m] + o.own(site, "bias_read"))
            write = 2 * sigmoid(gates[1] * logits[:, m : 2 * m] + o.own(site, "bias_write"))
            square = gates[2] * logits[:, 2 * m :].reshape(-1, m, m) + o.own(site, "bias_mix")
            matrix = doubly_stochastic(square, rounds)
            mixed = torch.zeros_like(h)
            for i in range(m):
                mixed = mixed + read[:, i, None] * streams[i]
            y = o.branch(site, o.norm(site, mixed))
            new = []
            for j in range(m):
                stream = write[:, j, None] * y
                for i in range(m):
                    stream = stream + matrix[:, i, j, None] * streams[i]
                new.append(stream)
            streams = new
        return torch.stack(streams).sum(0) / m

    return equation


@pytest.mark.parametrize(("m", "rounds"), [(4, 20), (2, 20), (4, 1), (1, 20)])
def test_logits_and_gradients(m: int, rounds: int) -> None:
    """Site 0 mixes equal streams with weights that sum to 1, and one stream mixes nothing."""

    def without_effect(name: str) -> bool:
        return name.endswith("bias_mix") and (m == 1 or "blocks.0.attention" in name)

    table = {"name": "mhc", "streams": m, "rounds": rounds}
    assert_equation(config_of(table), equation_of(m, rounds), without_effect=without_effect)


def connection_of(model: Model, block: int) -> MHCConnection:
    connection = model.blocks[block].attention_connection
    assert isinstance(connection, MHCConnection)
    return connection


STREAMS = torch.arange(2 * 3 * 4 * 32, dtype=torch.float64).reshape(2, 3, 4, 32).sin()


def test_permutation_mixing_permutes_the_streams() -> None:
    order = [2, 0, 3, 1]
    model = Model.build(config_of("mhc"), seed=0, dtype=torch.float64)
    connection = connection_of(model, 0)
    with torch.no_grad():
        connection.bias_mix.fill_(-60)
        for new, old in enumerate(order):
            connection.bias_mix[old, new] = 0
    _, route = connection.read(STREAMS)
    new = connection.write(STREAMS, torch.zeros(2, 3, 32, dtype=torch.float64), route, None)
    torch.testing.assert_close(new, STREAMS[:, :, order], rtol=1e-12, atol=1e-12)


def test_mixing_logits_and_their_projection_get_gradients() -> None:
    connection = connection_of(Model.build(config_of("mhc"), 0, dtype=torch.float64), 0)
    weights = torch.linspace(1, 2, STREAMS.numel(), dtype=torch.float64).view_as(STREAMS)
    _, route = connection.read(STREAMS)
    new = connection.write(STREAMS, torch.zeros(2, 3, 32, dtype=torch.float64), route, None)
    (new * weights).sum().backward()
    assert connection.bias_mix.grad is not None
    assert connection.projection.grad is not None
    assert (connection.bias_mix.grad.abs() > 1e-6).all()
    assert (connection.projection.grad[8:].abs().amax(1) > 1e-9).all()


@pytest.mark.parametrize(
    ("start", "high", "on", "off"), [("identity", 8, 0, -8), ("paper", 3, 3, -3)]
)
def test_start(start: str, high: float, on: float, off: float) -> None:
    model = Model.build(config_of({"name": "mhc", "start": start}), seed=0)
    parameters = dict(model.named_parameters())
    for site in range(6):
        kind = "feedforward" if site % 2 else "attention"
        own = f"blocks.{site // 2}.{kind}_connection."
        expected_read = [-high] * 4
        expected_read[site % 4] = high
        assert parameters[own + "bias_read"].tolist() == expected_read
        assert parameters[own + "bias_write"].tolist() == [0.0] * 4
        expected_mix = torch.full((4, 4), float(off)).fill_diagonal_(on)
        assert torch.equal(parameters[own + "bias_mix"], expected_mix)
        assert not parameters[own + "projection"].any()
        assert parameters[own + "gates"].tolist() == pytest.approx([0.01] * 3)


def routes_of(model: Model) -> list[StreamRoute]:
    trace = Trace()
    model(tokens_of(GQA), trace=trace)
    routes: list[Any] = [route for _, route in trace.routes]
    return routes


def test_error_of_the_mixing_matrices_can_be_read_from_the_routes() -> None:
    """Identity start: nearly doubly stochastic. Random logits: rows are visibly off."""
    for route in routes_of(Model.build(config_of("mhc"), seed=0)):
        assert route.mix is not None
        assert max(doubly_stochastic_error(route.mix)) < 1e-6
    model = random_model(config_of("mhc"))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias_mix"):
                parameter.mul_(20)
    errors = [
        doubly_stochastic_error(route.mix) for route in routes_of(model) if route.mix is not None
    ]
    assert len(errors) == 6
    assert max(rows for rows, _ in errors) > 0.05
    assert max(columns for _, columns in errors) < 1e-12


def test_projection_in_float32_under_autocast() -> None:
    model = Model.build(config_of("mhc"), seed=0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("projection"):
                parameter.normal_(generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        routes = routes_of(model)
    for route in routes:
        assert route.mix is not None
        assert route.mix.dtype == torch.float32
        assert (route.mix.sum(-2) - 1).abs().max() < 1e-6
