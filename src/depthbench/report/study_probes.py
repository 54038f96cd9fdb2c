"""Probes of a study's best trials, as its report shows them."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from depthbench.errors import DepthbenchError
from depthbench.probes.load import DTYPES, hash_of_trial
from depthbench.probes.result import ProbeResult
from depthbench.probes.run import read_result
from depthbench.probes.study import FOLDER, chosen_trials
from depthbench.report.probe_groups import Cell, Probed, numbers, shown
from depthbench.study.store import Row
from depthbench.study.words import listed

VERDICT = "depth"
PAGE = "report.html"


@dataclass(frozen=True)
class ProbedTrial:
    """A chosen trial with what its probes found."""

    row: Row
    model: Probed
    page: Path | None
    """Its own page."""

    @property
    def words(self) -> Sequence[str]:
        """What `depth` says of it."""
        result = self.model.of(VERDICT)
        return () if result is None else result.words


@dataclass(frozen=True)
class ProbedStudy:
    """All of a study's probes."""

    trials: list[ProbedTrial]
    page: Path | None
    """All models side by side."""
    remarks: list[str]
    """What is missing, broken or of another model."""

    @property
    def deepest(self) -> list[ProbedTrial]:
        """Those at the deepest shape that was probed."""
        layers = max(trial.row.shape.layers for trial in self.trials)
        return [trial for trial in self.trials if trial.row.shape.layers == layers]


def probed_study(folder: Path, rows: Sequence[Row]) -> ProbedStudy | None:
    """What lies under ``probes`` of the study in ``folder``; None if nothing does.

    Results that cannot be read, or are not of a chosen trial's weights, are left out and named.
    """
    place = folder / FOLDER
    having = sorted({path.parent.name for path in place.glob("*/*.json")})
    if not having:
        return None
    chosen = {row.id: row for row in chosen_trials(rows)}
    remarks = list(_strangers(having, chosen, rows))
    trials: list[ProbedTrial] = []
    places = Counter((row.label, row.shape.layers) for row in chosen.values())
    for row in chosen.values():
        name = f"{row.label}, {row.shape.layers} layers"
        if places[row.label, row.shape.layers] > 1:
            name += f", width {row.shape.width}"
        if row.id not in having:
            remarks.append(f"{name} (trial {row.id}) is not probed yet.")
            continue
        results = _results(folder, row, name, remarks)
        if results:
            page = place / row.id / PAGE
            model = Probed(name, row.label, results)
            trials.append(ProbedTrial(row, model, page if page.exists() else None))
    page = place / PAGE
    return ProbedStudy(trials, page if page.exists() else None, remarks)


def number_table(
    study: ProbedStudy,
) -> tuple[list[str], list[tuple[ProbedTrial, list[tuple[Cell, str]]]]]:
    """Headings, and for each trial each of `depth`'s numbers with its unit."""
    models = [trial.model for trial in study.trials]
    found = numbers(models, VERDICT)
    table: list[tuple[ProbedTrial, list[tuple[Cell, str]]]] = []
    for trial in study.trials:
        cells: list[tuple[Cell, str]] = []
        for one in found:
            own = [number for model, number in one.sides if model is trial.model]
            known = bool(own) and own[0].value is not None
            cells.append((shown(own[0]), own[0].unit) if known else (shown(None), ""))
        table.append((trial, cells))
    return [one.title for one in found], table


def address(page: Path, target: Path) -> str:
    """Of a page, in a page in the folder ``target``."""
    return quote(Path(os.path.relpath(page, target)).as_posix())


def about_depth(study: ProbedStudy) -> str:
    """Which trials lie side by side, and which designs are not among them."""
    deepest = study.deepest
    labels = [trial.row.label for trial in deepest]
    text = f"At {deepest[0].row.shape.layers} layers, the best trial of {listed(labels)}."
    others = dict.fromkeys(
        trial.row.label for trial in study.trials if trial.row.label not in labels
    )
    if others:
        text += f" Nothing this deep is probed of {listed(others)}."
    return text


def _strangers(having: Sequence[str], chosen: dict[str, Row], rows: Sequence[Row]) -> Iterator[str]:
    known = {row.id: row for row in rows}
    for name in having:
        if name in chosen:
            continue
        if name in known:
            row = known[name]
            what = f"is of {row.label} at {row.shape.layers} layers, no longer a best trial"
        else:
            what = "is of no trial of this study"
        yield f"probes/{name} {what}: left out."


def _results(folder: Path, row: Row, name: str, remarks: list[str]) -> list[ProbeResult]:
    """Those that can be read and are of the trial's weights."""
    found: list[ProbeResult] = []
    for path in sorted((folder / FOLDER / row.id).glob("*.json")):
        try:
            found.append(read_result(path))
        except DepthbenchError as error:
            remarks.append(f"{name}: {error}.")
    if not found:
        return []
    try:
        hashes = {one: hash_of_trial(folder / "trials" / row.id, one) for one in _dtypes(found)}
    except DepthbenchError as error:
        remarks.append(f"{name}: whether its probes are of its weights is not known: {error}.")
        return found
    fitting = [one for one in found if one.subject.weights_hash == hashes.get(one.machine.dtype)]
    if stale := [one.probe for one in found if one not in fitting]:
        remarks.append(
            f"{name}: {listed(stale)} measured other weights than the trial's last checkpoint: "
            "left out. Probe the study again."
        )
    return fitting


def _dtypes(results: Sequence[ProbeResult]) -> list[str]:
    return [one for one in dict.fromkeys(r.machine.dtype for r in results) if one in DTYPES]
