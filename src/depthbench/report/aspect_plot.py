"""The report's main figure: loss of every design at every shape, against what the reader chooses.

Its traces hold their numbers and words by the names of what can be chosen, in ``meta.x``,
``meta.y``, ``meta.error`` and ``meta.text``, and the figure the axes of these, in ``axes``: the
page puts them in place.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

import plotly.graph_objects as go

from depthbench.report.plots import (
    BARS,
    BITS,
    add_crosses,
    ceiling_of,
    new_aspect_axis,
    new_figure,
    new_line,
)
from depthbench.report.spent import RESOURCES, Equal, Key, Spent, at_equal, key_of, spent
from depthbench.report.study import StudyData
from depthbench.report.style import Mark
from depthbench.study.findings import DesignFinding, Point
from depthbench.study.store import Row
from depthbench.study.words import counted

Value = float | None
X = {
    "aspect": ("aspect ratio", "aspect ratio, width / layers, at L layers (← deeper and narrower)"),
    "layers": ("layers", "layers"),
    "total": ("parameters", "parameters in all"),
    "backbone": ("backbone parameters", "parameters without embedding and head"),
    "flops": ("training FLOPs", "FLOPs of the whole training"),
    "seconds": ("training time", "measured seconds of the whole training"),
}
"""What the losses can stand against: its name in the list, and the axis' title."""
Y = {
    "bits": ("tokens: validation loss, bits per byte", BITS),
    "nats": ("tokens: validation loss, nats per token", "validation loss, nats per token"),
    "flops": (
        "training FLOPs: training loss",
        "training loss at {budget} FLOPs, nats per token",
    ),
    "seconds": (
        "training time: training loss",
        "training loss after {budget} s, nats per token",
    ),
}
"""What is held equal, and the loss then."""


class Choice(NamedTuple):
    """One line of a list."""

    name: str
    words: str


@dataclass(frozen=True)
class Place:
    """A point of a curve with its trials."""

    point: Point
    rows: list[Row]
    x: dict[str, Value]
    y: dict[str, dict[str, float]]
    """By what is held equal, then by trial."""
    costs: list[Spent]
    """Of the trials that are done."""

    def mean(self, name: str) -> Value:
        """Over the trials that have it."""
        values = self.y.get(name, {}).values()
        return statistics.fmean(values) if values else None

    def deviation(self, name: str) -> Value:
        """Sample standard deviation of at least two."""
        values = self.y.get(name, {}).values()
        return statistics.stdev(values) if len(values) > 1 else None


@dataclass(frozen=True)
class Placed:
    """The curves of a study, with all that figures set them against."""

    curves: list[tuple[DesignFinding, list[Place]]]
    equal: dict[str, Equal]
    """Losses at equal budgets, by resource."""

    @property
    def remarks(self) -> list[str]:
        """What cannot be chosen, and why."""
        done = [cost for _, places in self.curves for place in places for cost in place.costs]
        unread = sum(cost.unread for cost in done)
        if not unread:
            return []
        return [
            f"This version cannot read the config of {unread} of {counted(len(done), 'trial')}, so "
            "that their FLOPs are not known: training FLOPs are no axis here, and losses at equal "
            "FLOPs are of the other trials alone. Report the study with the version that ran it."
        ]


def placed(study: StudyData) -> Placed:
    """Every shape of every design's curve, with what its trials are and spent."""
    costs = {key_of(row): spent(row) for row in study.rows}
    equal = {one: found for one in RESOURCES if (found := at_equal(study.curves, costs, one))}
    curves = [(design, _places(study, design, equal, costs)) for design in study.verdict.designs]
    return Placed(curves, {**equal})


def aspect_plot(study: Placed, style: dict[str, Mark]) -> dict[str, Any]:
    """Loss against aspect ratio, deeper to the left; other axes wait in ``axes``."""
    curves = study.curves
    figure = new_figure(BITS)
    for design, places in curves:
        _add_curve(figure, design, places, style[design.label], study.equal)
    _add_lost(figure, curves)
    points = [point for design, _ in curves for point in design.curve]
    new_aspect_axis(figure, [(point.aspect_ratio, point.layers) for point in points])
    built = figure.to_plotly_json()
    every = [place for _, places in curves for place in places]
    return built | {"axes": {"x": _x_axes(built, every), "y": _y_axes(every, study.equal)}}


