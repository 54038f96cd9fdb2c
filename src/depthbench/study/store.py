"""Results of trials as schema'd rows: ``results.jsonl``, one row a finished trial."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from depthbench.config import Frozen
from depthbench.files import append_line, read_lines, whole_lines
from depthbench.nn.count import Parameters
from depthbench.shapes import Shape
from depthbench.train.record import read_records

SCHEMA_VERSION = 1

Status = Literal["done", "diverged", "failed"]
Phase = Literal["search", "shared", "single"]
"""``single``: a run of its own, outside a study."""


class DomainLoss(Frozen):
    """Loss on one domain's validation tokens, in both units."""

    nats_per_token: float
    bits_per_byte: float
    tokens: int
    bytes: int


class Accuracy(Frozen):
    """Answers that are exactly right, with the 95 % Wilson interval."""

    right: int
    questions: int
    share: float
    low: float
    high: float


class Machine(Frozen):
    """Where and with what a trial ran; of one that was lost, where its row was written."""

    host: str
    platform: str
    processor: str
    cores: int
    device: str
    dtype: str
    python: str
    torch: str
    depthbench: str
    commit: str | None
    """None where the package does not run from a checkout."""


class Row(Frozen):
    """One finished trial. A missing value is None, never 0."""

    schema_version: Literal[1] = SCHEMA_VERSION
    id: str
    """Digest of ``config``."""
    study: str
    label: str
    """The design's label in the study: its name unless options were set."""
    design: dict[str, Any]
    """Resolved config of the design, ``name`` included."""
    shape: Shape
    learning_rate: float
    seed: int
    phase: Phase
    status: Status
    reason: str | None = None
    """Why a trial diverged or failed."""
    parameters: Parameters
    steps: int
    """Optimizer steps that were done."""
    tokens: int
    """Training tokens that were seen."""
    loss: DomainLoss | None = None
    """Validation loss over all domains together; None unless ``done``."""
    domains: dict[str, DomainLoss] = Field(default_factory=dict)
    accuracy: dict[str, Accuracy] = Field(default_factory=dict)
    """By domain, of a trial that was trained on a task and tested; its questions are no text that
    a loss says much of."""
    unigram_bits_per_byte: float | None = None
    """Entropy of the validation text under its own unigram distribution."""
    final_train_loss: float | None = None
    seconds: float
    tokens_per_second: float | None = None
    data_hash: str
    config: dict[str, Any]
    """The trial's whole resolved config."""
    machine: Machine
    notes: list[str] = Field(default_factory=list)
    """Fallbacks that were taken, in words."""
    finished: str
    """ISO 8601 time, UTC."""


class Store:
    """The rows of one study; for one id the last row wins."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "results.jsonl"
        self._newest: dict[str, Row] = {}
        self._mark: tuple[int, int, int] | None = None
        """Of the file whose rows those are."""

    def rows(self) -> list[Row]:
        """The newest row of every trial, in order of first appearance.

        The file is read again only if another one has changed it since.
        """
        mark = self._mark_now()
        if mark is None or mark != self._mark:
            self._newest = {row.id: row for row in self._read()}
            self._mark = mark
        return list(self._newest.values())

    def add(self, row: Row) -> None:
        """Append ``row`` durably."""
        known = self._mark_now() == self._mark
        append_line(self.path, row.resolved())
        if known:
            self._newest[row.id] = row
            self._mark = self._mark_now()

    def _read(self) -> list[Row]:
        try:
            return [
                Row.model_validate_json(line) for line in whole_lines(self.path) if line.strip()
            ]
        except ValidationError:
            # the slower way names the line and the field
            records = enumerate(read_lines(self.path), start=1)
            return [Row.parse(record, f"{self.path} row {number}") for number, record in records]

    def _mark_now(self) -> tuple[int, int, int] | None:
        """What changes with the file: its number, size and time; None when there is none."""
        try:
            facts = self.path.stat()
        except OSError:
            return None
        return facts.st_ino, facts.st_size, facts.st_mtime_ns

    def metrics(self, trial_id: str) -> list[dict[str, Any]]:
        """The metric records of a trial by step; the last write of a step wins."""
        records = read_records(self.folder / "trials" / trial_id / "metrics.jsonl")
        by_step: dict[int, dict[str, Any]] = {}
        for record in records:
            by_step[record["step"]] = by_step.get(record["step"], {}) | record
        return [by_step[step] for step in sorted(by_step)]
