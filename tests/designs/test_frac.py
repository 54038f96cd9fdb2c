"""Frac-Connections: ``x = N([Σ_i Y[i, j] H_i]_j)``, new ``H_j = Σ_i A[i, j] H_i + β_j y_j``."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from depthbench.designs.frac import FracConnection
from depthbench.errors import DepthbenchError
from depthbench.nn.count import count_parameters
from depthbench.nn.model import Model
from depthbench.shapes import Shape
from tests.oracles import Oracle, assert_equation, config_of

Matrix = list[list[Tensor]]


def coefficients(
    o: Oracle, site: int, fractions: list[Tensor], dynamic: bool
) -> tuple[Matrix, Matrix, list[Tensor]]:
    """``Y``, ``A`` and ``β`` of a site, of ``(t,)`` vectors."""
    m, time = len(fractions), len(fractions[0])
    changes = [torch.zeros(time, 2 * m + 1, dtype=torch.float64)] * m
    scale_read = scale_write = torch.zeros((), dtype=torch.float64)
    if dynamic:
        weight = o.own(site, "dynamic")
        scale_read, scale_write = o.own(site, "scale_read"), o.own(site, "scale_write")
        changes = [torch.tanh(o.norm(site, h, "norm_fractions") @ weight.T) for h in fractions]
    read, mix = (
        [
            [o.own(site, name)[i, j] + scale_read * changes[i][:, offset + j] for j in range(m)]
            for i in range(m)
        ]
        for name, offset in (("static_read", 0), ("static_mix", m))
    )
    write = [o.own(site, "static_write")[i] + scale_write * changes[i][:, -1] for i in range(m)]
    return read, mix, write


def equation_of(m: int = 4, dynamic: bool = True) -> Callable[[Oracle, Tensor], Tensor]:
    """The equation with these options."""

    def equation(o: Oracle, h: Tensor) -> Tensor:
        size = o.shape.width // m
        for site in range(o.shape.sites):
            fractions = [h[:, i * size : (i + 1) * size] for i in range(m)]
            read, mix, write = coefficients(o, site, fractions, dynamic)
            parts = [sum(read[i][j][:, None] * fractions[i] for i in range(m)) for j in range(m)]
            y = o.branch(site, o.norm(site, torch.cat(parts, 1)))  # type: ignore[arg-type]  # sum() is typed with its 0
            new = [
                sum(mix[i][j][:, None] * fractions[i] for i in range(m))
                + write[j][:, None] * y[:, j * size : (j + 1) * size]
                for j in range(m)
            ]
            h = torch.cat(new, 1)
        return h

    return equation


@pytest.mark.parametrize(
    "options", [{}, {"dynamic": False}, {"m": 2}, {"m": 1}, {"m": 8, "dynamic": False}], ids=str
)
def test_logits_and_gradients(options: dict[str, Any]) -> None:
    table = {"name": "frac", **{"fractions" if k == "m" else k: v for k, v in options.items()}}
    assert_equation(config_of(table), equation_of(**options))


STATE = torch.arange(2 * 3 * 32, dtype=torch.float64).reshape(2, 3, 32).sin()


def test_output_stays_in_its_fraction_and_matrices_go_from_rows_to_columns() -> None:
    design = {"name": "frac", "dynamic": False}
    model = Model.build(config_of(design), seed=0, dtype=torch.float64)
    connection = model.blocks[0].attention_connection
    assert isinstance(connection, FracConnection)
    with torch.no_grad():
        connection.static_mix[0, 1] = 2
        connection.static_mix[3, 0] = 5
        connection.static_write[2] = 7
    _, route = connection.read(STATE)
    y = STATE.flip(0, 1, 2)
    new = connection.write(STATE, y, route, None)
    h, outputs = STATE.unflatten(-1, (4, 8)).unbind(2), y.unflatten(-1, (4, 8)).unbind(2)
    expected = [
        h[0] + 5 * h[3] + outputs[0],
        h[1] + 2 * h[0] + outputs[1],
        h[2] + 7 * outputs[2],
        h[3] + outputs[3],
    ]
    torch.testing.assert_close(new, torch.cat(expected, -1), rtol=1e-14, atol=1e-14)


def test_start() -> None:
    parameters = dict(Model.build(config_of("frac"), seed=0).named_parameters())
    for site in range(6):
        kind = "feedforward" if site % 2 else "attention"
        own = f"blocks.{site // 2}.{kind}_connection."
        assert torch.equal(parameters[own + "static_read"], torch.eye(4))
        assert torch.equal(parameters[own + "static_mix"], torch.eye(4))
        assert parameters[own + "static_write"].tolist() == [1.0] * 4
        assert not parameters[own + "dynamic"].any()
        assert parameters[own + "scale_read"].item() == pytest.approx(0.01)
        assert parameters[own + "scale_write"].item() == pytest.approx(0.01)


@pytest.mark.parametrize(("dynamic", "published"), [(False, 1152), (True, 165_056)])
def test_published_number_of_own_parameters(dynamic: bool, published: int) -> None:
    """Of OLMo-1B-7B at ``m = 4``: 16 blocks of width 2048."""
    shape = Shape(layers=16, width=2048, heads=16, kv_heads=16, ffn=8, vocab=8)
    config = config_of({"name": "frac", "dynamic": dynamic}, shape)
    assert count_parameters(config).own == published


def test_a_number_that_does_not_divide_the_width_is_refused() -> None:
    message = r"fractions = 3 does not divide width = 32\. Set fractions to one of 1, 2, 4, 8, 16,"
    with pytest.raises(DepthbenchError, match=message):
        Model.on_meta(config_of({"name": "frac", "fractions": 3}))


@pytest.mark.parametrize(
    "options", [{}, {"dynamic": False}, {"fractions": 2}, {"fractions": 1}], ids=str
)
def test_facts_hold(options: dict[str, Any]) -> None:
    for fact in Model.on_meta(config_of({"name": "frac", **options})).design.facts():
        assert abs(fact.measured - fact.expected) <= fact.tolerance, fact
