"""Interactive figures of the courses of trials: curves over steps, and heat maps by depth."""

from collections.abc import Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

from depthbench.report.health import SIGNALS, Course, Signal
from depthbench.report.plots import new_figure, new_line
from depthbench.report.style import Mark
from depthbench.train.health.spikes import Spike

COLOURS = "Cividis"
"""Even in lightness, also to eyes that see few colours, and readable on light and dark ground."""

BELOW: dict[str, Any] = {"nticks": 3, "zeroline": False, "automargin": True}
"""Axes of the low panels."""


def health_figures(courses: Sequence[Course], style: dict[str, Mark]) -> dict[str, Any]:
    """``health-curves`` and ``health-depth``; the page shows one trial and one signal at a time."""
    if not courses:
        return {}
    signals = shown_signals(courses)
    maps = [
        _map(course, signal, first=course is courses[0] and signal is signals[0])
        for course in courses
        for signal in signals
        if signal.name in course.signals
    ]
    depth = new_figure("depth, bottom first")
    depth.add_traces(maps)
    depth.update_xaxes(title_text="step")
    depth.update_yaxes(dtick=1 if _depth(courses) <= 16 else None)
    return {
        "health-curves": _curves(courses, style).to_plotly_json(),
        "health-depth": depth.to_plotly_json(),
    }


def shown_signals(courses: Sequence[Course]) -> list[Signal]:
    """Signals that at least one of the trials has."""
    return [one for one in SIGNALS if any(one.name in course.signals for course in courses)]


def _depth(courses: Sequence[Course]) -> int:
    return max(len(grid) for course in courses for grid in course.signals.values())


def _map(course: Course, signal: Signal, *, first: bool) -> go.Heatmap:
    value = "10^%{z:.2f}" if signal.log else "%{z:.3g}"
    hover = f"{signal.place} %{{y}}, step %{{x}}<br>{signal.words} {value}<extra></extra>"
    return go.Heatmap(
        name=escape(course.row.label),
        x=course.measured,
        z=course.signals[signal.name],
        colorscale=COLOURS,
        colorbar={
            "title": {"text": f"log10 {signal.words}" if signal.log else signal.words},
            "thickness": 14,
            "outlinewidth": 0,
        },
        hovertemplate=hover,
        visible=first,
        meta=_meta(course, {"signal": signal.name}),
    )


def _curves(courses: Sequence[Course], style: dict[str, Mark]) -> go.Figure:
    """Loss, gradient norm and learning rate above each other."""
    figure = new_figure("training loss, nats")
    figure.update_layout(
        yaxis={"domain": [0.48, 1.0]},
        yaxis2=BELOW | {"domain": [0.22, 0.42], "title": {"text": "gradient"}, "type": "log"},
        yaxis3=BELOW | {"domain": [0.0, 0.16], "title": {"text": "rate"}, "rangemode": "tozero"},
        xaxis={"title": {"text": "step"}, "anchor": "y3"},
    )
    for course in courses:
        first, mark = course is courses[0], style[course.row.label]
        rows = (
            (course.loss, "y", "%{y:.3f} nats per token"),
            (course.gradient, "y2", "gradient norm %{y:.3g}, before clipping"),
            (course.rate, "y3", "learning rate %{y:.3g}"),
        )
        for values, axis, words in rows:
            line = _line(course, mark, course.steps, values, f"step %{{x}}: {words}<extra></extra>")
            figure.add_trace(line.update(yaxis=axis, visible=first))
        if course.spikes:
            figure.add_trace(_spikes(course, mark).update(visible=first))
    return figure


def _spikes(course: Course, mark: Mark) -> go.Scatter:
    marks = _line(
        course,
        mark,
        [spike.step for spike in course.spikes],
        [spike.value for spike in course.spikes],
        "%{text}<extra></extra>",
    )
    return marks.update(
        mode="markers",
        marker={"symbol": "triangle-down-open", "size": 12},
        text=[_told(spike) for spike in course.spikes],
    )


def _told(spike: Spike) -> str:
    return (
        f"spike from step {spike.step}: {spike.value:.3g} against {spike.usual:.3g}, "
        f"z {spike.z:.1f}"
    )


def _line(
    course: Course, mark: Mark, x: Sequence[float], y: Sequence[float | None], hover: str
) -> go.Scatter:
    line = new_line(course.row.label, mark, x=x, y=y, text="")
    return line.update(mode="lines", line={"width": 1.5}, hovertemplate=hover, meta=_meta(course))


def _meta(course: Course, more: dict[str, str] | None = None) -> dict[str, Any]:
    return {"label": course.row.label, "shown": {"trial": course.row.id} | (more or {})}
