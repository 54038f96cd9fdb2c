"""How the benchmarks compare: all jobs in turn, CPU time, medians over rounds."""

import statistics
import time
from collections.abc import Callable

Job = Callable[[], object]


def interleaved(jobs: dict[str, Job], rounds: int) -> dict[str, float]:
    """Median CPU seconds of each job; every round runs each once, after one round to warm up."""
    return medians({name: _timed(job) for name, job in jobs.items()}, rounds)


def medians(jobs: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """As `interleaved`, for jobs that say themselves how many seconds count."""
    spent: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(rounds + 1):
        for name, job in jobs.items():
            seconds = job()
            if turn:
                spent[name].append(seconds)
    return {name: statistics.median(times) for name, times in spent.items()}


def _timed(job: Job) -> Callable[[], float]:
    def run() -> float:
        start = time.process_time()
        job()
        return time.process_time() - start

    return run
