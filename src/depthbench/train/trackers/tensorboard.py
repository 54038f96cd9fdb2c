"""TensorBoard: an event file in the run's folder, written record by record."""

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

from depthbench.train.outcome import Outcome
from depthbench.train.trackers.base import TrackedRun, Tracker, library

FOLDER = "tensorboard"


class TensorBoard(Tracker):
    """``tensorboard --logdir runs`` shows it.

    Written without the writer of `torch.utils.tensorboard`, whose thread prints a traceback when
    the disk is full, and whose import takes seconds.
    """

    name = "tensorboard"
    rewinds = True

    @classmethod
    def check(cls) -> None:
        library("tensorboard.summary.writer.record_writer", cls.name)

    def open(self, run: TrackedRun) -> int | None:
        """A file of its own; it says that what an earlier one holds of later steps is void."""
        self.events = library("tensorboard.compat.proto.event_pb2", self.name)
        self.summaries = library("tensorboard.compat.proto.summary_pb2", self.name)
        self.texts = library("tensorboard.plugins.text.summary_v2", self.name)
        writer = library("tensorboard.summary.writer.record_writer", self.name)
        folder = run.folder / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        self.writer = writer.RecordWriter(self._path(folder).open("ab"))
        self._write(file_version="brain.Event:2")
        if run.before:
            start = self.events.SessionLog(status=self.events.SessionLog.START)
            void = run.step + 1 if run.step else 0
            self._write(step=void, session_log=start)
        if not run.step:
            self._write(step=0, summary=self._text("config", run.config))
        self.writer.flush()
        return None

    def log(self, step: int, values: dict[str, float]) -> None:
        """One event holds all values of a step."""
        entries = [
            self.summaries.Summary.Value(tag=tag, simple_value=value)
            for tag, value in values.items()
        ]
        self._write(step=step, summary=self.summaries.Summary(value=entries))
        self.writer.flush()

    def close(self, outcome: Outcome) -> None:
        """How it ended, as text."""
        facts = {"status": outcome.status, "reason": outcome.reason, "steps": outcome.steps}
        self._write(step=outcome.steps, summary=self._text("outcome", facts))
        self.writer.close()

    def _path(self, folder: Path) -> Path:
        """TensorBoard reads the files of a folder in the order of their names."""
        stamp = f"{time.time_ns() // 1000:016d}"
        return folder / f"events.out.tfevents.{stamp}.{socket.gethostname()}.{os.getpid()}"

    def _text(self, tag: str, data: dict[str, Any]) -> Any:
        indented = json.dumps(data, indent=2).replace("\n", "\n    ")
        return self.texts.text_pb(tag, f"    {indented}")

    def _write(self, **content: Any) -> None:
        event = self.events.Event(wall_time=time.time(), **content)
        self.writer.write(event.SerializeToString())
