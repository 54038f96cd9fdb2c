"""What a line of a trial's metrics must be, for those who read it."""

from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field

from depthbench.config import Frozen
from depthbench.errors import DepthbenchError
from depthbench.files import read_lines


class Record(Frozen):
    """The part of a record that others count on; more may stand beside it."""

    model_config = ConfigDict(extra="allow")

    step: int = Field(ge=1)
    tokens: int = Field(default=0, ge=0)
    train_loss: float | None = None
    grad_norm: float | None = None
    learning_rate: float = 0.0
    loss: dict[str, Any] | None = None
    domains: dict[str, dict[str, Any]] = Field(default_factory=dict)
    health: dict[str, Any] = Field(default_factory=dict)
    spikes: list[dict[str, Any]] = Field(default_factory=list)


def read_records(path: Path) -> list[dict[str, Any]]:
    """The records of a ``metrics.jsonl``; none when there is no such file.

    Raises `DepthbenchError` for a line that is none, and says which.
    """
    records = read_lines(path)
    for number, record in enumerate(records, start=1):
        try:
            Record.parse(record, f"{path} record {number}")
        except DepthbenchError as error:
            raise DepthbenchError(f"{error}. {REMEDY}") from None
    return records


REMEDY = "Take the file from a copy, or train again with --resume never"
