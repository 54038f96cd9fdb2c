"""Processes that tokenise units: they read and compute, and write nothing."""

import multiprocessing
import os
import signal
import traceback
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import final

from depthbench.data.tokenizer import Tokenizer
from depthbench.data.unit import Job, Made, Unit, tokenise
from depthbench.errors import DepthbenchError


@contextmanager
def tokenised(units: Iterator[Unit], job: Job, count: int) -> Iterator[Iterator[tuple[Unit, Made]]]:
    """``count`` processes at work on ``units``; results come as they are ready.

    A unit is taken from ``units`` when a process is about to be free. The processes end with the
    block. Raises `DepthbenchError` for text that cannot be used, and when a process is killed.
    """
    workers = [Worker(job) for _ in range(count)]
    threads = ThreadPoolExecutor(count)
    try:
        yield _results(units, workers, threads)
    finally:
        for worker in workers:
            worker.end()
        threads.shutdown(cancel_futures=True)


def _results(
    units: Iterator[Unit], workers: list["Worker"], threads: ThreadPoolExecutor
) -> Iterator[tuple[Unit, Made]]:
    idle: SimpleQueue[Worker] = SimpleQueue()
    for worker in workers:
        idle.put(worker)

    def one(unit: Unit) -> tuple[Unit, Made]:
        worker = idle.get()
        try:
            return unit, worker.ask(unit)
        finally:
            idle.put(worker)

    pending: set[Future[tuple[Unit, Made]]] = set()
    for unit in units:
        pending.add(threads.submit(one, unit))
        # one more than can be at work: it waits with its text already read
        while len(pending) > len(workers):
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
    while pending:
        done, pending = wait(pending, return_when=FIRST_COMPLETED)
        for future in done:
            yield future.result()


@final
class Worker:
    """One process with one thread."""

    def __init__(self, job: Job) -> None:
        # spawned, because threads run here, and a forked copy of them never wakes up
        context = multiprocessing.get_context("spawn")
        self.channel, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, job), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, unit: Unit) -> Made:
        """Its answer; raises `DepthbenchError` if that is an error or it is dead."""
        try:
            self.channel.send(unit)
            answer = self.channel.recv()
        except (EOFError, OSError):
            self.process.join(timeout=5)
            raise DepthbenchError(
                f"a worker ended at '{unit.sources[0].name}' (exit code {self.process.exitcode}). "
                "Run the same command again to go on; fewer --workers need less memory"
            ) from None
        if isinstance(answer, str):
            raise DepthbenchError(answer)
        return answer

    def end(self) -> None:
        """End the process at once."""
        self.process.kill()
        self.process.join()
        self.channel.close()


def work(channel: Connection, job: Job) -> None:
    """Answer units until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    coder = job.coder()
    try:
        while True:
            channel.send(_answer(channel.recv(), job, coder))
    except (EOFError, OSError):
        return


def _answer(unit: Unit, job: Job, coder: Tokenizer) -> Made | str:
    try:
        return tokenise(unit, job, coder)
    except DepthbenchError as error:
        return str(error)
    except Exception:
        return " | ".join(traceback.format_exc().splitlines())