def choices(figure: dict[str, Any]) -> dict[str, list[Choice]]:
    """The lists of what can be chosen, of a figure of `aspect_plot`."""
    return {
        "y": [Choice(name, Y[name][0]) for name in figure["axes"]["y"]],
        "x": [Choice(name, X[name][0]) for name in figure["axes"]["x"]],
    }


def _places(
    study: StudyData,
    design: DesignFinding,
    equal: Mapping[str, Equal],
    costs: Mapping[Key, Spent],
) -> list[Place]:
    rows = [
        row
        for row in study.rows
        if row.label == design.label and design.search.used in (None, row.learning_rate)
    ]
    return [_place(point, rows, equal, costs) for point in design.curve]


def _place(
    point: Point, rows: Sequence[Row], equal: Mapping[str, Equal], costs: Mapping[Key, Spent]
) -> Place:
    own = [
        row for row in rows if (row.shape.layers, row.shape.width) == (point.layers, point.width)
    ]
    done = [costs[key_of(row)] for row in own if row.status == "done"]
    x: dict[str, Value] = {
        "aspect": point.aspect_ratio,
        "layers": point.layers,
        "total": _mean([row.parameters.total for row in own]),
        "backbone": _mean([row.parameters.backbone for row in own]),
    }
    x |= {name: _mean([cost.of(name) for cost in done]) for name in RESOURCES}
    losses = {row.id: row.loss for row in own if row.loss and row.status == "done"}
    y = {
        "bits": {name: loss.bits_per_byte for name, loss in losses.items()},
        "nats": {name: loss.nats_per_token for name, loss in losses.items()},
    }
    for name, found in equal.items():
        known = {row.id: key_of(row) for row in own}
        y[name] = {one: found.losses[key] for one, key in known.items() if key in found.losses}
    return Place(point, own, x, y, done)


def _mean(values: Sequence[Value]) -> Value:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None


def _add_curve(
    figure: go.Figure,
    design: DesignFinding,
    places: Sequence[Place],
    mark: Mark,
    equal: Mapping[str, Equal],
) -> None:
    known = [place for place in places if place.mean("bits") is not None]
    if not known:
        return
    names = _names(places)
    errors = {name: [place.deviation(name) for place in known] for name in names}
    meta = {
        "x": {name: [place.x[name] for place in known] for name in X},
        "y": {name: [place.mean(name) for place in known] for name in names},
        "error": {name: es for name, es in errors.items() if any(e is not None for e in es)},
        "text": {
            name: [_point_text(design.label, place, name, equal) for place in known]
            for name in names
        },
    }
    trace = new_line(
        design.label,
        mark,
        x=meta["x"]["aspect"],
        y=meta["y"]["bits"],
        text=meta["text"]["bits"],
        more=meta,
    )
    if "bits" in meta["error"]:
        trace.error_y = BARS | {"array": meta["error"]["bits"]}
    figure.add_trace(trace)
    seeds = [(place, row) for place in known if len(place.y["bits"]) > 1 for row in place.rows]
    seeds = [(place, row) for place, row in seeds if row.id in place.y["bits"]]
    if seeds:
        figure.add_trace(_dots(design.label, mark, seeds, names, equal))


def _dots(
    label: str,
    mark: Mark,
    seeds: Sequence[tuple[Place, Row]],
    names: Sequence[str],
    equal: Mapping[str, Equal],
) -> go.Scatter:
    meta = {
        "x": {name: [place.x[name] for place, _ in seeds] for name in X},
        "y": {name: [place.y[name].get(row.id) for place, row in seeds] for name in names},
        "error": {},
        "text": {
            name: [
                f"<b>{escape(label)}</b>, seed {row.seed}<br>"
                + _loss_text(name, place.y[name].get(row.id), None, equal)
                for place, row in seeds
            ]
            for name in names
        },
    }
    x, y, text = meta["x"]["aspect"], meta["y"]["bits"], meta["text"]["bits"]
    dots = new_line(label, mark, x=x, y=y, text=text, more=meta)
    return dots.update(mode="markers", marker={"size": 4})


def _names(places: Sequence[Place]) -> list[str]:
    return [name for name in Y if any(name in place.y for place in places)]


