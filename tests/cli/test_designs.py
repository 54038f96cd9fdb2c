import json
from typing import Any

import pytest
import typer
from sympy import Symbol
from sympy.parsing.sympy_parser import (
    implicit_multiplication,
    parse_expr,
    standard_transformations,
)
from typer.testing import CliRunner

from depthbench.cli import designs, shapes
from depthbench.designs import REGISTRY
from depthbench.errors import DepthbenchError
from depthbench.nn.count import count_parameters
from depthbench.nn.model import ModelConfig
from depthbench.shapes import Shape

app = typer.Typer()
shapes.register(app)
designs.register(app)


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["designs", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def formula(text: str, shape: Shape, streams: int) -> int:
    """Value of a card's formula: juxtaposition multiplies, `·` too."""
    sizes = {
        "L": shape.layers,
        "d": shape.width,
        "m": streams,
        "kv_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        # true counts as 1
        "before": 1,
    }
    symbols = {name: Symbol(name) for name in sizes}
    rules = (*standard_transformations, implicit_multiplication)
    parsed = parse_expr(text.replace("²", "**2").replace("·", "*"), symbols, rules)
    return int(parsed.subs({symbols[name]: size for name, size in sizes.items()}))


SHAPES = [
    Shape(layers=3, width=48, heads=6, kv_heads=2, ffn=80, vocab=99),
    Shape(layers=7, width=40, heads=2, kv_heads=1, ffn=112, vocab=31),
]
SPECS: list[tuple[dict[str, Any], int]] = [
    *(({"name": name}, 4) for name in REGISTRY),
    ({"name": "hc", "streams": 3}, 3),
    ({"name": "mhc", "streams": 2}, 2),
]


@pytest.mark.parametrize("shape", SHAPES, ids=["L3", "L7"])
@pytest.mark.parametrize(("spec", "streams"), SPECS, ids=lambda value: str(value))
def test_formula_of_the_card_is_what_the_model_has(
    spec: dict[str, Any], streams: int, shape: Shape
):
    own = count_parameters(ModelConfig.parse({"shape": shape, "design": spec})).own
    assert own == formula(REGISTRY[spec["name"]].card.own, shape, streams)


def test_table_names_every_design_and_its_parameters():
    lines = printed().splitlines()
    starts = {line.split()[0]: line for line in lines if line[:1].strip()}
    assert list(starts) == ["name", *REGISTRY]
    # 48.2 M: published for MoDA at 24 layers of width 1024
    assert "48,234,496" in starts["moda"]
    assert "softmax over [sequence," in starts["moda"]
    assert "345,312" in starts["hc"]
    assert "arXiv 2502.05795" in starts["lns"]
    assert "dynamic" in starts["attnres"]


def test_json_of_all():
    rows = {row["name"]: row for row in json.loads(printed("--json"))}
    assert list(rows) == list(REGISTRY)
    assert rows["keel"]["own_at_24_layers_width_1024"] == 2 * 24 * 1024 - 1024
    assert rows["lns"]["peak_lr"] == 0.01


def test_one_design_shows_options_and_defaults():
    lines = [line.split(maxsplit=2) for line in printed("mhc").splitlines()]
    assert ["streams", "4", "integer, ≥ 1"] in [[c.strip() for c in line] for line in lines]
    assert ["start", "identity", "identity | paper"] in [[c.strip() for c in x] for x in lines]
    assert ["gate", "0.01", "number, > 0"] in [[c.strip() for c in line] for line in lines]
    assert "no options" in printed("keel")
    assert "softmax over [sequence, depth]; h ← h + y" in printed("moda")


def test_option_that_may_stay_unset():
    (option,) = json.loads(printed("layerscale", "--json"))["options"]
    assert (option["default"], option["allowed"]) == (None, "number, ≥ 0 | unset")
    assert any(
        line.split()[:2] == ["start", "unset"] for line in printed("layerscale").splitlines()
    )


@pytest.mark.parametrize("name", REGISTRY)
def test_every_design_shows_its_options(name: str):
    row = json.loads(printed(name, "--json"))
    shown = printed(name)
    assert all(option["name"] in shown for option in row["options"])
    assert [o["name"] for o in row["options"]] == list(REGISTRY[name].Config.model_fields)[1:]


def test_json_of_one_has_options():
    row = json.loads(printed("hc", "--json"))
    assert {o["name"]: o["default"] for o in row["options"]} == {
        "streams": 4,
        "merged_from": None,
        "mix": True,
        "dynamic": True,
        "scale": 0.01,
    }
    assert row["equation"].startswith("x = N(Σ α_i H_i)")


def test_unknown_design():
    result = CliRunner().invoke(app, ["designs", "atnres"])
    assert isinstance(result.exception, DepthbenchError)
    assert "unknown design 'atnres', did you mean 'attnres'?" in str(result.exception)
