"""``depthbench coordcheck``: whether learning rates can transfer over depth and width."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from depthbench.cli.console import wide_console
from depthbench.cli.numbers import numbers
from depthbench.machine import prepare_process
from depthbench.train.coordinates import (
    QUANTITIES,
    CoordinateCheck,
    Grid,
    coordinate_check,
)

EXAMPLE = """Examples:

depthbench coordcheck

depthbench coordcheck hc --layers 2,8,32 --widths 32 --out figures
"""
WIDE = 100
"""Columns of the table where the output is no terminal that knows its own."""
DEFAULTS = Grid()
DEPTHS, WIDTHS = (",".join(map(str, sizes)) for sizes in (DEFAULTS.layers, DEFAULTS.widths))


def register(app: typer.Typer) -> None:
    """Add `coordcheck`."""
    app.command("coordcheck", epilog=EXAMPLE)(coordcheck)


def coordcheck(
    design: Annotated[str, typer.Argument(help="Design whose branch outputs add up.")] = "prenorm",
    layers: Annotated[str, typer.Option(help="Depths; the first is the base.")] = DEPTHS,
    widths: Annotated[str, typer.Option(help="Widths; the first is the base.")] = WIDTHS,
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = DEFAULTS.steps,
    rate: Annotated[float, typer.Option(help="Learning rate.")] = DEFAULTS.learning_rate,
    seeds: Annotated[int, typer.Option(min=1, help="Models of each size.")] = DEFAULTS.seeds,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the figure, as PNG and SVG.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure how far a few steps move activations at many depths and widths.

    For the standard parametrization, depth-µP and CompleteP. A slope near 0 in a direction means
    that a good learning rate transfers in it.
    """
    prepare_process(threads=1)
    sizes = {"layers": numbers("layers", layers, int), "widths": numbers("widths", widths, int)}
    grid = Grid.parse(sizes | {"steps": steps, "learning_rate": rate, "seeds": seeds})
    check = coordinate_check(design, grid)
    files: list[Path] = []
    if out is not None:
        # plotting libraries take a second to import, which no other command should pay
        from depthbench.report.coordinates import write_coordinates

        files = write_coordinates(check, out)
    if as_json:
        typer.echo(json.dumps(check.resolved(), indent=2))
        return
    console = wide_console(WIDE)
    console.print(slope_table(check))
    for path in files:
        console.print(f"Figure: {path}", markup=False, highlight=False, soft_wrap=True)


def slope_table(check: CoordinateCheck) -> Table:
    """A line for each parametrization and direction."""
    title = f"{check.design}: slope of the change of activations after {check.grid.steps} steps"
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", title=title)
    table.add_column("parametrization")
    table.add_column("over")
    for quantity in QUANTITIES:
        table.add_column(quantity, justify="right")
    lines: dict[tuple[str, str], list[str]] = {}
    for slope in check.slopes:
        lines.setdefault((slope.kind, slope.over), []).append(f"{slope.slope:+.2f}")
    for (kind, over), cells in lines.items():
        table.add_row(kind, over, *cells)
    return table
