"""The result of a study as a table for the terminal."""

from rich import box
from rich.table import Table
from rich.text import Text

from depthbench.report.facts import Cell, grid
from depthbench.report.study import depths
from depthbench.study.findings import Verdict


def result_table(verdict: Verdict) -> Table:
    """Designs × depths: mean validation loss in bits per byte, ± standard deviation over seeds.

    A star marks each design's best depth; a diverged or failed shape says so in its place.
    """
    table = Table(
        title=Text(f"{verdict.study}: validation loss, bits per byte"),
        caption="* best depth of the design",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("design")
    for layers in depths(verdict):
        table.add_column(f"{layers} layers", justify="right")
    table.add_column("learning rate", justify="right")
    for design, (label, cells) in zip(verdict.designs, grid(verdict), strict=True):
        used = design.search.used
        table.add_row(
            Text(label),
            *(_text(cell) for cell in cells),
            "–" if used is None else f"{used:g}",
        )
    return table


def _text(cell: Cell) -> Text:
    note = f" ({cell.note})" if cell.note else ""
    if cell.best:
        return Text(f"{cell.text}*{note}", style="bold")
    return Text(f"{cell.text}{note}")
