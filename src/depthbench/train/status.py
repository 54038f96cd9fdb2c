"""Whether a run is going on: ``status.json`` in its folder, for those who watch it."""

import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from depthbench.config import Frozen
from depthbench.errors import DepthbenchError
from depthbench.files import replace_text
from depthbench.train.config import TrialConfig
from depthbench.train.metrics import Listener
from depthbench.train.outcome import Outcome

FILE = "status.json"

State = Literal["running", "done", "diverged", "stopped", "failed"]


class Status(Frozen):
    """The last that the process of a run said of itself."""

    format: Literal[1] = 1
    state: State
    reason: str | None = None
    pid: int = Field(gt=0, lt=2**31)
    host: str
    at: str
    """ISO 8601 time of this word, UTC."""

    @property
    def gone(self) -> bool | None:
        """Whether its process has ended; None where this machine cannot tell."""
        # elsewhere signal 0 is no question
        if self.host != platform.node() or os.name != "posix":
            return None
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False


def write_status(folder: Path, state: State, reason: str | None = None) -> None:
    """Say how things stand with the run in ``folder``."""
    status = Status(
        state=state,
        reason=reason,
        pid=os.getpid(),
        host=platform.node(),
        at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    # nothing is lost without it, and training must not end for it
    with suppress(OSError):
        replace_text(folder / FILE, status.model_dump_json(indent=1) + "\n")


def read_status(folder: Path) -> Status | None:
    """What was said last; None where nothing was, or nothing that can be read."""
    try:
        return Status.parse(json.loads((folder / FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, DepthbenchError):
        return None


@contextmanager
def reported(folder: Path) -> Iterator[None]:
    """Say that a study runs in ``folder``, and how that ended."""
    write_status(folder, "running")
    try:
        yield
    except KeyboardInterrupt:
        write_status(folder, "stopped", "interrupted")
        raise
    except Exception as error:
        write_status(folder, "failed", f"{type(error).__name__}: {error}")
        raise
    write_status(folder, "done")


class StatusFile(Listener):
    """Keeps the status of one trial."""

    def begin(self, config: TrialConfig, folder: Path, step: int) -> None:
        """It runs."""
        self.folder = folder
        write_status(folder, "running")

    def record(self, record: dict[str, Any], timing: dict[str, Any]) -> None:
        """Records are no news of its state."""

    def end(self, outcome: Outcome) -> None:
        """It is over, or stopped."""
        write_status(self.folder, outcome.status, outcome.reason)
