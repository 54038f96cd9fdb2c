"""What probes found as PNG and SVG: curves of all models in one figure, heat maps side by side."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from depthbench.probes.result import Curve, Matrix
from depthbench.report.figures import STYLE, plain, save_as
from depthbench.report.health_plots import COLOURS
from depthbench.report.probe_groups import (
    Probed,
    Together,
    curves,
    lines_of,
    matrices,
    probes_of,
    scale_of,
    ticks,
)
from depthbench.report.probe_plots import DIVERGING
from depthbench.report.style import Mark

COLUMNS = 3
"""Heat maps in a row."""
NAMES = 2
"""Names of models in a row."""
WIDE = 7.6
LEFT, BOTTOM, TOP, HEAD, BAR, LINE = 1.0, 0.62, 0.4, 0.7, 1.35, 0.26
"""Inches: of axis labels, a title, that of a figure too, a colour bar with its labels, and a row of
names."""


class Margins(NamedTuple):
    """Around all axes, in inches."""

    left: float = LEFT
    bottom: float = BOTTOM
    right: float = 0.2
    top: float = TOP


def write_probe_figures(
    models: Sequence[Probed], style: dict[str, Mark], folder: Path
) -> list[Path]:
    """Write ``<probe>-<finding>.png`` and ``.svg`` of all curves and matrices; their paths."""
    paths: list[Path] = []
    with mpl.rc_context(STYLE):
        for name, draw in _drawings(models, style):
            paths += save_as(draw(), folder, name)
    return paths


def file_name(probe: str, finding: str) -> str:
    """A name without anything that a folder could take amiss."""
    return re.sub(r"[^\w-]+", "-", f"{probe}-{finding}")


def curve_figure(together: Together[Curve], style: dict[str, Mark]) -> Figure:
    """One line a model; error bars where a curve has intervals."""
    lines = math.ceil(len(together.sides) / NAMES) if len(together.sides) > 1 else 0
    figure = Figure(figsize=(WIDE, 4.0 + LINE * lines))
    [[axes]] = _grid(figure, 1, 1, Margins(bottom=BOTTOM + LINE * lines))
    for _, one, name, mark in lines_of(together, style):
        values = _array(one.values)
        look: dict[str, Any] = {
            "color": mark.light,
            "marker": mark.marker,
            "linestyle": mark.line,
            "markersize": 4.5,
            "label": plain(name),
        }
        if one.low and one.high:
            ends = np.stack([values - _array(one.low), _array(one.high) - values])
            axes.errorbar(one.places, values, yerr=ends, elinewidth=1.1, capsize=2.5, **look)
        else:
            axes.plot(one.places, values, **look)
    whole = ticks(place for _, one in together.sides for place in one.places) is not None
    axes.xaxis.set_major_locator(MaxNLocator(integer=whole))
    axes.set_xlabel(plain(together.first.axis))
    axes.set_ylabel(plain(together.measure))
    axes.set_title(plain(together.title))
    if len(together.sides) > 1:
        figure.legend(loc="lower center", ncols=NAMES, frameon=False)
    return figure


def map_figure(together: Together[Matrix]) -> Figure:
    """A heat map for each model, all on one scale; missing values are blank."""
    count = len(together.sides)
    columns = min(COLUMNS, count)
    rows = math.ceil(count / columns)
    wide, high = 4.0 * columns + BAR, 3.7 * rows + 0.5
    figure = Figure(figsize=(wide, high))
    grid = _grid(figure, rows, columns, Margins(top=HEAD, right=BAR))
    scale = scale_of(together)
    drawn = list(grid.flat[:count])
    for axes in grid.flat[count:]:
        axes.set_visible(False)
    for axes, (model, one) in zip(drawn, together.sides, strict=True):
        image = axes.imshow(
            np.array([_array(line) for line in one.values]),
            origin="lower",
            aspect="auto",
            interpolation="none",
            cmap=_colours(scale.diverging),
            vmin=scale.low,
            vmax=scale.high,
        )
        axes.grid(visible=False)
        for axis, places in ((axes.xaxis, one.columns), (axes.yaxis, one.rows)):
            axis.set_major_locator(MaxNLocator(nbins=8, integer=True))
            axis.set_major_formatter(FuncFormatter(_namer(places)))
        axes.set_xlabel(plain(one.column_axis))
        axes.set_ylabel(plain(one.row_axis))
        if count > 1:
            axes.set_title(plain(model.name), fontsize=10.5)
        if axes is drawn[-1]:
            tall = (high - BOTTOM - HEAD) / high
            bar = figure.add_axes(((wide - BAR + 0.2) / wide, BOTTOM / high, 0.2 / wide, tall))
            figure.colorbar(image, cax=bar, label=plain(together.measure))
    title = f"{together.title}. {scale.words}" if scale.words else together.title
    figure.suptitle(plain(title), x=0.01, ha="left", fontsize=11, wrap=True)
    return figure


def _grid(figure: Figure, rows: int, columns: int, margins: Margins) -> Any:
    """Axes with room in inches for their labels: a layout by measuring costs as much as drawing."""
    width, height = figure.get_size_inches()
    left, bottom, right, top = margins
    wide = (width - left - right - (columns - 1) * LEFT) / columns
    high = (height - bottom - top - (rows - 1) * (TOP + BOTTOM)) / rows
    return figure.subplots(
        rows,
        columns,
        squeeze=False,
        gridspec_kw={
            "left": left / width,
            "right": 1 - right / width,
            "bottom": bottom / height,
            "top": 1 - top / height,
            "wspace": LEFT / wide,
            "hspace": (TOP + BOTTOM) / high,
        },
    )


def _drawings(
    models: Sequence[Probed], style: dict[str, Mark]
) -> Iterator[tuple[str, Callable[[], Figure]]]:
    for probe in probes_of(models):
        for lines in curves(models, probe):
            name = file_name(probe, lines.first.name)
            yield name, lambda one=lines: curve_figure(one, style)
        for maps in matrices(models, probe):
            yield file_name(probe, maps.first.name), lambda one=maps: map_figure(one)


def _array(values: Sequence[float | None]) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def _colours(diverging: bool) -> str | Colormap:
    if not diverging:
        return COLOURS.lower()
    return LinearSegmentedColormap.from_list("diverging", DIVERGING)


def _namer(places: Sequence[float]) -> Callable[[float, int], str]:
    """Labels of ticks that count places."""

    def name(index: float, _: int) -> str:
        inside = index == int(index) and 0 <= index < len(places)
        return f"{places[int(index)]:g}" if inside else ""

    return name
