"""A study folder as read for a report."""

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from depthbench.config import Frozen, read_toml
from depthbench.errors import DepthbenchError, nearest
from depthbench.files import read_lines, try_to_reach
from depthbench.report.domain_lines import DomainLine, domain_lines
from depthbench.report.evaluations import EvaluatedStudy, evaluated_study
from depthbench.report.health import Course, Watched, courses, watched
from depthbench.report.serving import Served, read_served
from depthbench.report.study_probes import ProbedStudy, probed_study
from depthbench.report.study_streams import DiagnosedStudy, diagnosed_study
from depthbench.report.thin import stretches
from depthbench.study.findings import DesignFinding, Verdict
from depthbench.study.plan import ResolvedStudy, belonging, missing_trials
from depthbench.study.store import SCHEMA_VERSION, Row, Store
from depthbench.study.verdict import judge, on_curves

CURVE_POINTS = 120


@dataclass(frozen=True)
class TrainingCurve:
    """Training loss of one trial, averaged over at most `CURVE_POINTS` stretches of it."""

    row: Row
    tokens: list[int]
    """Training tokens seen at the end of each stretch."""
    nats_per_token: list[float]


@dataclass(frozen=True)
class StudyData:
    """What a report shows."""

    name: str
    title: str
    config_text: str
    """``study.toml`` as it stands."""
    rows: list[Row]
    """Those that belong to the config; an earlier config may have left others."""
    left_out: int
    """Rows that do not belong to it."""
    verdict: Verdict
    curves: list[TrainingCurve]
    """Of the trials at each design's used learning rate."""
    unfinished: int
    """Trials that the config needs and that have no row yet."""
    watched: list[Watched]
    """Every trial that was watched, with its findings."""
    courses: list[Course]
    """Of the best and the worst shape of every design."""
    probes: ProbedStudy | None
    """None where nothing is probed."""
    evaluations: EvaluatedStudy | None
    """None where nothing is evaluated."""
    streams: DiagnosedStudy | None
    """None where no streams are diagnosed."""
    serving: Served | None
    """None where nobody has asked what its models cost to serve."""
    domain_lines: list[DomainLine]
    """Loss by domain against the aspect ratio; empty where none is evaluated."""


class Published(Frozen):
    """Published curves: nats per token of other data, never mixed with ours."""

    source: str
    parameters: str
    unit: str
    shapes: tuple[dict[str, int], ...]
    validation_loss: dict[str, tuple[float, ...]]

    def curve(self, design: str) -> list[tuple[float, int, float]]:
        """``(aspect ratio, layers, loss)`` of each published shape, shallow to deep."""
        return [
            (shape["width"] / shape["layers"], shape["layers"], loss)
            for shape, loss in zip(self.shapes, self.validation_loss[design], strict=False)
        ]


@cache
def published() -> Published:
    """The published validation losses at 400M parameters (arXiv 2609.32534)."""
    file = resources.files("depthbench.study") / "published.json"
    return Published.parse(json.loads(file.read_text(encoding="utf-8")), "published.json")


def load(folder: Path) -> StudyData:
    """The study in ``folder``.

    Raises `DepthbenchError` in one line when it is missing, is no study folder, has no finished
    trial, or was written in another schema version.
    """
    store = Store(folder)
    resolved, recorded = read_study_folder(folder)
    rows = belonging(resolved, recorded)
    if not rows:
        raise DepthbenchError(
            f"{folder}: no trial has finished yet (0 of {resolved.trials}). "
            "Run the study, and report when a trial is done"
        )
    unfinished = missing_trials(resolved, rows)
    verdict = judge(rows, unfinished)
    on_curve = [row for found in on_curves(rows).values() for row in found]
    evaluations = evaluated_study(folder, rows)
    return StudyData(
        name=resolved.study.name,
        title=resolved.study.title,
        config_text=(folder / "study.toml").read_text(encoding="utf-8"),
        rows=rows,
        left_out=len(recorded) - len(rows),
        verdict=verdict,
        curves=[curve for row in on_curve if (curve := training_curve(store, row))],
        unfinished=unfinished,
        watched=watched(store, rows),
        courses=courses(store, rows, verdict),
        probes=probed_study(folder, rows),
        evaluations=evaluations,
        streams=diagnosed_study(folder, rows),
        serving=read_served(folder),
        domain_lines=domain_lines(evaluations, verdict),
    )


def read_study_folder(folder: Path) -> tuple[ResolvedStudy, list[Row]]:
    """The study of ``folder`` and all rows in it, those of earlier configs too.

    Raises `DepthbenchError` in one line as `load` does; no row at all is no error.
    """
    _check_folder(folder)
    path = folder / "study.toml"
    resolved = ResolvedStudy.parse(read_toml(path), str(path))
    store = Store(folder)
    _check_version(store.path)
    return resolved, store.rows()


def training_curve(store: Store, row: Row) -> TrainingCurve | None:
    """The trial's training loss in short; None when it recorded no finite loss."""
    records = store.metrics(row.id)
    points = [
        (record["tokens"], loss)
        for record in records
        if (loss := record.get("train_loss")) is not None and record.get("tokens")
    ]
    if not points:
        return None
    parts = stretches(points, CURVE_POINTS)
    return TrainingCurve(
        row=row,
        tokens=[part[-1][0] for part in parts],
        nats_per_token=[sum(loss for _, loss in part) / len(part) for part in parts],
    )


def depths(verdict: Verdict) -> list[int]:
    """Every number of layers that occurs in a curve, shallow to deep."""
    return sorted({point.layers for design in verdict.designs for point in design.curve})


def by_label(verdict: Verdict) -> dict[str, DesignFinding]:
    """The findings by design label."""
    return {design.label: design for design in verdict.designs}


def _check_folder(folder: Path) -> None:
    try:
        try_to_reach(folder)
    except OSError as error:
        raise DepthbenchError(
            f"{folder} cannot be read: {error.strerror}. "
            "Name the folder of a study, such as runs/demo"
        ) from None
    if not folder.exists():
        parent = folder.parent
        siblings = [path.name for path in parent.iterdir()] if parent.is_dir() else []
        raise DepthbenchError(
            f"{folder}: no such folder{nearest(folder.name, siblings) or '.'} "
            "Name the folder of a study, such as runs/demo"
        )
    if not folder.is_dir():
        raise DepthbenchError(f"{folder} is a file. Name the folder of the study that holds it")
    if not (folder / "study.toml").exists():
        raise DepthbenchError(
            f"{folder} is no study folder: it has no study.toml. "
            "Name the folder that `depthbench run` wrote"
        )


def _check_version(path: Path) -> None:
    for number, record in enumerate(read_lines(path), start=1):
        version = record.get("schema_version")
        if version != SCHEMA_VERSION:
            raise DepthbenchError(
                f"{path} row {number}: schema_version = {version!r}, but this depthbench reads "
                f"{SCHEMA_VERSION}. Use the version of depthbench that wrote it"
            )
