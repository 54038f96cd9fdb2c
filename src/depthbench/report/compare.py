"""A comparison as JSON, as a table for the terminal, and as a page of its own."""

import json
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from depthbench.config import to_toml
from depthbench.files import write_atomic
from depthbench.report.compare_figure import (
    LOGARITHMIC,
    axis_title,
    depth_axes,
    write_comparison_figure,
)
from depthbench.report.html import render_page
from depthbench.report.plots import new_figure, new_line
from depthbench.report.style import Mark, marks
from depthbench.study.compare import Comparison
from depthbench.study.conclude import contrast
from depthbench.study.contrast import ByDepth, Contrast, Curve, SideResult
from depthbench.study.contrast_words import decimals
from depthbench.study.paired import Interval

MISSING = "–"
BAND = {"fill": "tonexty", "fillcolor": "rgba(128,128,128,0.25)"}
"""Between the bounds of an interval, on light and dark ground."""
MOST_TICKS = 16
WIDE = 100
"""Columns of the table where the output is no terminal that knows its own."""
SIGNALS = {
    "gradient_norm": ("Gradient by depth", "gradient norm of a block", "block"),
    "state_variance": ("Variance by depth", "variance of the depth state", "depth"),
    "neighbour_cosine": ("Similarity by depth", "cosine of neighbouring depth states", "depth"),
}


class ComparisonFiles(NamedTuple):
    """Where a comparison's report lies."""

    json: Path
    html: Path
    figures: list[Path]


class Line(NamedTuple):
    """One quantity of both sides."""

    what: str
    a: str
    b: str
    difference: str


def write_comparison(comparison: Comparison) -> tuple[Contrast, ComparisonFiles]:
    """Conclude from the trials that are over; write ``comparison.json``, page and figures."""
    found, folder = contrast(comparison), comparison.folder
    files = ComparisonFiles(
        json=folder / "comparison.json",
        html=folder / "comparison.html",
        figures=write_comparison_figure(found, folder / "figures"),
    )
    write_atomic(files.json, json.dumps(found.resolved(), indent=2) + "\n")
    write_atomic(files.html, render_comparison(found))
    return found, files


def comparison_table(found: Contrast) -> Table:
    """`lines_of` for the terminal."""
    table = Table(title=Text(found.name), box=box.SIMPLE_HEAD, caption=about_brackets(found))
    table.add_column("")
    a, b = found.labels
    for name in (a, b, f"{a} − {b}"):
        table.add_column(Text(name), justify="right")
    for line in lines_of(found):
        table.add_row(*map(Text, line))
    return table


def about_brackets(found: Contrast) -> str:
    """What the table's brackets are."""
    if found.lead is None or found.lead.bits_per_byte.pairs < 2:
        return "one seed: no intervals"
    paired = found.lead.bits_per_byte
    return (
        f"[…] {100 * paired.confidence:g} % interval of the paired difference over "
        f"{paired.pairs} seeds; ± standard deviation between seeds"
    )


def lines_of(found: Contrast) -> list[Line]:
    """Losses, the four observations in a number each, and what both sides cost."""
    a, b, lead, seen = found.a, found.b, found.lead, found.observations
    lines = [
        Line(
            "validation loss, bits per byte",
            _loss(a.bits_per_byte, a.standard_deviation),
            _loss(b.bits_per_byte, b.standard_deviation),
            _bounds(lead.bits_per_byte if lead else None),
        ),
        Line(
            "validation loss, nats per token",
            _loss(a.nats_per_token, None),
            _loss(b.nats_per_token, None),
            _bounds(lead.nats_per_token if lead else None),
        ),
        Line(
            f"loss slope, first {seen.slope.steps} steps (nats / 100 steps)",
            _loss(seen.slope.a, None),
            _loss(seen.slope.b, None),
            _bounds(seen.slope.difference),
        ),
        _ends("gradient norm, bottom / top block", seen.gradient_norm, "ratio"),
        _ends("state variance, top / bottom", seen.state_variance, "growth"),
        _ends("cosine of neighbouring depths, mean", seen.neighbour_cosine, "mean"),
    ]
    for what, one, other, unit in _costs(a, b):
        share = f"{100 * (one / other - 1):+.3g} %" if one and other else MISSING
        lines.append(Line(what, _number(one, unit), _number(other, unit), share))
    return lines


