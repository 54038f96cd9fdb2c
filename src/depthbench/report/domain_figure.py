"""Loss by domain against the aspect ratio: on the page, and as PNG and SVG."""

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from depthbench.report.domain_lines import DomainLine, DomainPoint, domains_of
from depthbench.report.figures import STYLE, aspect_axis, look, plain, save_as
from depthbench.report.plots import BARS, new_aspect_axis, new_figure, new_line
from depthbench.report.style import Mark

NATS = "loss, nats per token"
ACROSS = 3
"""Panels side by side."""


def domain_plot(lines: Sequence[DomainLine], style: dict[str, Mark]) -> dict[str, Any]:
    """``domains``: the page shows one domain at a time (``meta.shown``); nothing without lines."""
    if not lines:
        return {}
    figure, first = new_figure(NATS), lines[0].domain
    for line in lines:
        trace = new_line(
            line.label,
            style[line.label],
            x=[point.aspect_ratio for point in line.points],
            y=[point.value for point in line.points],
            text=[_words(line, point) for point in line.points],
            more={"shown": {"domain": line.domain}},
        )
        trace.update(visible=line.domain == first)
        if any(point.span for point in line.points):
            trace.error_y = BARS | {
                "array": [_above(point) for point in line.points],
                "arrayminus": [_below(point) for point in line.points],
            }
        figure.add_trace(trace)
    new_aspect_axis(figure, _shapes(lines))
    return {"domains": figure.to_plotly_json()}


def write_domain_figure(
    lines: Sequence[DomainLine], style: dict[str, Mark], folder: Path, title: str
) -> list[Path]:
    """Write ``loss_by_domain.png`` and ``.svg`` to ``folder``; their paths, none without lines."""
    if not lines:
        return []
    with mpl.rc_context(STYLE):
        return save_as(domain_figure(lines, style, title), folder, "loss_by_domain")


def domain_figure(lines: Sequence[DomainLine], style: dict[str, Mark], title: str) -> Figure:
    """One panel a domain, one line a design."""
    domains = domains_of(lines)
    across = min(ACROSS, len(domains))
    down = math.ceil(len(domains) / across)
    figure = Figure(figsize=(5.2 * across + 1.4, 4.2 * down), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).flatten()
    for axes in panels[len(domains) :]:
        axes.set_visible(False)
    for axes, domain in zip(panels, domains, strict=False):
        own = [line for line in lines if line.domain == domain]
        for line in own:
            spans = [[_below(point) for point in line.points], [_above(p) for p in line.points]]
            axes.errorbar(
                [point.aspect_ratio for point in line.points],
                [point.value for point in line.points],
                yerr=[[math.nan if one is None else one for one in side] for side in spans],
                **look(style[line.label]),
                elinewidth=1.2,
                capsize=2.5,
                label=plain(line.label),
            )
        axes.set_xscale("log")
        aspect_axis(axes, _shapes(own))
        axes.set_ylabel(NATS)
        axes.set_title(plain(domain))
    handles: dict[str, Any] = {}
    for axes in panels[: len(domains)]:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    figure.legend(handles.values(), handles.keys(), loc="outside right upper", frameon=False)
    figure.suptitle(plain(title), x=0.01, ha="left", fontsize=11)
    return figure


def _shapes(lines: Sequence[DomainLine]) -> list[tuple[float, int]]:
    return [(point.aspect_ratio, point.layers) for line in lines for point in line.points]


def _above(point: DomainPoint) -> float | None:
    return None if point.high is None else point.high - point.value


def _below(point: DomainPoint) -> float | None:
    return None if point.low is None else point.value - point.low


def _words(line: DomainLine, point: DomainPoint) -> str:
    span = ""
    if point.low is not None and point.high is not None:
        span = f"<br>{point.low:.4f} to {point.high:.4f}, {escape(point.span)}"
    return (
        f"<b>{escape(line.label)}</b> on {escape(line.domain)}<br>{point.layers} layers × width "
        f"{point.width}, aspect ratio {point.aspect_ratio:.3g}<br>{point.value:.4f} nats per token"
        f"{span}<br>seeds: {len(point.by_seed)}"
    )
