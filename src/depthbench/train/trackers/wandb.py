"""Weights & Biases: online with an API key, or offline in the run's folder."""

import netrc
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from depthbench.errors import DepthbenchError
from depthbench.train.outcome import Outcome
from depthbench.train.trackers.base import TrackedRun, Tracker, library

PROJECT = "depthbench"
START_SECONDS = 30.0
"""How long training waits for the server at its start; then it goes on without."""
FINISH_SECONDS = 60.0
"""How long a run that is over waits for what is not uploaded yet."""
LOCAL_MODES = ("offline", "disabled", "dryrun")


class WeightsAndBiases(Tracker):
    """Project ``depthbench`` (``WANDB_PROJECT``), a group for each study.

    ``WANDB_MODE=offline`` and ``disabled`` are respected; nobody is ever asked to log in.
    """

    name = "wandb"
    rewinds = False

    @classmethod
    def check(cls) -> None:
        wandb = library("wandb", cls.name)
        settings = wandb.setup().settings
        if settings.mode in LOCAL_MODES or settings.api_key or _has_key(settings.base_url):
            return
        raise DepthbenchError(
            "--log wandb: no API key. Set WANDB_MODE=offline to log to the run's folder, or run "
            "`wandb login` first"
        )

    def open(self, run: TrackedRun) -> int | None:
        """The same run id whenever training goes on, so that it is one run there too."""
        wandb = library("wandb", self.name)
        settings = wandb.Settings(
            console="off",
            silent=True,
            init_timeout=START_SECONDS,
            finish_timeout=FINISH_SECONDS,
        )
        self.run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            group=run.group,
            name=run.name,
            id=run.id,
            resume="allow",
            dir=str(run.folder),
            config=run.config,
            settings=settings,
        )
        return None

    def log(self, step: int, values: dict[str, float]) -> None:
        """Under its own step."""
        self.run.log(values, step=step)

    def close(self, outcome: Outcome) -> None:
        """A diverged run is a failed one there."""
        self.run.summary.update({"status": outcome.status, "reason": outcome.reason})
        self.run.finish(exit_code=1 if outcome.status == "diverged" else 0)


def _has_key(address: str) -> bool:
    """Whether the user has logged in, which writes the host's key to the netrc file."""
    if os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    for path in (os.environ.get("NETRC"), "~/.netrc", "~/_netrc"):
        try:
            if path and netrc.netrc(Path(path).expanduser()).authenticators(_host(address)):
                return True
        except (OSError, netrc.NetrcParseError):
            continue
    return False


def _host(address: str) -> str:
    return urlparse(address).hostname or address