def render_comparison(found: Contrast) -> str:
    """The page as one string; everything from the comparison is escaped."""
    style = marks(found.labels)
    figures = dict(_plots(found, style))
    titles = {"difference": "Training loss, step by step", "loss": "Loss slope"} | {
        signal: title for signal, (title, _, _) in SIGNALS.items()
    }
    return render_page(
        "compare.html",
        {name: figure.to_plotly_json() for name, (figure, _) in figures.items()},
        style,
        found=found,
        lines=lines_of(found),
        brackets=about_brackets(found),
        strip=_strip(found),
        plots=[(name, titles[name], caption) for name, (_, caption) in figures.items()],
        differing=list(differing(found.config["compare"]["a"], found.config["compare"]["b"])),
        config_text=to_toml(found.config),
    )


def differing(a: Any, b: Any, place: str = "") -> Iterator[tuple[str, str, str]]:
    """Settings that differ, by their dotted names, with both values."""
    if not (isinstance(a, dict) and isinstance(b, dict)):
        if a != b:
            yield place, _setting(a), _setting(b)
        return
    for key in dict.fromkeys([*a, *b]):
        yield from differing(a.get(key), b.get(key), f"{place}.{key}" if place else key)


def _setting(value: Any) -> str:
    return MISSING if value is None else json.dumps(value, ensure_ascii=False).strip('"')


def _plots(found: Contrast, style: dict[str, Mark]) -> Iterator[tuple[str, tuple[Any, str]]]:
    if found.training is not None:
        yield "difference", (_difference(found, found.training, style), _about(found.training))
        yield (
            "loss",
            (
                _losses(found, found.training, style),
                "Training loss of both sides, mean over window and seeds; the table has its slope "
                f"over the first {found.observations.slope.steps} steps.",
            ),
        )
    for signal, (_, words, unit) in SIGNALS.items():
        records = found.observations.signals()[signal]
        if records:
            yield (
                signal,
                (
                    _by_depth(found, records[-1], style, words, unit, signal in LOGARITHMIC),
                    f"After step {records[-1].step:,}, mean over seeds; bottom of the model on the "
                    "left, and depth as a share where the sides are not equally deep.",
                ),
            )


def _about(curve: Curve) -> str:
    band = f"Band: {100 * curve.confidence:g} % interval over {curve.pairs} seeds, point by point. "
    window = (
        "Every step by itself."
        if curve.window == 1
        else f"Each point is the mean of a window of {curve.window} steps."
    )
    return (
        "Difference of the training losses on the same batches, first side minus second: below 0 "
        f"the first is lower. {band if curve.pairs > 1 else ''}{window}"
    )


def _difference(found: Contrast, curve: Curve, style: dict[str, Mark]) -> Any:
    a, b = found.labels
    figure = new_figure("difference of the training loss, nats per token")
    words = f"<b>{escape(a)} − {escape(b)}</b>"

    def line(values: Sequence[float], text: str | list[str]) -> Any:
        return new_line(a, style[a], x=curve.steps, y=values, text=text).update(mode="lines")

    low = [bound for bound in curve.low if bound is not None]
    high = [bound for bound in curve.high if bound is not None]
    if len(low) == len(high) == len(curve.steps):
        thin = {"width": 0}
        figure.add_trace(line(low, "").update(line=thin, hoverinfo="skip"))
        figure.add_trace(line(high, "").update(line=thin, hoverinfo="skip", **BAND))
    texts = [
        f"{words}<br>step {step:,}: {mean:.4g}"
        + ("" if low is None or high is None else f"<br>{low:.4g} to {high:.4g}")
        for step, mean, low, high in zip(
            curve.steps, curve.mean, curve.low, curve.high, strict=True
        )
    ]
    figure.add_trace(line(curve.mean, texts))
    figure.update_xaxes(title_text="step")
    figure.update_yaxes(zeroline=True, zerolinewidth=1.5)
    return figure


