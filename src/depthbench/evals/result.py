"""What an evaluation found: ``results/eval.json`` beside the model."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from depthbench.config import Frozen, digest_of
from depthbench.errors import DepthbenchError
from depthbench.files import write_atomic
from depthbench.probes.result import Number
from depthbench.probes.subject import SubjectFacts
from depthbench.study.store import Machine

SCHEMA_VERSION = 1
FOLDER = "results"
FILE = "eval.json"
Kind = Literal["domain", "pairs", "task", "lm_eval"]


class Measured(Frozen):
    """One text, set or task under one program."""

    kind: Kind
    name: str
    program: str
    """In words; ``plain`` for the model as it is."""
    blocks: tuple[int, ...]
    """Those that ran, in order."""
    policy: dict[str, Any]
    """How text became rows and numbers."""
    data_hash: str
    """Of the text that was read, as tokens."""
    counts: dict[str, int]
    numbers: tuple[Number, ...]
    notes: tuple[str, ...] = ()
    """Fallbacks that were taken, and what was left out."""
    machine: Machine
    finished: str
    """ISO 8601 time, UTC."""

    @property
    def key(self) -> str:
        """What a later measurement of the same replaces."""
        return digest_of([self.kind, self.name, self.blocks, self.policy])

    def number(self, name: str) -> Number | None:
        """The number called ``name``."""
        return next((one for one in self.numbers if one.name == name), None)


class Evaluation(Frozen):
    """All that is measured of one model."""

    schema_version: Literal[1] = SCHEMA_VERSION
    subject: SubjectFacts
    measured: tuple[Measured, ...] = ()

    def of(self, kind: Kind, program: str | None = None) -> list[Measured]:
        """Those of ``kind``, and of ``program`` alone if it is given."""
        return [one for one in self.measured if one.kind == kind and program in (None, one.program)]


def merged(path: Path, subject: SubjectFacts, found: Sequence[Measured]) -> Evaluation:
    """``found`` together with what ``path`` holds of the same weights; written there.

    Raises `DepthbenchError` where the file is of another version or cannot be read.
    """
    known: dict[str, Measured] = {}
    if path.exists():
        earlier = read_evaluation(path)
        if earlier.subject.weights_hash == subject.weights_hash:
            known = {one.key: one for one in earlier.measured}
    known |= {one.key: one for one in found}
    every = Evaluation(subject=subject, measured=tuple(known.values()))
    write_atomic(path, every.model_dump_json(indent=1) + "\n")
    return every


def read_evaluation(path: Path) -> Evaluation:
    """Raises `DepthbenchError` for a file that is broken or of another version."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DepthbenchError(
            f"{path} cannot be read: {error}. Remove it and evaluate the model again"
        ) from None
    version = data.get("schema_version") if isinstance(data, dict) else None
    if version != SCHEMA_VERSION:
        raise DepthbenchError(
            f"{path}: schema_version = {version!r}, but this depthbench reads {SCHEMA_VERSION}. "
            "Remove it and evaluate the model again"
        )
    return Evaluation.parse(data, str(path))


def hash_of_rows(rows: Iterable[Sequence[int]]) -> str:
    """Twelve hexadecimal digits of the tokens that were read."""
    return digest_of([list(map(int, row)) for row in rows])
