"""Measurements in several processes, each with the subject to itself."""

import functools
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, final

from depthbench.errors import DepthbenchError
from depthbench.machine import prepare_process
from depthbench.probes.lab import Alone, Crew, Job, Part, Task
from depthbench.probes.subject import Subject
from depthbench.probes.text import Text
from depthbench.probes.walk import Limits

Make = Callable[[], Subject]
"""Loads the subject anew: a function of a module or a partial of one, for it goes to processes."""

_make: list[Callable[[], Alone]] = []
"""Of this process, if it is a worker."""


@final
class Processes(Crew):
    """Workers that take one batch after another."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self.pool = pool

    def each(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Part]]:
        open_jobs = {self.pool.submit(_measure, *job): n for n, job in enumerate(jobs)}
        pending: set[Future[Any]] = set(open_jobs)
        try:
            while pending:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    yield open_jobs[future], future.result()
        except BrokenProcessPool:
            raise DepthbenchError(
                "a process of the probes ended without a word, perhaps for want of memory. What "
                "is measured is kept: run the same command again with fewer --workers"
            ) from None
        finally:
            for future in pending:
                future.cancel()


@contextmanager
def crew_of(
    subject: Subject, make: Make | None, text: Text, limits: Limits, workers: int
) -> Iterator[Crew]:
    """``workers`` processes that ``make`` the subject; this process alone for one."""
    if workers == 1 or make is None:
        yield Alone(subject, text, limits)
        return
    with pool_of(workers, _begin, make, text, limits) as pool:
        yield Processes(pool)


@contextmanager
def pool_of(workers: int, begin: Callable[..., None], *given: Any) -> Iterator[ProcessPoolExecutor]:
    """Fresh processes of one thread that each call ``begin(*given)`` first; Ctrl-C is for the one
    that started them. They are ended at once where the work inside fails.
    """
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, initializer=_ready, initargs=(begin, given))
    try:
        yield pool
    except BaseException:
        # what a worker is at has no use any more, and may take long
        for process in list(pool._processes.values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _ready(begin: Callable[..., None], given: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prepare_process()
    begin(*given)


def _begin(make: Make, text: Text, limits: Limits) -> None:
    # it loads at its first job: what goes wrong then is that job's error and told as such
    _make.append(functools.cache(lambda: Alone(make(), text, limits)))


def _measure(task: Task, batches: tuple[int, ...]) -> Part:
    return _make[0]().measure(task, batches)
