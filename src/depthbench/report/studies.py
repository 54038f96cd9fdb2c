"""Several studies on one page: their verdicts, their curves in one figure, what differs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from depthbench.config import read_toml
from depthbench.errors import DepthbenchError
from depthbench.files import write_atomic
from depthbench.report import facts
from depthbench.report.aspect_plot import aspect_plot, choices, placed
from depthbench.report.html import render_page
from depthbench.report.study import StudyData, load
from depthbench.report.style import marks
from depthbench.study.store import Row
from depthbench.study.words import listed

PAGE = "compare.html"
HELD_OUT = {"validation_tokens": "validation tokens a domain", "length": "tokens a row"}


@dataclass(frozen=True)
class Group:
    """Studies with the same held-out text, so that their losses can be compared."""

    data: str
    """Hash of the data, and what of it is held out."""
    studies: list[StudyData]
    cautions: list[str]
    """What differs that a loss depends on."""
    figure: str
    """Name of their figure on the page."""
    axes: dict[str, Any]
    """What its reader can choose."""


def write_studies(folders: Sequence[Path], out: Path) -> Path:
    """Write ``compare.html`` of the studies in ``folders`` to ``out``; its path.

    Raises `DepthbenchError` for fewer than two studies, and as `load` does.
    """
    if len({folder.resolve() for folder in folders}) < 2:
        raise DepthbenchError(
            f"--compare names no other study than {folders[0]}. Name the folder of another one"
        )
    path = out / PAGE
    write_atomic(path, render_studies([load(folder) for folder in folders], folders))
    return path


def render_studies(studies: Sequence[StudyData], folders: Sequence[Path]) -> str:
    """The page as one string; losses on other data stand in a figure of their own."""
    named = [_named(study, name) for study, name in zip(studies, _names(studies), strict=True)]
    labels = [design.label for study in named for design in study.verdict.designs]
    style = marks(labels)
    figures: dict[str, Any] = {}
    groups: list[Group] = []
    for data, found in groupby(sorted(named, key=_held_out), key=_held_out):
        own, name = list(found), f"aspect-{len(groups)}"
        place = placed(_together(own))
        figures[name] = aspect_plot(place, style)
        cautions = [*_unlike(own), *place.remarks]
        groups.append(Group(data, own, cautions, name, choices(figures[name])))
    return render_page(
        "studies.html",
        figures,
        style,
        studies=named,
        groups=groups,
        differences=list(differences(folders, [study.name for study in named])),
        facts=facts,
    )


def _held_out(study: StudyData) -> str:
    """What losses are of: text, how much of it, and in rows of what length."""
    row = study.rows[0]
    train = row.config.get("train", {})
    rows = [f"{train[name]:,} {words}" for name, words in HELD_OUT.items() if name in train]
    return ", ".join([row.data_hash, *rows])


def _unlike(studies: Sequence[StudyData]) -> Iterator[str]:
    """What losses of the same text depend on besides the design."""
    tokens = {study.name: facts.span([row.tokens for row in _done(study)]) for study in studies}
    if len(set(tokens.values())) > 1:
        each = listed(f"{many} ({name})" for name, many in tokens.items())
        yield f"Trials differ in training tokens: {each}. Longer training alone lowers the loss."
    every = [row.machine for study in studies for row in study.rows]
    kinds = dict.fromkeys(f"{one.processor}, {one.device}, {one.dtype}" for one in every)
    if len(kinds) > 1:
        yield f"Trials ran on unlike machines ({'; '.join(kinds)}): times are not comparable."


def _done(study: StudyData) -> list[Row]:
    return [row for row in study.rows if row.status == "done"] or study.rows


def differences(folders: Sequence[Path], names: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Every setting of ``study.toml`` that is not the same in all, with its values in order."""
    every = [_flat(read_toml(folder / "study.toml")) for folder in folders]
    for key in sorted({key for settings in every for key in settings}):
        values = [repr(settings[key]) if key in settings else "–" for settings in every]
        if len(set(values)) > 1:
            yield key, values


def _flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in table.items():
        inner = (
            _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
        )
        found |= inner
    return found


def _names(studies: Sequence[StudyData]) -> list[str]:
    """Of the studies, with numbers where two have one."""
    names = [study.name for study in studies]
    return [
        name if names.count(name) == 1 else f"{name} ({names[: place + 1].count(name)})"
        for place, name in enumerate(names)
    ]


def _named(study: StudyData, name: str) -> StudyData:
    """With its name in front of each design's."""

    def label(old: str) -> str:
        return f"{name} · {old}"

    rows = [row.model_copy(update={"label": label(row.label)}) for row in study.rows]
    own = {row.id: row for row in rows}
    designs = tuple(
        design.model_copy(update={"label": label(design.label)}) for design in study.verdict.designs
    )
    return replace(
        study,
        name=name,
        rows=rows,
        verdict=study.verdict.model_copy(update={"designs": designs}),
        curves=[replace(curve, row=own[curve.row.id]) for curve in study.curves],
    )


def _together(studies: Sequence[StudyData]) -> StudyData:
    """As one study, for a figure."""
    first = studies[0]
    designs = tuple(design for study in studies for design in study.verdict.designs)
    return replace(
        first,
        rows=[row for study in studies for row in study.rows],
        verdict=first.verdict.model_copy(update={"designs": designs}),
        curves=[curve for study in studies for curve in study.curves],
    )
