"""Interactive figures of probes: curves of all models in one plot, a heat map for each model.

What a hover says is built by the page from one template a trace; ``meta.words`` is the same for the
line that a click writes below the figure.
"""

from html import escape
from typing import Any

import plotly.graph_objects as go

from depthbench.probes.result import Curve, Matrix, Value
from depthbench.report.health_plots import COLOURS
from depthbench.report.plots import BARS, new_figure, new_line
from depthbench.report.probe_groups import Probed, Together, lines_of, scale_of, ticks
from depthbench.report.style import Mark

DIVERGING = ((0.0, "#0072b2"), (0.5, "#cfccc4"), (1.0, "#d55e00"))
"""Grey where nothing happened; told apart by people with any common colour-blindness."""


def curve_plot(together: Together[Curve], style: dict[str, Mark]) -> dict[str, Any]:
    """One line a model; error bars where a curve has intervals."""
    figure = new_figure(escape(together.measure))
    for model, one, name, mark in lines_of(together, style):
        words = one.words or f"{one.axis} {{}}"
        line = new_line(model.label, mark, x=one.places, y=[], text="")
        line.update(
            name=escape(name),
            y=list(one.values),
            hovertemplate=_hover(model, words.replace("{}", "%{x}"), "y", one.unit),
            marker={"size": 7},
            meta=_meta(model, words, one.unit, "y"),
        )
        if one.low and one.high:
            line.error_y = _bars(one)
        figure.add_trace(line)
    if any(one.group for _, one in together.sides):
        legend = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"}
        figure.update_layout(showlegend=True, legend=legend)
    places = [place for _, one in together.sides for place in one.places]
    figure.update_xaxes(title_text=escape(together.first.axis))
    if step := ticks(places):
        figure.update_xaxes(tick0=0, dtick=step)
    return figure.to_plotly_json()


def map_plots(together: Together[Matrix]) -> list[tuple[Probed, dict[str, Any]]]:
    """A heat map for each model, all on one scale; missing values are blank."""
    scale = scale_of(together)
    found: list[tuple[Probed, dict[str, Any]]] = []
    for model, one in together.sides:
        words = one.words or f"{one.row_axis} {{row}}, {one.column_axis} {{column}}"
        pair = words.replace("{row}", "%{y}").replace("{column}", "%{x}")
        figure = new_figure(escape(one.row_axis))
        figure.add_trace(
            go.Heatmap(
                name=escape(model.name),
                x=list(one.columns),
                y=list(one.rows),
                z=[list(line) for line in one.values],
                zmin=scale.low,
                zmax=scale.high,
                colorscale=DIVERGING if scale.diverging else COLOURS,
                colorbar={
                    "title": {"text": escape(together.measure)},
                    "thickness": 12,
                    "outlinewidth": 0,
                },
                hoverongaps=False,
                hovertemplate=_hover(model, pair, "z", one.unit),
                meta=_meta(model, words, one.unit, "z"),
            )
        )
        figure.update_layout(margin={"l": 52, "r": 10, "t": 38, "b": 52})
        figure.update_xaxes(title_text=escape(one.column_axis), showgrid=False)
        figure.update_yaxes(showgrid=False)
        if step := ticks(one.columns, most=10):
            figure.update_xaxes(tick0=0, dtick=step)
        if step := ticks(one.rows, most=10):
            figure.update_yaxes(tick0=0, dtick=step)
        found.append((model, figure.to_plotly_json()))
    return found


def _hover(model: Probed, words: str, value: str, unit: str) -> str:
    shown = f"%{{{value}:.4~g}} {escape(unit)}".rstrip()
    return f"<b>{escape(model.name)}</b><br>{escape(words)}: {shown}<extra></extra>"


def _meta(model: Probed, words: str, unit: str, value: str) -> dict[str, Any]:
    meta: dict[str, Any] = {"label": model.label, "shown": {}}
    return meta | {"name": model.name, "words": words, "unit": unit, "value": value}


def _bars(one: Curve) -> dict[str, Any]:
    """From each value to the ends of its interval; none where there is none."""

    def reach(one: Value, other: Value) -> Value:
        return None if one is None or other is None else one - other

    up = [reach(high, value) for high, value in zip(one.high, one.values, strict=True)]
    down = [reach(value, low) for value, low in zip(one.values, one.low, strict=True)]
    return BARS | {"symmetric": False, "array": up, "arrayminus": down}
