"""Hyper-Connections: ``x = N(Σ α_i H_i)``, new ``H_j = Σ_i A[i, j] H_i + β_j y``."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from depthbench.designs.hc import HyperConnection, HyperConnections
from depthbench.nn.model import Model
from tests.oracles import CONTEXT, GQA, Oracle, assert_equation, config_of, random_model, tokens_of

Coefficients = tuple[list[Tensor], list[list[Tensor]], list[Tensor]]


def coefficients(
    o: Oracle, site: int, streams: list[Tensor], mix: bool, dynamic: bool
) -> Coefficients:
    """``α``, ``A`` and ``β`` of a site, as lists of ``(t,)`` vectors."""
    m, time = len(streams), len(streams[0])
    changes = [torch.zeros(time, m + 2, dtype=torch.float64)] * m
    scale_read = scale_write = torch.zeros((), dtype=torch.float64)
    if dynamic:
        weight = o.own(site, "dynamic")
        scale_read, scale_write = o.own(site, "scale_read"), o.own(site, "scale_write")
        changes = [torch.tanh(o.norm(site, h, "norm_streams") @ weight.T) for h in streams]
    read = [o.own(site, "static_read")[i] + scale_read * changes[i][:, 0] for i in range(m)]
    write = [o.own(site, "static_write")[i] + scale_write * changes[i][:, -1] for i in range(m)]
    matrix = [
        [
            o.own(site, "static_mix")[i, j] + scale_read * changes[i][:, 1 + j]
            if mix
            else torch.full((time,), float(i == j), dtype=torch.float64)
            for j in range(m)
        ]
        for i in range(m)
    ]
    return read, matrix, write


def equation_of(
    m: int = 4, mix: bool = True, dynamic: bool = True
) -> Callable[[Oracle, Tensor], Tensor]:
    """The equation with these options."""

    def equation(o: Oracle, h: Tensor) -> Tensor:
        streams = [h] * m
        for site in range(o.shape.sites):
            read, matrix, write = coefficients(o, site, streams, mix, dynamic)
            mixed = sum(read[i][:, None] * streams[i] for i in range(m))
            y = o.branch(site, o.norm(site, mixed))  # type: ignore[arg-type]  # sum() is typed with its 0
            streams = [
                sum(matrix[i][j][:, None] * streams[i] for i in range(m)) + write[j][:, None] * y
                for j in range(m)
            ]
        return sum(streams) / m  # type: ignore[return-value]  # sum() is typed with its 0

    return equation


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mix": False},
        {"dynamic": False},
        {"mix": False, "dynamic": False},
        {"m": 2},
        {"m": 1},
    ],
    ids=str,
)
def test_logits_and_gradients(options: dict[str, Any]) -> None:
    table = {"name": "hc", **{"streams" if k == "m" else k: v for k, v in options.items()}}
    assert_equation(config_of(table), equation_of(**options))


def connection_of(mix: Tensor) -> HyperConnection:
    """Site 0 of a static model with this mixing matrix."""
    model = Model.build(config_of({"name": "hc", "dynamic": False}), 0, dtype=torch.float64)
    connection = model.blocks[0].attention_connection
    assert isinstance(connection, HyperConnection)
    with torch.no_grad():
        connection.static_mix.copy_(mix)
    return connection


STREAMS = torch.arange(2 * 3 * 4 * 32, dtype=torch.float64).reshape(2, 3, 4, 32).sin()


def test_permutation_mixing_permutes_the_streams() -> None:
    order = [2, 0, 3, 1]
    matrix = torch.zeros(4, 4, dtype=torch.float64)
    for new, old in enumerate(order):
        matrix[old, new] = 1
    connection = connection_of(matrix)
    _, route = connection.read(STREAMS)
    new = connection.write(STREAMS, torch.zeros(2, 3, 32, dtype=torch.float64), route, None)
    assert torch.equal(new, STREAMS[:, :, order])
    (new * STREAMS).sum().backward()
    assert connection.static_mix.grad is not None
    assert (connection.static_mix.grad != 0).all()


def test_asymmetric_matrix_goes_from_rows_to_columns() -> None:
    matrix = torch.tensor(
        [[1.0, 2, 0, 0], [0, 1, 5, 0], [0, 0, 1, 7], [3, 0, 0, 1]], dtype=torch.float64
    )
    connection = connection_of(matrix)
    _, route = connection.read(STREAMS)
    new = connection.write(STREAMS, torch.zeros(2, 3, 32, dtype=torch.float64), route, None)
    h = STREAMS.unbind(2)
    expected = [h[0] + 3 * h[3], 2 * h[0] + h[1], 5 * h[1] + h[2], 7 * h[2] + h[3]]
    torch.testing.assert_close(new, torch.stack(expected, 2), rtol=1e-14, atol=1e-14)


def test_readout_is_the_mean_of_the_streams() -> None:
    design = Model.build(config_of("hc"), seed=0).design
    assert isinstance(design, HyperConnections)
    embedding = STREAMS[:, :, 0]
    torch.testing.assert_close(design.readout(design.open(embedding, CONTEXT)), embedding)
    expected = (STREAMS[:, :, 0] + STREAMS[:, :, 1] + STREAMS[:, :, 2] + STREAMS[:, :, 3]) / 4
    torch.testing.assert_close(design.readout(STREAMS), expected)


def test_start() -> None:
    model = Model.build(config_of("hc"), seed=0)
    parameters = dict(model.named_parameters())
    for site in range(6):
        kind = "feedforward" if site % 2 else "attention"
        own = f"blocks.{site // 2}.{kind}_connection."
        expected_read = [0.0, 0.0, 0.0, 0.0]
        expected_read[[0, 1, 2, 3, 0, 1][site]] = 1.0
        assert parameters[own + "static_read"].tolist() == expected_read
        assert parameters[own + "static_write"].tolist() == [1.0] * 4
        assert torch.equal(parameters[own + "static_mix"], torch.eye(4))
        assert not parameters[own + "dynamic"].any()
        assert parameters[own + "scale_read"].item() == pytest.approx(0.01)
        assert parameters[own + "scale_write"].item() == pytest.approx(0.01)


def test_coefficients_depend_on_the_token() -> None:
    model = random_model(config_of("hc"))
    state = model.design.open(model.embed(tokens_of(GQA)), CONTEXT)
    connection = model.blocks[0].attention_connection
    assert isinstance(connection, HyperConnection)
    _, route = connection.read(state)
    assert route.mix is not None
    assert route.mix.shape == (2, 6, 4, 4)
    assert (route.mix[0, 0] != route.mix[0, 1]).all()
