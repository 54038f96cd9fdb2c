"""Figures of a design: its measured wiring, and signal and gradient by depth at the start."""

import io
import math
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import NullLocator

from depthbench.check.signal import Signal
from depthbench.docs.wiring import LAST, Wiring, over_largest

INK, SOFT, GRID = "#2b2d33", "#6c6f78", "#e4e2dc"
EMBEDDING, ATTENTION, FEEDFORWARD, STORED = "#6c6f78", "#0072b2", "#d55e00", "#008566"
DEPTH_COLOURS = ("#9a7400", "#008566", "#0072b2", "#5b3fa8")
MARKERS = ("o", "s", "^", "v")
STYLE: dict[Any, Any] = {
    "font.size": 10.5,
    "font.family": "sans-serif",
    "text.color": INK,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "grid.color": GRID,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "svg.hashsalt": "depthbench",
    "svg.fonttype": "none",
    # an own ground, so that the figure reads on light and dark pages
    "figure.facecolor": "#ffffff",
}
FAINT = 0.01
"""Relative strength under which a wire is a dotted hair line."""
STORED_FOOT = -1.3
"""Where arcs of stored entries begin, below the names of the sites."""
POINTS = 33
"""Most points of a curve by depth."""


def svg_of(figure: Figure) -> bytes:
    """The same bytes for the same figure, whenever it is drawn."""
    target = io.BytesIO()
    figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})
    return target.getvalue()


def wiring_figure(wirings: dict[str, Wiring]) -> bytes:
    """One panel for each, with its title: sites on a line, an arc for each wire, as SVG."""
    with mpl.rc_context(STYLE):
        below = any(any(row) for wiring in wirings.values() for row in wiring.stored)
        size = (4.6 * len(wirings), 3.3 if below else 2.35)
        figure = Figure(figsize=size, layout="constrained")
        for axes, (title, wiring) in zip(
            figure.subplots(1, len(wirings), squeeze=False)[0], wirings.items(), strict=True
        ):
            _draw_wiring(axes, wiring, below)
            axes.set_title(title)
        return svg_of(figure)


def _draw_wiring(axes: Axes, wiring: Wiring, below: bool) -> None:
    colours = [EMBEDDING, *(_colour(name) for name in wiring.targets)]
    for target in range(len(wiring.targets)):
        for source, strength in enumerate(wiring.relative(target)):
            if strength:
                returns = wiring.backward[target][source]
                _arc(axes, source, target + 1, strength, colours[source], solid=returns)
    for target, row in enumerate(wiring.stored):
        for source, strength in enumerate(over_largest(row)):
            if strength:
                _arc(axes, source + 1, target + 1, strength, STORED, down=True)
    for place, name in enumerate((*wiring.sources, LAST)):
        axes.plot([place], [0], "s" if name in ("emb", LAST) else "o", color=colours[place], ms=7)
        axes.annotate(
            name, (place, 0), (0, -8), textcoords="offset points", ha="center", va="top", size=10
        )
    last = len(wiring.targets)
    axes.set_xlim(-0.4, last + 0.4)
    axes.set_ylim(STORED_FOOT - 0.4 * _height(last) if below else -1.0, 0.2 + _height(last))
    axes.axis("off")


def _colour(name: str) -> str:
    return {"A": ATTENTION, "F": FEEDFORWARD}.get(name[0], INK)


def _height(span: int) -> float:
    return span**0.9


def _arc(
    axes: Axes,
    start: int,
    end: int,
    strength: float,
    colour: str,
    *,
    solid: bool = True,
    down: bool = False,
) -> None:
    """Half an ellipse, as wide and dark as the wire is strong; dashed where no gradient returns."""
    top = 4 / 3 * _height(end - start) * (-0.4 if down else 1.0)
    foot = STORED_FOOT if down else 0.0
    corners = [(start, foot), (start, foot + top), (end, foot + top), (end, foot)]
    path = Path(corners, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])
    style = ":" if strength < FAINT else "-" if solid else (0, (3, 1.5))
    axes.add_patch(
        PathPatch(
            path,
            fill=False,
            edgecolor=colour,
            linestyle=style,
            linewidth=0.5 + 1.5 * strength,
            alpha=0.3 + 0.6 * strength,
            clip_on=False,
        )
    )


def signal_figure(signals: Sequence[Signal]) -> bytes:
    """Variance of the state, and the gradients, by relative depth for every number of blocks."""
    panels = {
        "variance of the state": [signal.forward for signal in signals],
        "gradient² by branch outputs": [signal.backward for signal in signals],
        "gradient by parameters": [signal.gradient for signal in signals],
    }
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.6, 2.5), layout="constrained")
        for axes, (title, curves) in zip(figure.subplots(1, 3), panels.items(), strict=True):
            _draw_curves(axes, curves)
            axes.set_title(title, size=10)
            axes.set_xlabel("depth")
        names = [f"{signal.layers} blocks" for signal in signals]
        handles = figure.axes[0].get_lines()
        figure.legend(handles, names, loc="outside right center", frameon=False)
        return svg_of(figure)


def _draw_curves(axes: Axes, curves: Sequence[list[float | None]]) -> None:
    for number, curve in enumerate(curves):
        points = [(place / max(1, len(curve) - 1), curve[place]) for place in _chosen(len(curve))]
        heights = [value if value else math.nan for _, value in points]
        colour, marker = DEPTH_COLOURS[number], MARKERS[number]
        xs, every = [x for x, _ in points], max(1, len(points) // 4)
        axes.plot(xs, heights, color=colour, marker=marker, markevery=every, ms=5, lw=1.6)
    axes.set_xticks([0, 1], ["bottom", "top"])
    axes.grid(True, axis="y")
    axes.margins(x=0.06)
    values = [value for curve in curves for value in curve if value]
    if values:
        low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        axes.set_yscale("log")
        axes.set_ylim(10.0**low / 1.3, 10.0 ** max(high, low + 1) * 1.3)
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_yticks([])
        axes.text(0.5, 0.5, "0 everywhere", transform=axes.transAxes, ha="center", color=SOFT)


def _chosen(length: int) -> list[int]:
    """Places of a curve that are drawn: all, or evenly spread ones with both ends."""
    points = min(length, POINTS)
    return sorted({round(i * (length - 1) / max(1, points - 1)) for i in range(points)})
