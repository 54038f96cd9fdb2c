"""Results of probes as a page of its own, with figures: one model, or several side by side."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from depthbench.errors import DepthbenchError
from depthbench.files import write_atomic
from depthbench.probes.result import ProbeResult
from depthbench.report.html import render_page
from depthbench.report.probe_figures import write_probe_figures
from depthbench.report.probe_groups import (
    Cell,
    Probed,
    cells,
    curves,
    matrices,
    numbers,
    probed,
    probes_of,
    scale_of,
)
from depthbench.report.probe_plots import curve_plot, map_plots
from depthbench.report.readings import how_to_read
from depthbench.report.style import Mark, marks

MANY = 3
"""Models that a title names."""
VERDICT = "depth"
"""The probe that sums the others up."""
Told = list[tuple[str, list[str]]]
"""Sentences with the model that they are of, or with nothing where they are of all."""


class Line(NamedTuple):
    """One number of all models."""

    title: str
    unit: str
    cells: list[Cell]
    anchor: str
    """Of the probe that it is from."""


class Plot(NamedTuple):
    """A figure of the page, by its name in the payload."""

    name: str
    title: str
    model: Probed | None
    """Whose it is; None = of all."""


class Section(NamedTuple):
    """One probe of all models."""

    anchor: str
    probe: str
    title: str
    definition: Told
    blind: Told
    reading: str
    words: Told
    numbers: list[Line]
    curves: list[Plot]
    maps: list[tuple[str, str, list[Plot]]]
    """Title, what is to be said of the colours, a map for each model."""
    facts: list[tuple[str, Told]]


def write_probes(
    groups: Sequence[Sequence[ProbeResult]], folder: Path, verdict: str = VERDICT
) -> Path:
    """Write ``report.html`` and ``figures/*.png|svg`` to ``folder``; the path of the page.

    One group a model; several are laid side by side on one scale. ``verdict`` is the probe whose
    words stand above all others. Raises `DepthbenchError` if
    there is no result.
    """
    models = probed(groups)
    if not models:
        raise DepthbenchError("no probe has a result to report. Probe a model first")
    style = marks(model.label for model in models)
    write_probe_figures(models, style, folder / "figures")
    page = folder / "report.html"
    write_atomic(page, render_probes(models, style, verdict))
    return page


def render_probes(models: Sequence[Probed], style: dict[str, Mark], above: str = VERDICT) -> str:
    """The page as one string; everything from the results is escaped."""
    figures: dict[str, Any] = {}
    sections = [
        _section(number, probe, models, style, figures)
        for number, probe in enumerate(probes_of(models))
    ]
    verdict = [told for one in sections if one.probe == above for told in one.words]
    headline = ""
    if len(models) == 1 and verdict:
        [(_, [headline, *rest])] = verdict
        verdict = [("", rest)] if rest else []
    return render_page(
        "probes.html",
        figures,
        style,
        models=models,
        sections=sections,
        title=_title(models),
        lines=_lines(sections),
        headline=headline,
        verdict=verdict,
        told_above=above,
        strip=_strip(models),
        cautions=_cautions(models),
        subjects=[(model.name, _subject(model.results[0])) for model in models],
    )


def _section(
    number: int,
    probe: str,
    models: Sequence[Probed],
    style: dict[str, Mark],
    figures: dict[str, Any],
) -> Section:
    """One probe; its plots are put into ``figures``."""
    anchor = f"probe-{number}"
    own = [(model, result) for model in models if (result := model.of(probe))]
    lines: list[Plot] = []
    for place, one in enumerate(curves(models, probe)):
        name = f"{number}-curve-{place}"
        figures[name] = curve_plot(one, style)
        lines.append(Plot(name, one.title, None))
    maps: list[tuple[str, str, list[Plot]]] = []
    for place, one in enumerate(matrices(models, probe)):
        row: list[Plot] = []
        for side, (model, figure) in enumerate(map_plots(one)):
            name = f"{number}-map-{place}-{side}"
            figures[name] = figure
            row.append(Plot(name, one.title, model))
        maps.append((one.title, scale_of(one).words, row))
    return Section(
        anchor=anchor,
        probe=probe,
        title=own[0][1].title,
        definition=_told(own, lambda result: [result.definition]),
        blind=_told(own, lambda result: [result.blind]),
        reading=how_to_read(probe),
        words=_told(own, lambda result: result.words),
        numbers=[
            Line(one.title, one.unit, cells(models, one), anchor) for one in numbers(models, probe)
        ],
        curves=lines,
        maps=maps,
        facts=[(caption, _told(own, read)) for caption, read in FACTS.items()],
    )


def _told(
    own: Sequence[tuple[Probed, ProbeResult]], read: Callable[[ProbeResult], Sequence[str]]
) -> Told:
    """What all results say, said once; otherwise by model."""
    each = [(model.name, [text for text in read(result) if text]) for model, result in own]
    if all(texts == each[0][1] for _, texts in each):
        each = [("", each[0][1])]
    return [(name, texts) for name, texts in each if texts]


def _text(result: ProbeResult) -> list[str]:
    text = result.text
    start = "rows start with text"
    if text.start_token is not None:
        start = f"token {text.start_token} in front of each"
    return [
        f"{text.origin}: {text.tokens:,} tokens of {text.documents:,} documents, "
        f"{text.predicted:,} with a loss, rows of up to {text.length}, {start}, hash {text.hash}"
    ]


def _machine(result: ProbeResult) -> list[str]:
    machine = result.machine
    return [
        f"{machine.host}, {machine.processor}, {machine.device}, {machine.dtype}, torch "
        f"{machine.torch}, depthbench {machine.depthbench}"
    ]


FACTS: dict[str, Callable[[ProbeResult], Sequence[str]]] = {
    "source": lambda result: [result.source],
    "options": lambda result: [
        f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in result.options.items()
    ],
    "text": _text,
    "weights": lambda result: [result.subject.weights_hash],
    "machine": _machine,
    "measured": lambda result: [f"{result.at}, in {result.seconds:.3g} s"],
}
"""What a section says of how it was measured."""


def _subject(result: ProbeResult) -> list[tuple[str, str]]:
    facts = result.subject
    return [
        ("model", facts.model),
        ("kind", facts.kind),
        ("from", facts.source),
        ("layers × width", f"{facts.layers} × {facts.width}"),
        ("residual streams", str(facts.streams)),
        ("vocabulary", f"{facts.vocab:,}"),
        ("parameters", f"{facts.parameters:,}"),
        ("weights", facts.weights_hash),
        ("notes", "; ".join(facts.notes) or "none"),
    ]


def _lines(sections: Sequence[Section]) -> list[Line]:
    """All numbers, each once: several probes may say the same one."""
    found: dict[Any, Line] = {}
    for line in (line for section in sections for line in section.numbers):
        found.setdefault((line.title, line.unit, tuple(line.cells)), line)
    return list(found.values())


def _title(models: Sequence[Probed]) -> str:
    if len(models) > MANY:
        return f"{len(models)} models side by side"
    return " against ".join(model.name for model in models)


def _strip(models: Sequence[Probed]) -> list[tuple[str, str]]:
    firsts = [model.results[0] for model in models]
    return [
        ("layers", _span([one.subject.layers for one in firsts])),
        ("width", _span([one.subject.width for one in firsts])),
        ("parameters", _span([one.subject.parameters for one in firsts])),
        ("tokens", _span([one.text.tokens for one in firsts])),
        ("documents", _span([one.text.documents for one in firsts])),
        ("probes", str(len(probes_of(models)))),
    ]


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _cautions(models: Sequence[Probed]) -> list[str]:
    """What stands in the way of reading the numbers of all models alike."""
    every = [result for model in models for result in model.results]
    found: list[str] = []
    if len({result.text.hash for result in every}) > 1:
        found.append(
            "Not all results are of the same tokens: losses, and numbers that come close, may "
            "differ by the text alone."
        )
    if len({result.subject.vocab for result in every}) > 1:
        found.append("Vocabularies differ: nats per token of one model are not those of another.")
    for model in models:
        if len({result.subject.weights_hash for result in model.results}) > 1:
            found.append(f"{model.name}: results are of several sets of weights. Probe it again.")
    return found
