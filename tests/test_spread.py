"""Work that is spread over processes: in order, all told, the largest first."""

import math
import os

import pytest

from depthbench.processes import spread


def place(job: float) -> tuple[float, int]:
    return math.sqrt(job), os.getpid()


@pytest.mark.parametrize("workers", [1, 2])
def test_results_are_in_the_order_of_the_jobs(workers: int) -> None:
    told: list[int] = []
    jobs = [4.0, 1.0, 16.0, 9.0, 25.0]
    found = spread(place, jobs, workers, size=lambda job: job, hear=told.append)
    assert [root for root, _ in found] == [2.0, 1.0, 4.0, 3.0, 5.0]
    assert told == [1, 2, 3, 4, 5]
    assert (os.getpid() in {process for _, process in found}) == (workers == 1)


def test_nothing_to_do_is_nothing() -> None:
    assert spread(place, [], 2, size=lambda job: job, hear=lambda _: None) == []


def test_an_error_of_a_job_is_the_caller_s() -> None:
    with pytest.raises(ValueError, match=r"math domain error|expected a nonnegative"):
        spread(place, [-1.0, 4.0], 2, size=lambda job: job, hear=lambda _: None)
