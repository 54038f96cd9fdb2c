"""Loss against what a model costs, and which models nothing beats on both."""

from collections.abc import Sequence
from html import escape
from typing import Any

from depthbench.report.aspect_plot import Choice, Place, Placed
from depthbench.report.plots import BITS, new_figure, new_line
from depthbench.report.serving import Served
from depthbench.report.style import Mark

COSTS = {
    "forward": ("FLOPs of a token", "FLOPs of one token's forward, at the length of training"),
    "total": ("parameters", "parameters in all"),
    "training": ("training time", "measured seconds of training for a million tokens"),
    "kv": ("KV cache", "bytes of cache for all earlier tokens, modelled"),
    "state": ("state over depth", "bytes that the design carries between blocks, modelled"),
    "memory": ("memory", "bytes at the fullest moment of serving, modelled"),
    "ttft": ("time to first token", "seconds to the first token, modelled"),
    "tpot": ("time per token", "seconds from token to token, modelled"),
}
"""Its name in the list, and the axis' title; the last five stand in ``serving.json``."""


def pareto_plot(
    study: Placed, serving: Served | None, style: dict[str, Mark]
) -> dict[str, Any] | None:
    """One point a design and shape; None where fewer than two have a loss and a cost."""
    found = [
        (design.label, place, costs_of(place, serving))
        for design, places in study.curves
        for place in places
        if place.mean("bits") is not None
    ]
    names = [name for name in COSTS if found and all(name in costs for _, _, costs in found)]
    if len(found) < 2 or not names:
        return None
    figure = new_figure(BITS)
    front = {
        name: _front([(costs[name], _bits(place)) for _, place, costs in found]) for name in names
    }
    first = front[names[0]]
    line = new_line("", style[found[0][0]], x=[], y=[], text="on the front")
    line.update(
        name="the front",
        x=[x for x, _ in first],
        y=[y for _, y in first],
        mode="lines",
        hoverinfo="skip",
        hovertemplate=None,
        line={"dash": "dot", "width": 1.4, "shape": "hv"},
        meta={"label": None, "shown": {}, "along": {name: _columns(front[name]) for name in names}},
    )
    figure.add_trace(line)
    for label in dict.fromkeys(label for label, _, _ in found):
        own = [(place, costs) for one, place, costs in found if one == label]
        xs = {name: [costs[name] for _, costs in own] for name in names}
        bits = [_bits(place) for place, _ in own]
        trace = new_line(
            label,
            style[label],
            x=xs[names[0]],
            y=bits,
            text=[_text(label, *one) for one in own],
            more={"x": xs, "y": {"bits": bits}, "error": {}},
        )
        trace.update(mode="markers")
        figure.add_trace(trace)
    built = figure.to_plotly_json()
    axes = {
        name: {"title": {"text": COSTS[name][1]}, "type": "log", "tickformat": "~s", "nticks": 8}
        for name in names
    }
    built["layout"]["xaxis"] |= axes[names[0]]
    return built | {"axes": {"x": axes, "y": {"bits": {"title": {"text": BITS}}}}}


def costs_of(place: Place, serving: Served | None) -> dict[str, float]:
    """By name, as far as they are known."""
    trained = [row for row in place.rows if row.loss]
    costs: dict[str, float] = {"total": trained[0].parameters.total}
    if place.x["seconds"]:
        tokens = sum(row.tokens for row in trained)
        costs["training"] = place.x["seconds"] * len(trained) / tokens * 1e6
    if (forward := place.costs[0].forward) is not None:
        costs["forward"] = forward
    return costs | ((serving.of(trained[0]) if serving else None) or {})


def cost_choices(figure: dict[str, Any]) -> list[Choice]:
    """The list of costs of a figure of `pareto_plot`."""
    return [Choice(name, COSTS[name][0]) for name in figure["axes"]["x"]]


def _bits(place: Place) -> float:
    mean = place.mean("bits")
    assert mean is not None
    return mean


def _front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Those that no other beats on both, the cheapest first."""
    front: list[tuple[float, float]] = []
    for cost, loss in sorted(set(points)):
        if not front or loss < front[-1][1]:
            front.append((cost, loss))
    return front


def _columns(points: Sequence[tuple[float, float]]) -> dict[str, list[float]]:
    return {"x": [x for x, _ in points], "y": [y for _, y in points]}


def _text(label: str, place: Place, costs: dict[str, float]) -> str:
    lines = [
        f"<b>{escape(label)}</b>, {place.point.layers} layers × width {place.point.width}",
        f"{_bits(place):.3f} bits per byte",
        *(f"{COSTS[name][0]}: {value:.4g}" for name, value in costs.items() if name in COSTS),
    ]
    return "<br>".join(lines)
