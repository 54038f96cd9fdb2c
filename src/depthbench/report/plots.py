"""The report's interactive figures as plotly data; the page gives them the colours of its theme.

Every trace names its design in ``meta.label``, by which the page paints and highlights it, and in
``meta.shown`` what must be chosen for it to be seen, where the page shows one of many. Words that
come from the user are escaped, because plotly reads a subset of HTML.
"""

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

from depthbench.report.figures import aspect_ticks, loss_range
from depthbench.report.study import StudyData, depths, published
from depthbench.report.style import Mark
from depthbench.study.findings import Verdict

HOVER = "%{text}<extra></extra>"
BITS = "validation loss, bits per byte"
BARS: dict[str, Any] = {"type": "data", "thickness": 1.2, "width": 4}
"""Error bars, without their reach."""


def published_plot(style: dict[str, Mark]) -> go.Figure:
    """The published curves, in a figure of their own."""
    data = published()
    figure = new_figure(f"validation loss, {data.unit}")
    for name in data.validation_loss:
        curve = data.curve(name)
        figure.add_trace(
            new_line(
                name,
                style[name],
                x=[aspect for aspect, _, _ in curve],
                y=[loss for _, _, loss in curve],
                text=[
                    f"<b>{escape(name)}</b>, published<br>{layers} layers, aspect ratio "
                    f"{aspect:.3g}<br>{loss:.3f} {data.unit}"
                    for aspect, layers, loss in curve
                ],
            )
        )
    new_aspect_axis(figure, [(s["width"] / s["layers"], s["layers"]) for s in data.shapes])
    return figure


def search_plot(verdict: Verdict, style: dict[str, Mark]) -> go.Figure:
    """Loss against learning rate at the middle shape; the chosen rate has a ring."""
    figure = new_figure(BITS)
    ceiling = ceiling_of([c.bits_per_byte for d in verdict.designs for c in d.search.grid])
    for index, design in enumerate(verdict.designs):
        search = design.search
        able = [(c, loss) for c in search.grid if (loss := c.bits_per_byte) is not None]
        texts = [
            f"<b>{escape(design.label)}</b><br>learning rate {c.learning_rate:g}"
            f"{', chosen' if c.learning_rate == search.chosen else ''}<br>{loss:.3f} bits per byte"
            for c, loss in able
        ]
        trace = new_line(
            design.label,
            style[design.label],
            x=[c.learning_rate for c, _ in able],
            y=[loss for _, loss in able],
            text=texts,
        )
        sizes = [13 if c.learning_rate == search.chosen else 7 for c, _ in able]
        figure.add_trace(trace.update(marker={"size": sizes}))
        lost = [c for c in search.grid if c.diverged]
        add_crosses(
            figure,
            design.label,
            [c.learning_rate for c in lost],
            [
                f"<b>{escape(design.label)}</b><br>learning rate {c.learning_rate:g}<br>"
                f"{c.diverged} of {c.diverged + c.finished + c.failed} diverged"
                for c in lost
            ],
            ceiling,
            1.025 ** (index - len(verdict.designs) / 2),
        )
    rates = sorted({c.learning_rate for d in verdict.designs for c in d.search.grid})
    figure.update_xaxes(
        type="log",
        title_text="peak learning rate",
        tickvals=rates,
        ticktext=[f"{rate:g}" for rate in rates],
    )
    return figure


def training_plot(study: StudyData, style: dict[str, Mark]) -> go.Figure:
    """Training loss against tokens; the page shows one depth at a time (``meta.shown``)."""
    figure = new_figure("training loss, nats per token")
    deepest = max(curve.row.shape.layers for curve in study.curves)
    for curve in study.curves:
        row = curve.row
        trace = new_line(
            row.label,
            style[row.label],
            x=curve.tokens,
            y=[round(loss, 4) for loss in curve.nats_per_token],
            text=f"<b>{escape(row.label)}</b>, seed {row.seed}, {row.status}",
            panel=row.shape.layers,
        )
        figure.add_trace(
            trace.update(
                mode="lines",
                line={"width": 1.5},
                hovertemplate="%{text}<br>%{x:.3s} tokens: %{y:.3f} nats per token<extra></extra>",
                visible=row.shape.layers == deepest,
            )
        )
    figure.update_xaxes(title_text="training tokens")
    figure.update_yaxes(range=list(loss_range(study)))
    return figure


