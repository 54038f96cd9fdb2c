"""The coordinate check's figure: change of activations over depth and over width."""

from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from depthbench.report.figures import STYLE, look, save_as
from depthbench.report.style import Mark, marks
from depthbench.train.coordinates import QUANTITIES, CoordinateCheck, Slope

NAMES = {
    "standard": "standard",
    "depth_mup": "depth-µP (α = 1/2)",
    "completep": "CompleteP (α = 1)",
}


def write_coordinates(check: CoordinateCheck, folder: Path) -> list[Path]:
    """Write ``coordinates.png`` and ``coordinates.svg`` to ``folder``; their paths."""
    with mpl.rc_context(STYLE):
        return save_as(coordinate_figure(check), folder, "coordinates")


def coordinate_figure(check: CoordinateCheck) -> Figure:
    """A row for each direction with a slope, a column for each quantity; slopes in the legends."""
    rows = list(dict.fromkeys(slope.over for slope in check.slopes))
    style = marks(dict.fromkeys(slope.kind for slope in check.slopes))
    figure = Figure(figsize=(12.5, 3.7 * len(rows) + 0.5), layout="constrained")
    grid = figure.subplots(len(rows), len(QUANTITIES), squeeze=False)
    for line, over in zip(grid, rows, strict=True):
        for axes, (quantity, words) in zip(line, QUANTITIES.items(), strict=True):
            slopes = [s for s in check.slopes if s.over == over and s.quantity == quantity]
            _draw(axes, slopes, style)
            axes.set_title(words, fontsize=10.5)
            fixed = (
                f"width {check.base_width}" if over == "layers" else f"{check.base_layers} layers"
            )
            axes.set_xlabel(f"{over}   ({fixed})")
        line[0].set_ylabel("change, root mean square")
    steps = check.grid.steps
    title = f"Coordinate check of {check.design}: change of activations after {steps} steps"
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    handles = [Line2D([], [], **look(mark)) for mark in style.values()]
    labels = [NAMES[kind] for kind in style]
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return figure


def _draw(axes: Axes, slopes: list[Slope], style: dict[str, Mark]) -> None:
    for slope in slopes:
        mark = style[slope.kind]
        axes.plot(
            slope.sizes,
            slope.changes,
            **look(mark),
            label=f"slope {slope.slope:+.2f}",
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    sizes = sorted({size for slope in slopes for size in slope.sizes})
    axes.xaxis.set_major_locator(FixedLocator(sizes))
    axes.xaxis.set_major_formatter(FixedFormatter([str(size) for size in sizes]))
    axes.xaxis.set_minor_locator(NullLocator())
    low, high = axes.get_ylim()
    # room for the legend, and at least a decade, so that a flat line looks flat
    axes.set_ylim(low / 1.5, max(high * 4, low * 10))
    axes.legend(loc="upper left", fontsize=9, frameon=False)
