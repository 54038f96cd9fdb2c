"""Loss against what a model costs, and which models nothing beats on both."""

from collections.abc import Sequence
from html import escape
from typing import Any

from depthbench.report.aspect_plot import Choice, Place, Placed
from depthbench.report.plots import BITS, new_figure, new_line
from depthbench.report.serving import Served
from depthbench.report.style import Mark
from depthbench.study.words import listed

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
"""Its name in the list, and the axis' title."""
SERVING = ("kv", "state", "memory", "ttft", "tpot")
"""Those that stand in ``serving.json``."""
MOST_NAMED = 6
Found = list[tuple[str, Place, dict[str, float]]]
"""Every model that has a loss: its design's label, its place, and its costs."""


def pareto_plot(
    study: Placed, serving: Served | None, style: dict[str, Mark]
) -> dict[str, Any] | None:
    """One point a design and shape; None where fewer than two have a loss and a cost."""
    found = _found(study, serving)
    names = [name for name in COSTS if sum(name in costs for _, _, costs in found) > 1]
    if not names:
        return None
    figure = new_figure(BITS)
    front = {
        name: _front([(costs[name], _bits(place)) for _, place, costs in found if name in costs])
        for name in names
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
        xs = {name: [costs.get(name) for _, costs in own] for name in names}
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


def gaps(study: Placed, serving: Served | None) -> list[str]:
    """Which models lack which costs, and so are missing in the figure of `pareto_plot`."""
    found = _found(study, serving)
    asked = [name for name in COSTS if serving is not None or name not in SERVING]
    lacking: dict[tuple[str, ...], list[str]] = {}
    for name in asked:
        models = tuple(_model(label, place) for label, place, costs in found if name not in costs)
        if models:
            lacking.setdefault(models, []).append(name)
    return [_gap(names, models, every=len(found)) for models, names in lacking.items()]


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


def _found(study: Placed, serving: Served | None) -> Found:
    return [
        (design.label, place, costs_of(place, serving))
        for design, places in study.curves
        for place in places
        if place.mean("bits") is not None
    ]


def _model(label: str, place: Place) -> str:
    return f"{label} at {place.point.layers} layers × width {place.point.width}"


def _gap(names: Sequence[str], models: Sequence[str], every: int) -> str:
    costs = listed([COSTS[name][0] for name in names])
    some = list(models[:MOST_NAMED])
    if len(models) > MOST_NAMED:
        some.append(f"{len(models) - MOST_NAMED} more")
    whose = "any model" if len(models) == every else listed(some)
    text = f"Not known of {whose}: {costs}."
    if not set(names) <= set(SERVING):
        return text
    return f"{text} Report with --serve-on again, which models what is new since the last time."


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