def _losses(found: Contrast, curve: Curve, style: dict[str, Mark]) -> Any:
    figure = new_figure("training loss, nats per token")
    for label, values in zip(found.labels, (curve.a, curve.b), strict=True):
        text = [
            f"<b>{escape(label)}</b><br>step {step:,}: {loss:.4g} nats per token"
            for step, loss in zip(curve.steps, values, strict=True)
        ]
        trace = new_line(label, style[label], x=curve.steps, y=values, text=text)
        figure.add_trace(trace.update(mode="lines"))
    figure.update_xaxes(title_text="step", type="log" if len(curve.steps) > 2 else "linear")
    return figure


def _by_depth(
    found: Contrast, record: ByDepth, style: dict[str, Mark], words: str, unit: str, log: bool
) -> Any:
    figure = new_figure(words)
    for label, places, values in zip(
        found.labels, depth_axes(record, unit), (record.a, record.b), strict=True
    ):
        text = [
            f"<b>{escape(label)}</b><br>{unit} {place:.3g}: "
            + (MISSING if value is None else f"{value:.4g}")
            for place, value in zip(places, values, strict=True)
        ]
        known: list[Any] = list(values)
        figure.add_trace(new_line(label, style[label], x=places, y=known, text=text))
    figure.update_xaxes(title_text=axis_title(record, unit))
    if len(record.a) == len(record.b):
        figure.update_xaxes(tick0=0, dtick=-(-len(record.a) // MOST_TICKS))
    if log:
        figure.update_yaxes(type="log")
    return figure


def _strip(found: Contrast) -> list[tuple[str, str]]:
    budget, pairs = found.a.budget, found.lead.bits_per_byte.pairs if found.lead else 0
    return [
        ("seeds finished with both", f"{pairs} of {len(found.seeds)}"),
        ("tokens a trial", f"{budget.tokens:,}"),
        ("batch", f"{budget.sequences} × {budget.length}"),
        ("parameters", f"{budget.parameters:,} / {found.b.budget.parameters:,}"),
        ("same start", f"{100 * found.shared.of_a:.3g} % / {100 * found.shared.of_b:.3g} %"),
    ]


def _costs(a: SideResult, b: SideResult) -> list[tuple[str, float | None, float | None, str]]:
    def milliseconds(side: SideResult) -> float | None:
        return None if side.seconds_per_step is None else 1e3 * side.seconds_per_step

    return [
        ("parameters", a.budget.parameters, b.budget.parameters, ""),
        (
            "operations per token, training",
            a.budget.flops_per_token,
            b.budget.flops_per_token,
            "",
        ),
        ("time per step", milliseconds(a), milliseconds(b), " ms"),
    ]


def _ends(what: str, records: Sequence[ByDepth], kind: str) -> Line:
    """A signal of the last record in one number: first over last depth, or the reverse, or mean."""
    if not records:
        return Line(what, MISSING, MISSING, MISSING)
    last = records[-1]
    return Line(what, _summary(last.a, kind), _summary(last.b, kind), MISSING)


def _summary(values: Sequence[float | None], kind: str) -> str:
    first, last = values[0], values[-1]
    if kind == "mean":
        known = [value for value in values if value is not None]
        return f"{sum(known) / len(known):.3g}" if known else MISSING
    if not first or not last:
        return MISSING
    return f"{first / last if kind == 'ratio' else last / first:.3g}"


def _loss(by_seed: dict[int, float], deviation: float | None) -> str:
    if not by_seed:
        return MISSING
    spread = "" if deviation is None else f" ± {deviation:.3f}"
    return f"{sum(by_seed.values()) / len(by_seed):.4f}{spread}"


def _bounds(found: Interval | None) -> str:
    """``+0.12 [+0.08, +0.16]``."""
    if found is None:
        return MISSING
    form = f"+.{decimals(found)}f"
    if found.low is None or found.high is None:
        return f"{found.mean:{form}}"
    return f"{found.mean:{form}} [{found.low:{form}}, {found.high:{form}}]"


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return MISSING
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}{unit}"