def panels(study: StudyData) -> list[int]:
    """The depths that have training curves."""
    having = {curve.row.shape.layers for curve in study.curves}
    return [layers for layers in depths(study.verdict) if layers in having]


def new_figure(y_title: str) -> go.Figure:
    """An empty figure in the page's layout."""
    layout: dict[str, Any] = {
        # all at once, and no template that is taken out again: that costs ten times as much
        "template": go.layout.Template(),
        "showlegend": False,
        "hovermode": "closest",
        "dragmode": "zoom",
        "margin": {"l": 62, "r": 18, "t": 26, "b": 70},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "xaxis": {"showline": True, "zeroline": False, "ticks": "outside"},
        "yaxis": {"showline": False, "zeroline": False},
    }
    layout["xaxis"] |= {"title": {"standoff": 12}, "automargin": True}
    layout["yaxis"] |= {"title": {"standoff": 12, "text": y_title}, "automargin": True}
    return go.Figure(layout=layout)


def new_line(
    label: str,
    mark: Mark,
    *,
    x: Sequence[float | None],
    y: Sequence[float | None],
    text: Sequence[str] | str,
    panel: int | None = None,
    more: dict[str, Any] | None = None,
) -> go.Scatter:
    """A curve of the design ``label``; ``text`` is what its points show, already escaped.

    ``more`` is what else the page must know of it, in its ``meta``.
    """
    return go.Scatter(
        name=escape(label),
        x=list(x),
        y=list(y),
        text=text if isinstance(text, str) else list(text),
        hovertemplate=HOVER,
        mode="lines+markers",
        line={"dash": mark.dash, "width": 2.2},
        marker={"symbol": mark.symbol, "size": 9, "opacity": 1},
        meta={"label": label, "shown": {} if panel is None else {"depth": panel}} | (more or {}),
    )


def ceiling_of(losses: Sequence[float | None]) -> float:
    """Height of the crosses, just above every loss; a diverged trial has no loss of its own."""
    known = [loss for loss in losses if loss is not None]
    if not known:
        return 1.0
    return max(known) + 0.08 * (max(known) - min(known) or max(known))


def add_crosses(
    figure: go.Figure,
    label: str,
    xs: Sequence[float],
    texts: Sequence[str],
    ceiling: float,
    shift: float,
    more: dict[str, Any] | None = None,
) -> None:
    """Diverged trials at the top, each design's a little beside the others'.

    ``meta.lost`` keeps where they belong: what is drawn is no measured place, and no loss.
    """
    if not xs:
        return
    figure.add_trace(
        go.Scatter(
            name=escape(label),
            x=[x * shift for x in xs],
            y=[ceiling] * len(xs),
            text=list(texts),
            hovertemplate=HOVER,
            mode="markers",
            marker={"symbol": "x-thin", "size": 10, "line": {"width": 2.5}},
            meta={"label": label, "shown": {}, "lost": list(xs)} | (more or {}),
        )
    )


def new_aspect_axis(figure: go.Figure, shapes: Sequence[tuple[float, int]]) -> None:
    """One tick a depth, with its aspect ratio and its number of layers; deeper to the left."""
    ticks = aspect_ticks(shapes)
    edges = [math.log10(aspect) for aspect, _ in ticks] or [0.0]
    pad = 0.06 * (max(edges) - min(edges)) or 0.1
    figure.update_xaxes(
        type="log",
        range=[min(edges) - pad, max(edges) + pad],
        tickvals=[aspect for aspect, _ in ticks],
        ticktext=[f"{aspect:.3g}<br>L{layers}" for aspect, layers in ticks],
        tickangle=0,
        title_text="aspect ratio, width / layers, at L layers (← deeper and narrower)",
    )
