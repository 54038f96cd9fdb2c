"""A comparison in one figure: final losses, step-by-step difference, and the four observations."""

from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from depthbench.report.figures import INK, SOFT, STYLE, look, plain, save_as
from depthbench.report.style import Mark, marks
from depthbench.study.contrast import ByDepth, Contrast, Curve

PANELS = (
    ("gradient_norm", "Gradient norm by depth", "block"),
    ("state_variance", "State variance by depth", "depth"),
    ("neighbour_cosine", "Similarity of neighbouring depths", "depth"),
)
LOGARITHMIC = ("gradient_norm", "state_variance")
"""Signals that span orders of magnitude and are never negative."""


def write_comparison_figure(found: Contrast, folder: Path) -> list[Path]:
    """Write ``comparison.png`` and ``comparison.svg`` to ``folder``; their paths."""
    with mpl.rc_context(STYLE):
        return save_as(comparison_figure(found), folder, "comparison")


def comparison_figure(found: Contrast) -> Figure:
    """Six panels; what no trial has measured says so in its place."""
    style = marks(found.labels)
    figure = Figure(figsize=(13, 7.4), layout="constrained")
    panels: list[Axes] = list(figure.subplots(2, 3).flat)
    _seeds(panels[0], found, style)
    if found.training is None:
        _nothing(panels[1], "Training loss, difference")
        _nothing(panels[2], "Training loss")
    else:
        _difference(panels[1], found, found.training)
        _training(panels[2], found, found.training, style)
    signals = found.observations.signals()
    for axes, (signal, title, unit) in zip(panels[3:], PANELS, strict=True):
        if signals[signal]:
            _by_depth(axes, found, signals[signal][-1], style, unit)
            if signal in LOGARITHMIC:
                axes.set_yscale("log")
            axes.set_title(f"{title}, step {signals[signal][-1].step:,}")
        else:
            _nothing(axes, title)
    handles = [Line2D([], [], **look(mark)) for mark in style.values()]
    names = [plain(label) for label in style]
    figure.legend(handles, names, loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle(plain(found.sentence), x=0.01, ha="left", fontsize=11, wrap=True)
    return figure


def depth_axes(record: ByDepth, unit: str) -> tuple[list[float], list[float]]:
    """Places of both sides' values: numbers, or shares where the sides are not equally deep."""
    first = 1 if unit == "block" else 0
    if len(record.a) == len(record.b):
        places = [float(first + index) for index in range(len(record.a))]
        return places, places
    shares = [
        [index / max(1, len(values) - 1) for index in range(len(values))]
        for values in (record.a, record.b)
    ]
    return shares[0], shares[1]


def axis_title(record: ByDepth, unit: str) -> str:
    """What `depth_axes` counts."""
    return unit if len(record.a) == len(record.b) else "share of depth"


def _seeds(axes: Axes, found: Contrast, style: dict[str, Mark]) -> None:
    """Final loss of each seed with both sides, joined."""
    a, b = found.a, found.b
    for seed in a.bits_per_byte.keys() & b.bits_per_byte.keys():
        pair = [a.bits_per_byte[seed], b.bits_per_byte[seed]]
        axes.plot([0, 1], pair, color=SOFT, linewidth=1)
    for place, side in enumerate((a, b)):
        mark = style[side.label]
        values = list(side.bits_per_byte.values())
        axes.plot([place] * len(values), values, mark.marker, color=mark.light)
    axes.set_xticks([0, 1], [plain(label) for label in found.labels])
    axes.set_xlim(-0.5, 1.5)
    axes.set_ylabel("validation loss (bits per byte)")
    axes.set_title("Final loss, a line for each seed")


def _difference(axes: Axes, found: Contrast, curve: Curve) -> None:
    low = [bound for bound in curve.low if bound is not None]
    high = [bound for bound in curve.high if bound is not None]
    if len(low) == len(high) == len(curve.steps):
        axes.fill_between(curve.steps, low, high, color=SOFT, alpha=0.25, linewidth=0)
    axes.plot(curve.steps, curve.mean, color=INK, linewidth=1.4)
    axes.axhline(0, color=SOFT, linewidth=1)
    a, b = map(plain, found.labels)
    axes.set_title("Training loss, difference")
    axes.set_xlabel(f"step (windows of {curve.window})" if curve.window > 1 else "step")
    axes.set_ylabel(f"{a} − {b} (nats per token)")


def _training(axes: Axes, found: Contrast, curve: Curve, style: dict[str, Mark]) -> None:
    for label, values in zip(found.labels, (curve.a, curve.b), strict=True):
        mark = style[label]
        axes.plot(curve.steps, values, color=mark.light, linestyle=mark.line, linewidth=1.4)
    if len(curve.steps) > 2:
        axes.set_xscale("log")
    slope = found.observations.slope
    means = [f"{_mean(one):+.3g}" for one in (slope.a, slope.b) if one]
    axes.set_title("Training loss")
    axes.set_xlabel("step")
    axes.set_ylabel("nats per token")
    if len(means) == 2:
        text = f"slope of the first {slope.steps} steps:\n{means[0]} and {means[1]} / 100 steps"
        axes.annotate(text, (0.97, 0.95), xycoords="axes fraction", ha="right", va="top")


def _by_depth(
    axes: Axes, found: Contrast, record: ByDepth, style: dict[str, Mark], unit: str
) -> None:
    for label, places, values in zip(
        found.labels, depth_axes(record, unit), (record.a, record.b), strict=True
    ):
        known = [(x, y) for x, y in zip(places, values, strict=True) if y is not None]
        axes.plot([x for x, _ in known], [y for _, y in known], **look(style[label]))
    axes.xaxis.set_major_locator(MaxNLocator(integer=len(record.a) == len(record.b)))
    axes.set_xlabel(axis_title(record, unit))


def _nothing(axes: Axes, title: str) -> None:
    axes.set_title(title)
    axes.annotate("no trial has this yet", (0.5, 0.5), xycoords="axes fraction", ha="center")


def _mean(values: dict[int, float]) -> float:
    return sum(values.values()) / len(values)
