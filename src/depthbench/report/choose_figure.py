"""The Pareto front of a choice as PNG and SVG."""

from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from depthbench.cost.candidates import Candidate
from depthbench.cost.choose import Choice
from depthbench.report.figures import BITS, SOFT, STYLE, plain, save_as
from depthbench.report.style import Mark, marks

NAME = "pareto"
PALE = 0.35
"""Opacity of what a limit excludes."""
AXES = (("tpot", "time per output token (ms)", 1e-3), ("kv", "KV cache (MiB)", 2**20))


def write_front(choice: Choice, folder: Path) -> list[Path]:
    """Write ``pareto.png`` (200 dots per inch) and ``pareto.svg`` to ``folder``; their paths."""
    with mpl.rc_context(STYLE):
        return save_as(front_figure(choice), folder, NAME)


def front_figure(choice: Choice) -> Figure:
    """Loss against time per output token and against KV cache, with limits and the choice."""
    style = marks(one.label for one in choice.candidates)
    figure = Figure(figsize=(11.5, 4.9), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    limits = choice.limits.given()
    for axes, (name, words, unit) in zip(panels, AXES, strict=True):
        for one in choice.candidates:
            _draw(axes, choice, one, _value(one, name) / unit, style[one.label])
        axes.set_xscale("log")
        low, high = axes.get_xlim()
        # one far away would squeeze the points together
        if name in limits and low / 2 < limits[name] / unit < 2 * high:
            axes.axvline(limits[name] / unit, color=SOFT, linestyle="--", linewidth=1.2)
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel(words)
    panels[0].set_ylabel(BITS)
    panels[0].set_title("Ringed: on the front of loss, time and KV cache")
    device = choice.conditions.device.name
    panels[1].set_title(
        f"{device}, context {choice.conditions.context:,}, batch {choice.conditions.batch}; "
        "dashed: limit",
        parse_math=False,
    )
    for label, mark in style.items():
        panels[0].plot(
            [], [], color=mark.light, marker=mark.marker, linestyle="", label=plain(label)
        )
    if choice.chosen:
        panels[0].plot([], [], "*", color=SOFT, markersize=13, label="chosen")
    if len(choice.feasible) < len(choice.candidates):
        panels[0].plot([], [], "o", color=SOFT, alpha=PALE, label="beyond a limit")
    figure.legend(loc="outside lower center", ncols=6, frameon=False)
    return figure


def _value(one: Candidate, name: str) -> float:
    return one.tpot_seconds if name == "tpot" else one.kv_bytes


def _draw(axes: Axes, choice: Choice, one: Candidate, x: float, mark: Mark) -> None:
    alpha = 1.0 if one.name in choice.feasible else PALE
    axes.errorbar(
        [x],
        [one.bits_per_byte],
        yerr=None if one.standard_deviation is None else [one.standard_deviation],
        color=mark.light,
        marker=mark.marker,
        linestyle="",
        elinewidth=1.2,
        capsize=2.5,
        alpha=alpha,
    )
    if one.name in choice.front:
        axes.plot([x], [one.bits_per_byte], "o", markersize=13, fillstyle="none", color=mark.light)
    if one.name == choice.chosen:
        axes.plot(
            [x],
            [one.bits_per_byte],
            "*",
            markersize=17,
            color=mark.light,
            markeredgecolor="white",
            zorder=3,
        )
        axes.annotate(
            plain(one.name),
            (x, one.bits_per_byte),
            xytext=(9, -12),
            textcoords="offset points",
            color=mark.light,
        )
