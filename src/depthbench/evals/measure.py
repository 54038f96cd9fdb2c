"""From scores of rows to numbers with intervals."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from depthbench.evals.programs import Edit
from depthbench.evals.result import Kind, Measured, hash_of_rows
from depthbench.evals.score import Scores, scores_of
from depthbench.evals.windows import Window
from depthbench.machine import describe
from depthbench.probes.bootstrap import estimated
from depthbench.probes.result import Number
from depthbench.probes.subject import Subject

Hear = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Rows:
    """What one name of an evaluation is measured on."""

    kind: Kind
    name: str
    windows: Sequence[Window]
    policy: Mapping[str, Any]
    bytes_known: bool = True
    counts: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    known: int | None = None
    """Rows of the head that are tokens; those behind them are left out of the softmax."""


@dataclass(frozen=True)
class Machinery:
    """How rows are run."""

    subject: Subject
    edits: Sequence[Edit]
    batch: int = 8
    """Rows that run together: no part of a result but for rounding."""
    seed: int = 0
    """Of the bootstrap."""
    hear: Hear = lambda *_: None
    left: bool = False
    """Pad on the left."""


Numbers = Callable[[Rows, Scores, int, int], tuple[Number, ...]]
"""``numbers(rows, scores, program, seed)``"""


def measure(machinery: Machinery, rows: Rows, numbers: Numbers) -> Iterator[Measured]:
    """``rows`` under every program."""
    subject, edits = machinery.subject, machinery.edits
    scores = scores_of(
        subject,
        rows.windows,
        [edit.program for edit in edits],
        machinery.batch,
        left=machinery.left,
        known=rows.known,
        progress=lambda done, total: machinery.hear(rows.name, done, total),
    )
    machine = describe(str(subject.device), subject.dtype)
    counts = {
        "documents": len({one.document for one in rows.windows}),
        "rows": len(rows.windows),
        "tokens": sum(one.scored for one in rows.windows),
        **({"bytes": sum(one.bytes for one in rows.windows)} if rows.bytes_known else {}),
    }
    data_hash = hash_of_rows([(one.first, *one.ids) for one in rows.windows])
    for place, edit in enumerate(edits):
        yield Measured(
            kind=rows.kind,
            name=rows.name,
            program=edit.label,
            blocks=edit.blocks,
            policy=dict(rows.policy),
            data_hash=data_hash,
            counts=counts | dict(rows.counts),
            numbers=numbers(rows, scores, place, machinery.seed),
            notes=rows.notes,
            machine=machine,
            finished=datetime.now(UTC).isoformat(timespec="seconds"),
        )


def losses(rows: Rows, scores: Scores, program: int, seed: int) -> tuple[Number, ...]:
    """Nats per token and bits per byte over all rows; intervals over documents."""
    place = {number: n for n, number in enumerate(dict.fromkeys(w.document for w in rows.windows))}
    nats, tokens, size = (np.zeros(len(place)) for _ in range(3))
    for window, loss in zip(rows.windows, scores.nats[program], strict=True):
        n = place[window.document]
        nats[n] += loss
        tokens[n] += window.scored
        size[n] += window.bytes
    found = [_ratio("nats_per_token", "loss", "nats/token", nats, tokens, seed)]
    if rows.bytes_known and size.sum():
        bits = nats / math.log(2)
        found.append(_ratio("bits_per_byte", "loss", "bits/byte", bits, size, seed))
    return tuple(found)


def _ratio(
    name: str, title: str, unit: str, over: np.ndarray, under: np.ndarray, seed: int
) -> Number:
    def ratio(weights: np.ndarray) -> float:
        count = float(weights @ under)
        return float(weights @ over) / count if count else math.nan

    every = ratio(np.ones(len(over)))
    return estimated(ratio, every, len(over), seed, name=name, title=title, unit=unit)
