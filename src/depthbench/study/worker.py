"""What the process of a trial does."""

import gc
import multiprocessing
import os
import signal
import threading
import time
import traceback
from dataclasses import asdict, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

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


def work(channel: Connection) -> None:
    """Train the trials of the jobs that come in, one after another, and send messages.

    Each goes on from its last checkpoint. On SIGTERM, and when the study that started it is gone,
    it writes one and ends. After anything but a result the process ends too: what it left behind
    is nothing to begin the next trial with.
    """
    wish = Stop()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, wish)
    line = Line(channel, wish)
    # what is imported stays: collecting garbage need not look at it, nor copy it after the fork
    gc.freeze()
    while not wish():
        try:
            job: Job = channel.recv()
        except (EOFError, ConnectionResetError):
            return
        end = _result(job, line)
        line.say(replace(end, last=end.last or wish()))
        if end.last:
            return
        _clear()


def _result(job: Job, line: "Line") -> End:
    """Train the trial of ``job``; how it ended."""
    if job.gpus is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = job.gpus
    prepare_process(job.threads)
    folder = Path(job.folder)
    for old in folder.glob("error*.txt"):
        old.unlink(missing_ok=True)
    try:
        return _train(job, folder, line)
    except (TakenError, LostError) as error:
        return End(None, str(error), broken_off=True)
    except DepthbenchError as error:
        return End(None, str(error))
    except Exception as error:
        write_atomic(folder / "error.txt", traceback.format_exc())
        return End(None, f"{type(error).__name__}: {error} (see {folder / 'error.txt'})")


def _clear() -> None:
    """Begin the next trial as a new process would."""
    gc.collect()
    torch.compiler.reset()
    torch.cuda.empty_cache()


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
    return _end(outcome, machine, job)


def _end(outcome: Outcome, machine: dict[str, Any] | None, job: Job) -> End:
    if outcome.status == "stopped":
        return End(None, outcome.reason, broken_off=True)
    if job.threads > 1:
        note = f"{job.threads} threads: sums are rounded in another order than with one"
        outcome.notes.append(note)
    return End(asdict(outcome), machine=machine, last=job.processes > 1)
