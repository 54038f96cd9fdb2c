"""Work in several processes."""

import multiprocessing
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

from depthbench.machine import end_with_parent, prepare_process


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
