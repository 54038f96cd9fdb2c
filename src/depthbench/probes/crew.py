"""Measurements in several processes, each with the subject to itself."""

import functools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, final

from depthbench.errors import DepthbenchError
from depthbench.probes.lab import Alone, Crew, Job, Part, Task
from depthbench.probes.subject import Subject
from depthbench.probes.text import Text
from depthbench.probes.walk import Limits
from depthbench.processes import pool_of

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


def _begin(make: Make, text: Text, limits: Limits) -> None:
    # it loads at its first job: what goes wrong then is that job's error and told as such
    _make.append(functools.cache(lambda: Alone(make(), text, limits)))


def _measure(task: Task, batches: tuple[int, ...]) -> Part:
    return _make[0]().measure(task, batches)
