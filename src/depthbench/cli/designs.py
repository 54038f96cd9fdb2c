"""``depthbench designs``: the table of residual designs, or one design and its options."""

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from depthbench.designs import REGISTRY, design_class, parse_design
from depthbench.nn.count import count_parameters
from depthbench.nn.model import ModelConfig
from depthbench.shapes import Shape

EXAMPLE = """Examples:

depthbench designs

depthbench designs hc
"""
STATED = Shape(layers=24, width=1024, heads=16, kv_heads=16, ffn=2736, vocab=50280)
"""The shape that the column of own parameters is counted at: the middle of the 400m family."""
WIDE = 180
"""Columns of the table where the output is no terminal that knows its own."""


def register(app: typer.Typer) -> None:
    """Add the command ``designs`` to ``app``."""
    app.command("designs", epilog=EXAMPLE)(designs)


def designs(
    name: Annotated[
        str | None, typer.Argument(help="One design: its card and options.", show_default="all")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the residual designs: what a site reads, its weights, its own parameters, its paper.

    The number of own parameters is counted at 24 layers of width 1024 with 16 heads.
    """
    if name is not None:
        row = {**row_of(name), "options": options_of(name)}
        typer.echo(json.dumps(row, indent=2, ensure_ascii=False)) if as_json else _show_one(row)
        return
    rows = [row_of(known) for known in REGISTRY]
    typer.echo(json.dumps(rows, indent=2, ensure_ascii=False)) if as_json else _show_all(rows)


def row_of(name: str) -> dict[str, Any]:
    """Card of a design, and its own parameters at `STATED` as the model has them."""
    card = design_class(name).card
    config = ModelConfig(shape=STATED, design=parse_design(name))
    return {
        "name": name,
        "family": card.family,
        "sources": card.sources,
        "weights": card.weights,
        "own": card.own,
        "own_at_24_layers_width_1024": count_parameters(config).own,
        "equation": card.equation,
        "paper": card.paper,
        "peak_lr": card.peak_lr,
    }


def options_of(name: str) -> list[dict[str, Any]]:
    """Options of a design: name, default and what is allowed, from its config's JSON schema."""
    config = design_class(name).Config
    default = config(name=name).resolved()
    properties = config.model_json_schema()["properties"]
    return [
        {"name": key, "default": default[key], "allowed": _allowed(schema)}
        for key, schema in properties.items()
        if key != "name"
    ]


def _allowed(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(str(value) for value in schema["enum"])
    limits = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    bounds = [f"{sign} {schema[key]:g}" for key, sign in limits.items() if key in schema]
    return ", ".join([str(schema["type"]), *bounds])


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=WIDE)


def _show_all(rows: list[dict[str, Any]]) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("name", "family", "sources", "weights", "own parameters"):
        table.add_column(heading, no_wrap=heading == "name")
    table.add_column("at 24 × 1024", justify="right", no_wrap=True)
    table.add_column("equation")
    table.add_column("paper")
    for row in rows:
        own = f"{row['own_at_24_layers_width_1024']:,}"
        cells = [row[key] for key in ("name", "family", "sources", "weights", "own")]
        table.add_row(*map(escape, [*cells, own, row["equation"], row["paper"]]))
    _console().print(table)


def _show_one(row: dict[str, Any]) -> None:
    facts = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    headings = {"own": "own parameters", "own_at_24_layers_width_1024": "at 24 × 1024"}
    for key, value in row.items():
        if key != "options":
            number = f"{value:,}" if isinstance(value, int) else str(value)
            facts.add_row(headings.get(key, key.replace("_", " ")), escape(number))
    console = _console()
    console.print(facts)
    if not row["options"]:
        console.print("no options")
        return
    options = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("option", "default", "allowed"):
        options.add_column(heading)
    for option in row["options"]:
        options.add_row(option["name"], str(option["default"]).lower(), option["allowed"])
    console.print()
    console.print(options)
