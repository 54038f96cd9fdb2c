"""``depthbench designs``: the table of residual designs, or one design and its options."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from depthbench.cli.console import wide_console
from depthbench.cores import cores
from depthbench.designs import REGISTRY, design_class
from depthbench.docs.rows import options_of, row_of, shown, words_of
from depthbench.errors import DepthbenchError
from depthbench.files import user_path

EXAMPLE = """Examples:

depthbench designs

depthbench designs hc

depthbench designs --docs docs
"""
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
    docs: Annotated[
        str | None,
        typer.Option("--docs", help="Write designs.md and its figures to this folder: minutes."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=1, help="Of --docs: designs at once; default: one a core."),
    ] = None,
) -> None:
    """List the residual designs: what a site reads, its weights, own parameters, paper.

    The number of own parameters is counted at 24 layers of width 1024 with 16 heads.
    """
    if docs is not None:
        if name is not None or as_json:
            raise DepthbenchError("--docs writes all designs. Leave out the name and --json")
        _write_docs(user_path(docs), workers or cores())
        return
    if name is not None:
        row = {**row_of(name), "options": options_of(name)}
        typer.echo(json.dumps(row, indent=2, ensure_ascii=False)) if as_json else _show_one(row)
        return
    rows = [row_of(known) for known in REGISTRY]
    typer.echo(json.dumps(rows, indent=2, ensure_ascii=False)) if as_json else _show_all(rows)


def meanings(row: dict[str, Any]) -> list[str]:
    """What the config says of its options, and they of themselves."""
    own = [f"{o['name']}: {o['meaning']}" for o in row["options"] if o["meaning"]]
    return [words_of(design_class(row["name"]).Config), *own]


def _write_docs(folder: Path, workers: int) -> None:
    # matplotlib and the checks would slow every other command down
    from depthbench.docs.page import write_docs

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("measuring", total=len(REGISTRY))
        page = write_docs(folder, workers, lambda _: progress.advance(bar))
    typer.echo(f"{len(REGISTRY)} designs: {page}")


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
    wide_console(WIDE).print(table)


def _show_one(row: dict[str, Any]) -> None:
    facts = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    headings = {"own": "own parameters", "own_at_24_layers_width_1024": "at 24 × 1024"}
    for key, value in row.items():
        if key != "options":
            number = f"{value:,}" if isinstance(value, int) else str(value)
            facts.add_row(headings.get(key, key.replace("_", " ")), escape(number))
    console = wide_console(WIDE)
    console.print(facts)
    if not row["options"]:
        console.print("no options")
        return
    options = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("option", "default", "allowed"):
        options.add_column(heading)
    for option in row["options"]:
        options.add_row(option["name"], shown(option["default"]), escape(option["allowed"]))
    console.print()
    console.print(options)
    console.print()
    for line in meanings(row):
        console.print(line, markup=False, highlight=False)
