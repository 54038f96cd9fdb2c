"""The table for the terminal."""

import io

from rich.console import Console

from depthbench.report.table import result_table
from depthbench.study.store import Row
from depthbench.study.verdict import judge
from tests.report.synthetic import rich_rows, row


def shown(rows: list[Row]) -> list[list[str]]:
    console = Console(file=io.StringIO(), width=200)
    with console.capture() as capture:
        console.print(result_table(judge(rows)))
    return [line.split("  ") for line in capture.get().splitlines()]


def cells(rows: list[Row], label: str) -> list[str]:
    line = next(line for line in shown(rows) if line[0].strip() == label or label in line[:2])
    return [cell.strip() for cell in line if cell.strip()]


def test_cells_hold_mean_spread_best_and_loss_of_seeds() -> None:
    rows = rich_rows()
    assert cells(rows, "hc") == [
        "hc",
        "2.250 ± 0.008",
        "2.140 ± 0.008",
        "2.130 ± 0.008",
        "2.120 ± 0.008*",
        "0.004",
    ]
    assert cells(rows, "deepnorm")[4] == "2.420 ± 0.011 (n = 2, 1 diverged)"


def test_a_missing_shape_is_a_dash_and_a_diverged_one_says_so() -> None:
    rows = [row("[red]a", 2, 2.3), row("b", 2, 2.4), row("b", 8, None, status="diverged")]
    assert cells(rows, "[red]a") == ["[red]a", "2.300*", "–", "0.004"]
    assert cells(rows, "b") == ["b", "2.400*", "diverged", "0.004"]
