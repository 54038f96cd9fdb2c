"""One trial in a process of its own."""

import multiprocessing
import os
import signal
import threading
import time
import traceback
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from depthbench.data.dataset import Dataset
from depthbench.errors import DepthbenchError
from depthbench.files import write_atomic
from depthbench.machine import prepare_process
from depthbench.study.claim import TakenError, claimed
from depthbench.study.process import End, Job, Message
from depthbench.study.ranks import LostError, team_of
from depthbench.study.rows import this_machine
from depthbench.train.config import TrialConfig
from depthbench.train.loop import Trial
from depthbench.train.outcome import Outcome
from depthbench.train.status import StatusFile
from depthbench.train.stop import Stop
from depthbench.train.trackers import listeners

TELL_SECONDS = 0.1
"""Between two messages of progress."""


def work(channel: Connection, job: Job) -> None:
    """Train the trial of ``job`` and send messages.

    Goes on from the trial's last checkpoint. On SIGTERM, and when the study that started it is
    gone, it writes one and ends.
    """
    wish = Stop()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, wish)
    if job.gpus is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = job.gpus
    prepare_process(job.threads)
    folder = Path(job.folder)
    for old in folder.glob("error*.txt"):
        old.unlink(missing_ok=True)
    line = Line(channel, wish)
    try:
        line.say(_train(job, folder, line))
    except (TakenError, LostError) as error:
        line.break_off(str(error))
    except DepthbenchError as error:
        line.say(End(None, str(error)))
    except Exception as error:
        write_atomic(folder / "error.txt", traceback.format_exc())
        line.say(End(None, f"{type(error).__name__}: {error} (see {folder / 'error.txt'})"))


class Line:
    """The line to the study: what is said into it, and whether it is still there."""

    def __init__(self, channel: Connection, wish: Stop) -> None:
        self.channel, self.wish = channel, wish
        self.parent = multiprocessing.parent_process()
        self.told = 0.0
        self.one_at_a_time = threading.Lock()

    def progress(self, steps: int, tokens: int) -> None:
        """Tell how far it is, unless that was told just now."""
        now = time.monotonic()
        if now - self.told >= TELL_SECONDS:
            self.told = now
            self.say((steps, tokens))

    def say(self, message: Message) -> None:
        """Send ``message``; nobody listening is a wish to stop."""
        try:
            with self.one_at_a_time:
                self.channel.send(message)
        except OSError:
            self.wish(signal.SIGTERM)

    def break_off(self, reason: str) -> None:
        """Say that the trial cannot go on here."""
        self.say(End(None, reason, broken_off=True))

    def stop(self) -> bool:
        """Whether to stop: it was told to, or the study is gone."""
        return self.wish() or (self.parent is not None and not self.parent.is_alive())


def _train(job: Job, folder: Path, line: Line) -> End:
    config = TrialConfig.model_validate_json(job.config)
    with claimed(folder, line.stop) as claim, team_of(job, config, line.break_off) as team:

        def stop() -> bool:
            claim.check()
            return line.stop()

        # the study has read every shard when it began
        dataset = Dataset.open(Path(job.data), content=False)
        trial = Trial(config, dataset, folder, [StatusFile(), *listeners(job.log)], team)
        outcome = trial.run(line.progress, resume=True, stop=stop)
    machine = this_machine(config.train).resolved() if job.elsewhere else None
    return _end(outcome, machine, job.threads)


def _end(outcome: Outcome, machine: dict[str, Any] | None, threads: int) -> End:
    if outcome.status == "stopped":
        return End(None, outcome.reason, broken_off=True)
    if threads > 1:
        outcome.notes.append(f"{threads} threads: sums are rounded in another order than with one")
    return End(asdict(outcome), machine=machine)
