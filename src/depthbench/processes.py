"""Work in several processes."""

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Any, TypeVar

from depthbench.machine import end_with_parent, prepare_process

Job = TypeVar("Job")
Done = TypeVar("Done")


def spread(
    work: Callable[[Job], Done],
    jobs: Sequence[Job],
    workers: int,
    *,
    size: Callable[[Job], float],
    hear: Callable[[int], None],
) -> list[Done]:
    """``work`` of every job, in their order, by several processes; ``hear`` is told how many are
    done.

    The largest by ``size`` begin first, so that the last to end is a small one.
    """
    found: dict[int, Done] = {}
    if workers == 1 or len(jobs) < 2:
        for number, job in enumerate(jobs):
            found[number] = work(job)
            hear(len(found))
        return list(found.values())
    with pool_of(min(workers, len(jobs)), _nothing) as pool:
        order = sorted(range(len(jobs)), key=lambda number: -size(jobs[number]))
        futures = {pool.submit(work, jobs[number]): number for number in order}
        for future in as_completed(futures):
            found[futures[future]] = future.result()
            hear(len(found))
    return [found[number] for number in range(len(jobs))]


@contextmanager
def pool_of(workers: int, begin: Callable[..., None], *given: Any) -> Iterator[ProcessPoolExecutor]:
    """Fresh processes of one thread that each call ``begin(*given)`` first; Ctrl-C is for the one
    that started them, and they end with it. They are ended at once where the work inside fails.
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
    end_with_parent()
    begin(*given)


def _nothing() -> None:
    return
