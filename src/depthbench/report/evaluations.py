"""Evaluations of a study's trials, as its report shows them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from depthbench.config import digest_of
from depthbench.errors import DepthbenchError
from depthbench.evals.programs import PLAIN
from depthbench.evals.result import FILE, FOLDER, Evaluation, Kind, Measured, read_evaluation
from depthbench.probes.load import DTYPES, hash_of_trial
from depthbench.probes.result import Number
from depthbench.study.store import Row

TITLES: dict[Kind, str] = {
    "domain": "Loss by domain, against the aspect ratio",
    "pairs": "Loss on answers",
    "task": "Answers that are right, by steps",
    "lm_eval": "Tasks of the lm-evaluation-harness",
}
FIRST: dict[Kind, tuple[str, ...]] = {
    "domain": ("nats_per_token", "bits_per_byte"),
    "pairs": ("nats_per_token", "bits_per_byte"),
    "task": ("accuracy",),
}
"""Numbers that are shown; all of other kinds."""


@dataclass(frozen=True)
class EvaluatedTrial:
    """A trial with what was measured of it."""

    row: Row
    evaluation: Evaluation


@dataclass(frozen=True)
class Table:
    """One kind of evaluation of every trial, wide to narrow."""

    title: str
    headings: tuple[str, ...]
    lines: tuple[tuple[Row, tuple[Number | None, ...]], ...]


@dataclass(frozen=True)
class EvaluatedStudy:
    """All evaluations of a study."""

    trials: tuple[EvaluatedTrial, ...]
    remarks: tuple[str, ...]
    """What is broken, or of no trial."""

    def tables(self) -> list[Table]:
        """The trials as they are: one table for each kind that was measured."""
        return [table for kind in TITLES if (table := self._table(kind)).headings]

    def changed(self) -> list[tuple[Row, Measured, Number]]:
        """Under interventions: the first number of each."""
        return [
            (trial.row, one, one.numbers[0])
            for trial in self.trials
            for one in trial.evaluation.measured
            if one.program != PLAIN and one.numbers
        ]

    def _table(self, kind: Kind) -> Table:
        found = [(trial.row, _numbers(trial.evaluation, kind)) for trial in self.trials]
        columns = list(dict.fromkeys(column for _, numbers in found for column in numbers))
        lines = [
            (row, tuple(numbers.get(column) for column in columns))
            for row, numbers in found
            if numbers
        ]
        names = [name for name, _ in columns]
        headings = (f"{name} ({mark})" if names.count(name) > 1 else name for name, mark in columns)
        return Table(TITLES[kind], tuple(headings), tuple(lines))


def evaluated_study(folder: Path, rows: Sequence[Row]) -> EvaluatedStudy | None:
    """What lies under ``results`` of the study in ``folder``; None if nothing does.

    What cannot be read, or is not of the weights of a trial of the study, is left out and named.
    """
    paths = sorted((folder / FOLDER).glob(f"*/{FILE}"))
    if not paths:
        return None
    known = {row.id: row for row in rows}
    trials: list[EvaluatedTrial] = []
    remarks: list[str] = []
    for path in paths:
        row = known.get(path.parent.name)
        if row is None:
            remarks.append(f"{FOLDER}/{path.parent.name} is of no trial of this study: left out.")
            continue
        try:
            evaluation = read_evaluation(path)
        except DepthbenchError as error:
            remarks.append(f"{error}.")
            continue
        fits, remark = _of_trial(folder, row, evaluation)
        if remark:
            remarks.append(remark)
        if fits:
            trials.append(EvaluatedTrial(row, evaluation))
    trials.sort(key=lambda one: (-one.row.shape.aspect_ratio, one.row.label, one.row.seed))
    return EvaluatedStudy(tuple(trials), tuple(remarks))


def _of_trial(folder: Path, row: Row, evaluation: Evaluation) -> tuple[bool, str]:
    """Whether it is of the trial's weights as they are, and what is to be said of that."""
    name = f"{row.label}, {row.shape.layers} layers, seed {row.seed} (trial {row.id})"
    dtypes = {one.machine.dtype for one in evaluation.measured} & DTYPES.keys()
    try:
        hashes = {hash_of_trial(folder / "trials" / row.id, one) for one in dtypes}
    except DepthbenchError as error:
        return True, f"{name}: whether its evaluations are of its weights is not known: {error}."
    if not dtypes or evaluation.subject.weights_hash in hashes:
        return True, ""
    return False, (
        f"{name}: its evaluations are of other weights than its last checkpoint: left out. "
        "Evaluate the trial again."
    )


def _numbers(evaluation: Evaluation, kind: Kind) -> dict[tuple[str, str], Number]:
    """By heading, and a digest of policy and text: others are columns of their own."""
    return {
        (
            f"{one.name}, {number.unit or number.title}",
            digest_of([one.policy, one.data_hash]),
        ): number
        for one in evaluation.of(kind, PLAIN)
        for number in one.numbers
        if number.name in FIRST.get(kind, (number.name,))
    }
