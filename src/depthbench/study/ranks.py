"""The processes that train one trial together: its own, which starts and ends the others."""

import multiprocessing
import os
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from depthbench.data.dataset import Dataset
from depthbench.errors import DepthbenchError
from depthbench.files import write_atomic
from depthbench.machine import end_with_parent, prepare_process
from depthbench.study.process import Job, death
from depthbench.train.config import TrialConfig
from depthbench.train.group import joined
from depthbench.train.loop import Trial
from depthbench.train.stop import Stop
from depthbench.train.team import Solo, Team

GRACE_SECONDS = 10.0
"""For a process to notice by itself that another one is gone."""


class LostError(Exception):
    """Another process of the team is gone."""


@contextmanager
def team_of(job: Job, config: TrialConfig, give_up: Callable[[str], None]) -> Iterator[Team]:
    """The team that trains ``job``'s trial, this process being its first.

    Raises `LostError` where a process of the team ended before its time. One that still waits for
    it after a while cannot be woken: then ``give_up(reason)`` is called from a thread, and this
    process ends.
    """
    if job.processes == 1:
        yield Solo()
        return
    port = _free_port()
    others = [_start(job, rank, port) for rank in range(1, job.processes)]
    over = threading.Event()
    threading.Thread(target=_watch, args=(others, over, give_up), daemon=True).start()
    try:
        with _joined(job, config, 0, port) as team:
            yield team
        over.set()
        for one in others:
            one.join()
    except RuntimeError as error:  # what torch.distributed raises
        reason = _lost(others, GRACE_SECONDS)
        if reason is None:
            raise
        raise LostError(reason) from error
    finally:
        over.set()
        for one in others:
            one.kill()
            one.join()


@contextmanager
def _joined(job: Job, config: TrialConfig, rank: int, port: int) -> Iterator[Team]:
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(job.processes),
    }
    with joined(job.parallel, config.train.device) as team:
        yield team


def _start(job: Job, rank: int, port: int) -> BaseProcess:
    """One more process; forked where that is possible, because torch is imported already."""
    start = (
        multiprocessing.get_context("fork").Process
        if "fork" in multiprocessing.get_all_start_methods()
        else multiprocessing.get_context("spawn").Process
    )
    process = start(target=_follow, args=(job, rank, port), daemon=True)
    process.start()
    return process


def _follow(job: Job, rank: int, port: int) -> None:
    """What the processes after the first do: train as it does, and end when it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stop = Stop()
    signal.signal(signal.SIGTERM, stop)
    end_with_parent()
    prepare_process(job.threads)
    config, folder = TrialConfig.model_validate_json(job.config), Path(job.folder)
    try:
        with _joined(job, config, rank, port) as team:
            trial = Trial(config, Dataset.open(Path(job.data), content=False), folder, team=team)
            trial.run(lambda *_: None, resume=True, stop=stop)
    except DepthbenchError:
        # what is wrong with the settings or the folder is so for the first process too
        return
    except Exception:
        write_atomic(folder / f"error-{rank}.txt", traceback.format_exc())
        raise SystemExit(1) from None


def _watch(
    others: list[BaseProcess], over: threading.Event, give_up: Callable[[str], None]
) -> None:
    """Give up if another process is gone and the first still has not noticed."""
    while not over.wait(1.0):
        if _reason(others) is None:
            continue
        if not over.wait(GRACE_SECONDS):
            give_up(str(_reason(others)))
            os._exit(1)


def _lost(others: list[BaseProcess], seconds: float) -> str | None:
    """Why the first process failed, if that was because another one did."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and any(one.is_alive() for one in others):
        if (reason := _reason(others)) is not None:
            return reason
        wait([one.sentinel for one in others if one.is_alive()], timeout=0.5)
    return _reason(others)


def _reason(others: list[BaseProcess]) -> str | None:
    for rank, one in enumerate(others, start=1):
        if one.exitcode:
            said = f" (see error-{rank}.txt)" if one.exitcode == 1 else ""
            return f"process {rank} of its team: {death(one.exitcode)}{said}"
    return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
