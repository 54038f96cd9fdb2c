"""Cost against aspect ratio: what a deeper and narrower model pays."""

from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from depthbench.cost.grid import GridRow
from depthbench.report.figures import ASPECT, STYLE, aspect_axis, look, plain, save_as
from depthbench.report.style import marks

PANELS: tuple[tuple[str, Callable[[GridRow], float]], ...] = (
    ("prefill (TFLOP)", lambda row: row.served.ledger.stated_prefill / 1e12),
    ("keys and values (MiB)", lambda row: row.served.ledger.cache.total / 2**20),
    ("memory to serve (MiB)", lambda row: row.served.memory / 2**20),
    ("time to first token (ms)", lambda row: row.served.ttft * 1e3),
    ("time per token (ms)", lambda row: row.served.tpot * 1e3),
    ("kernels per token", lambda row: row.served.ledger.decode.total.kernels),
)


def write_cost_figure(rows: Sequence[GridRow], folder: Path) -> list[Path]:
    """Write ``cost.png`` and ``cost.svg`` to ``folder``; their paths."""
    with mpl.rc_context(STYLE):
        return save_as(cost_figure(rows), folder, "cost")


def cost_figure(rows: Sequence[GridRow]) -> Figure:
    """Six panels over the aspect ratio, one line a design; both axes start with the data."""
    by_label: dict[str, list[GridRow]] = {}
    for row in sorted(rows, key=lambda row: row.model.shape.aspect_ratio):
        by_label.setdefault(row.label, []).append(row)
    style = marks(by_label)
    figure = Figure(figsize=(13, 7), layout="constrained")
    for axes, (title, value) in zip(figure.subplots(2, 3).flat, PANELS, strict=True):
        for label, several in by_label.items():
            axes.plot(
                [row.model.shape.aspect_ratio for row in several],
                [value(row) for row in several],
                **look(style[label]),
            )
        axes.set_title(title)
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        aspect_axis(axes, [(row.model.shape.aspect_ratio, row.model.shape.layers) for row in rows])
        axes.set_xlabel(ASPECT, fontsize=8)
    handles = [Line2D([], [], **look(mark)) for mark in style.values()]
    names = [plain(label) for label in style]
    figure.legend(handles, names, loc="outside lower center", ncols=8, frameon=False, fontsize=9)
    first = rows[0].served
    figure.suptitle(
        plain(
            f"Cost at {first.ledger.context:,} tokens, batch {first.ledger.batch}, "
            f"{first.ledger.dtype}, as modelled on {first.device}"
        ),
        x=0.01,
        ha="left",
        fontsize=11,
    )
    return figure
