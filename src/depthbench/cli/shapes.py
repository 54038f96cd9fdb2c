"""``depthbench shapes``: solve shapes for a budget, or print a published family."""

import json
from typing import Annotated, Any

import typer
from rich.table import Table

from depthbench.cli.console import wide_console
from depthbench.cli.numbers import numbers
from depthbench.designs import parse_design
from depthbench.errors import DepthbenchError
from depthbench.families import FAMILIES, VOCAB, family
from depthbench.nn.count import Parameters, count_parameters
from depthbench.nn.model import ModelConfig
from depthbench.shapes import Shape, parse_count
from depthbench.solve import DEFAULT_VOCAB, solve_shapes

EXAMPLE = """Examples:

depthbench shapes --params 1M --depths 2,4,8,16

depthbench shapes --params 400M --on total --aspect-ratios 76,28,9 --vocab 50280 --design hc

depthbench shapes --family 400m
"""
WIDE = 100
"""Columns of the table where the output is no terminal that knows its own."""

Params = Annotated[str | None, typer.Option(help="Budget, such as 400M, 1.5B, 500k or 1_000_000.")]
On = Annotated[
    str | None,
    typer.Option(
        help="What the budget counts: total, or backbone (no embedding and head). "
        "The design's own parameters always count.",
        show_default="total",
    ),
]
Depths = Annotated[str | None, typer.Option(help="Numbers of blocks: 2,4,8,16.")]
Ratios = Annotated[str | None, typer.Option(help="Width / layers, instead of --depths: 76,28,9.")]
Heads = Annotated[int | None, typer.Option(help="Attention heads.")]
HeadDim = Annotated[int | None, typer.Option(help="Width of a head, instead of --heads.")]
KVHeads = Annotated[
    int | None, typer.Option(help="Key/value heads.", show_default="as many as heads")
]
Vocab = Annotated[
    int | None,
    typer.Option(
        help="Size of the vocabulary.", show_default=f"{DEFAULT_VOCAB}, the byte tokenizer's"
    ),
]
DesignName = Annotated[str, typer.Option(help="Design whose own parameters are counted.")]
Tolerance = Annotated[
    float | None, typer.Option(help="Largest relative error.", show_default="0.01")
]
Family = Annotated[
    str | None,
    typer.Option("--family", help=f"A published family instead: {', '.join(FAMILIES)}."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Add the command ``shapes`` to ``app``."""
    app.command("shapes", epilog=EXAMPLE)(shapes)


def shapes(
    params: Params = None,
    on: On = None,
    depths: Depths = None,
    aspect_ratios: Ratios = None,
    heads: Heads = None,
    head_dim: HeadDim = None,
    kv_heads: KVHeads = None,
    vocab: Vocab = None,
    design: DesignName = "prenorm",
    tolerance: Tolerance = None,
    family_name: Family = None,
    as_json: AsJson = False,
) -> None:
    """Find width and feed-forward of shapes that share one parameter budget."""
    given = {
        "params": params,
        "on": on,
        "depths": None if depths is None else numbers("depths", depths, int),
        "aspect_ratios": (
            None if aspect_ratios is None else numbers("aspect-ratios", aspect_ratios, float)
        ),
        "heads": heads,
        "head_dim": head_dim,
        "kv_heads": kv_heads,
        "vocab": vocab,
        "tolerance": tolerance,
    }
    options = {key: value for key, value in given.items() if value is not None}
    rows = (
        _solved(options, design)
        if family_name is None
        else _published(family_name, options, design)
    )
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    console = wide_console(WIDE)
    console.print(table_of(rows))


def _solved(options: dict[str, Any], design: str) -> list[dict[str, Any]]:
    if "params" not in options:
        raise DepthbenchError(
            "--params and --family are both missing. "
            "Write --params 1M --depths 2,4,8,16, or --family 400m"
        )
    params = parse_count(options.pop("params"), "--params")
    found = solve_shapes(params, design=design, **options)
    return [_row(solved.shape, solved.parameters, solved.error) for solved in found]


def _published(name: str, options: dict[str, Any], design: str) -> list[dict[str, Any]]:
    if options:
        flag = next(iter(options)).replace("_", "-")
        raise DepthbenchError(
            f"--family {name} and --{flag} are both given. A published family has its sizes and "
            f"a vocabulary of {VOCAB}: leave one of the two out"
        )
    config = parse_design(design)
    return [
        _row(shape, count_parameters(ModelConfig(shape=shape, design=config)), None)
        for shape in family(name)
    ]


def _row(shape: Shape, parameters: Parameters, error: float | None) -> dict[str, Any]:
    return {
        **shape.resolved(),
        "head_dim": shape.head_dim,
        "aspect_ratio": shape.aspect_ratio,
        **parameters.resolved(),
        "error": error,
    }


def table_of(rows: list[dict[str, Any]]) -> Table:
    """The shapes as a table; the error only where there was a budget."""
    names = ["layers", "width", "heads", "kv", "ffn", "head width", "aspect", "backbone"]
    names += ["total", "own", "error"]
    with_error = rows[0]["error"] is not None
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for name in names if with_error else names[:-1]:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        cells = [str(row[key]) for key in ("layers", "width", "heads", "kv_heads", "ffn")]
        cells += [str(row["head_dim"]), f"{row['aspect_ratio']:.1f}"]
        cells += [short(row[key]) for key in ("backbone", "total", "own")]
        table.add_row(*cells, *([f"{row['error']:+.2%}"] if with_error else []))
    return table


def short(count: int) -> str:
    """All digits below ten million, else millions with one decimal."""
    return f"{count:,}" if abs(count) < 10**7 else f"{count / 1e6:,.1f}M"