def _add_lost(figure: go.Figure, curves: Sequence[tuple[DesignFinding, list[Place]]]) -> None:
    every = [place for _, places in curves for place in places]
    ceilings = {name: ceiling_of([place.mean(name) for place in every]) for name in _names(every)}
    for index, (design, places) in enumerate(curves):
        lost = [place for place in places if place.point.diverged]
        if not lost:
            continue
        shift = 1.03 ** (index - len(curves) / 2)
        xs = {name: [place.x[name] for place in lost] for name in X}
        add_crosses(
            figure,
            design.label,
            [place.point.aspect_ratio for place in lost],
            [_lost_text(design.label, place.point) for place in lost],
            ceilings["bits"],
            shift,
            {
                "x": {name: [x and x * shift for x in values] for name, values in xs.items()},
                "y": {name: [ceiling] * len(lost) for name, ceiling in ceilings.items()},
                "error": {},
                "lost": xs,
            },
        )


def _x_axes(figure: dict[str, Any], places: Sequence[Place]) -> dict[str, Any]:
    """Of what every finished shape has, and what differs."""
    axes: dict[str, Any] = {"aspect": figure["layout"]["xaxis"]}
    done = [place for place in places if place.mean("bits") is not None]
    for name in list(X)[1:]:
        values = [value for place in done if (value := place.x[name]) is not None]
        if len(values) < len(done) or len(set(values)) < 2:
            continue
        axis: dict[str, Any] = {"title": {"text": X[name][1]}, "type": "log"}
        if name == "layers":
            ticks = sorted({place.point.layers for place in places})
            axis |= {"tickvals": ticks, "ticktext": [str(layers) for layers in ticks]}
        else:
            axis |= {"dtick": "D2" if max(values) / min(values) > 4 else None, "tickformat": ".3s"}
        low, high = math.log10(min(values)), math.log10(max(values))
        pad = 0.06 * (high - low)
        axes[name] = axis | {"range": [low - pad, high + pad]}
    return axes


def _y_axes(places: Sequence[Place], equal: Mapping[str, Equal]) -> dict[str, Any]:
    axes: dict[str, Any] = {}
    for name in _names(places):
        budget = f"{equal[name].budget:.3g}" if name in equal else ""
        axes[name] = {"title": {"text": Y[name][1].replace("{budget}", budget)}}
    return axes


def _loss_text(name: str, loss: Value, deviation: Value, equal: Mapping[str, Equal]) -> str:
    """A loss as what the reader holds equal makes it."""
    number = "no value" if loss is None else f"{loss:.3f}"
    number += "" if deviation is None else f" ± {deviation:.3f}"
    if name == "bits":
        return f"{number} bits per byte"
    if name == "nats":
        return f"{number} nats per token"
    budget = f"{equal[name].budget:.3g}"
    where = f"at {budget} FLOPs" if name == "flops" else f"after {budget} s"
    return f"training loss {where}: {number} nats per token"


def _point_text(label: str, place: Place, name: str, equal: Mapping[str, Equal]) -> str:
    point, known = place.point, len(place.y[name])
    missing = ""
    if point.trials > known:
        missing = f"<br>{point.trials - known} of {point.trials} trials missing"
    others = [one for one in ("bits", "nats") if one != name and name not in equal]
    lines = [
        f"<b>{escape(label)}</b>",
        f"{point.layers} layers × width {point.width}, aspect ratio {point.aspect_ratio:.3g}",
        _loss_text(name, place.mean(name), place.deviation(name), equal),
        *(_loss_text(one, place.mean(one), None, equal) for one in others),
    ]
    if place.x["total"] is not None:
        lines.append(f"{place.x['total']:,.0f} parameters")
    if place.x["flops"] is not None:
        lines.append(f"{place.x['flops']:.3g} training FLOPs")
    if place.x["seconds"] is not None:
        lines.append(f"{place.x['seconds']:.3g} s of training")
    return "<br>".join(lines) + f"<br>seeds: {known}{missing}"


def _lost_text(label: str, point: Point) -> str:
    return (
        f"<b>{escape(label)}</b><br>{point.layers} layers, aspect ratio {point.aspect_ratio:.3g}"
        f"<br>{point.diverged} of {point.trials} trials diverged"
    )
