"""trackio: a local database, or a Space of Hugging Face (``TRACKIO_SPACE_ID``)."""

import contextlib
import os
import sys
from typing import Any

from depthbench.train.outcome import Outcome
from depthbench.train.trackers.base import TrackedRun, Tracker, library

PROJECT = "depthbench"


class Trackio(Tracker):
    """Project ``depthbench`` (``TRACKIO_PROJECT``); ``trackio show`` opens it."""

    name = "trackio"
    rewinds = False

    @classmethod
    def check(cls) -> None:
        library("trackio", cls.name)

    def open(self, run: TrackedRun) -> int | None:
        """Runs are known by their names there, so the name holds the id.

        What it had not yet written when its process was killed is lost, so its database is asked.
        """
        trackio = library("trackio", self.name)
        project, name = os.environ.get("TRACKIO_PROJECT", PROJECT), f"{run.name} {run.id}"
        # it greets on standard output, which belongs to --json
        with contextlib.redirect_stdout(sys.stderr):
            self.run: Any = trackio.init(
                project=project,
                name=name,
                group=run.group,
                config=run.config,
                resume="allow",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )
        if os.environ.get("TRACKIO_SPACE_ID") or os.environ.get("TRACKIO_SERVER_URL"):
            return None
        storage = library("trackio.sqlite_storage", self.name).SQLiteStorage
        return storage.get_max_step_for_run(project, name) or 0

    def log(self, step: int, values: dict[str, float]) -> None:
        """Under its own step."""
        self.run.log(values, step=step)

    def close(self, outcome: Outcome) -> None:
        """Wait until everything is written."""
        with contextlib.redirect_stdout(sys.stderr):
            # the run's own finish would be called, and speak, a second time at exit
            library("trackio", self.name).finish()
