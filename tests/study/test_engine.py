"""Trials in processes: order, messages, and the ways in which a process can end badly."""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from depthbench.data.dataset import Dataset
from depthbench.errors import DepthbenchError
from depthbench.study.config import Resources
from depthbench.study.engine import Ended, Engine, Need, Place, Running, Setup, drive
from depthbench.study.engine_local import Pool, visible
from depthbench.study.engines import ENGINES, engine_class
from depthbench.study.plan import Phase, Planned
from tests.small import SHAPE, make_dataset, trial_config

LONG = 64 * 20_000


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_dataset(tmp_path_factory.mktemp("engine"))


@pytest.fixture
def pool(dataset: Dataset, tmp_path: Path) -> Iterator[Pool]:
    pool = Pool(setup(dataset, tmp_path))
    yield pool
    pool.stop()
    assert multiprocessing.active_children() == []


def setup(dataset: Dataset, folder: Path, workers: int | None = 2, **resources: Any) -> Setup:
    need = Need(Resources(**resources), "cpu")
    return Setup(Place(workers=workers), need, dataset.folder, folder)


def planned(dataset: Dataset, phase: Phase = "shared", **changes: Any) -> Planned:
    return Planned(trial_config(dataset, **changes), "prenorm", phase)


def end_of(engine: Engine) -> Ended:
    while True:
        for ended in engine.poll():
            return ended


class Instant(Engine):
    """Trials end in the moment they start, without processes."""

    here = True

    def __init__(self, workers: int) -> None:
        super().__init__(Setup(Place(workers=workers), Need(Resources(), "cpu"), Path(), Path()))
        self.order: list[str] = []

    @classmethod
    def check(cls, place: Place, need: Need) -> None:
        assert place.address is None

    @property
    def free(self) -> int:
        return (self.setup.place.workers or 0) - len(self.running)

    def start(self, planned: Planned) -> None:
        self.order.append(planned.id)
        self.running.append(Running(planned))

    def poll(self) -> list[Ended]:
        ended = [Ended(one.planned, None, "instant", 0.0) for one in self.running]
        self.running.clear()
        return ended

    def stop(self) -> None:
        self.running.clear()


def test_searches_come_first_and_long_trials_before_short_ones(dataset: Dataset) -> None:
    deep = SHAPE.model_copy(update={"layers": 4})
    trials = [
        planned(dataset),
        planned(dataset, shape=deep),
        planned(dataset, "search", seed=1),
        planned(dataset, "search", seed=1, shape=deep),
    ]
    pool = Instant(1)
    waiting: list[int] = []
    drive(pool, lambda: trials, lambda _: None, lambda _, left: waiting.append(len(left)))
    assert pool.order == [trials[i].id for i in (3, 2, 1, 0)]
    assert waiting == [3, 2, 1, 0]


def test_a_trial_that_stays_needed_is_started_once(dataset: Dataset) -> None:
    pool = Instant(2)
    trials = [planned(dataset, seed=seed) for seed in range(3)]
    ends: list[Ended] = []
    drive(pool, lambda: trials, ends.append, lambda *_: None)
    assert sorted(pool.order) == sorted(one.id for one in trials)
    assert len(ends) == 3


def test_what_an_end_makes_needed_is_started_too(dataset: Dataset) -> None:
    pool = Instant(2)
    first, second = planned(dataset, "search"), planned(dataset, seed=1)
    ends: list[str] = []
    drive(
        pool,
        lambda: [first, second] if ends else [first],
        lambda ended: ends.append(ended.planned.id),
        lambda *_: None,
    )
    assert ends == [first.id, second.id]


def test_trials_run_side_by_side_and_report_their_outcome(
    pool: Pool, dataset: Dataset, tmp_path: Path
) -> None:
    one, two = planned(dataset), planned(dataset, learning_rate=50.0, divergence_patience=2)
    pool.start(one)
    pool.start(two)
    assert pool.free == 0
    ends = {ended.planned.id: ended for ended in (end_of(pool), end_of(pool))}
    done, lost = ends[one.id].outcome, ends[two.id].outcome
    assert done is not None
    assert lost is not None
    assert (done.status, done.tokens, done.reason) == ("done", 512, None)
    assert lost.status == "diverged"
    assert lost.reason is not None
    assert pool.free == 2
    assert (tmp_path / "trials" / one.id / "metrics.jsonl").exists()


def test_a_process_takes_the_next_trial_and_a_new_one_follows_a_failed(
    pool: Pool, dataset: Dataset, tmp_path: Path
) -> None:
    bad = planned(dataset, seed=2)
    (tmp_path / "trials" / bad.id / "metrics.jsonl").mkdir(parents=True)
    pids = []
    for trial in (planned(dataset), planned(dataset, seed=1), bad, planned(dataset, seed=3)):
        pool.start(trial)
        pids.append(pool.running[0].pid)
        end_of(pool)
    assert pids[0] == pids[1] == pids[2] != pids[3]


def test_a_process_that_dies_between_trials_breaks_the_next_off(
    pool: Pool, dataset: Dataset
) -> None:
    pool.start(planned(dataset))
    pid = pool.running[0].pid
    assert pid is not None
    end_of(pool)
    os.kill(pid, signal.SIGKILL)
    pool.start(planned(dataset, seed=1))
    ended = end_of(pool)
    assert ended.broken_off
    assert ended.reason == "its process was killed by signal 9 (out of memory?)"


def test_progress_comes_in_tokens(pool: Pool, dataset: Dataset) -> None:
    pool.start(planned(dataset, tokens=LONG))
    [running] = pool.running
    while running.tokens == 0:
        assert pool.poll() == []
    assert running.tokens % 64 == 0


def test_a_killed_process_is_a_reason_and_not_a_crash(pool: Pool, dataset: Dataset) -> None:
    pool.start(planned(dataset, tokens=LONG))
    pid = pool.running[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    ended = end_of(pool)
    assert ended.outcome is None
    assert ended.reason == "its process was killed by signal 9 (out of memory?)"
    assert pool.running == []


def test_an_unexpected_error_is_named_and_its_traceback_kept(
    pool: Pool, dataset: Dataset, tmp_path: Path
) -> None:
    trial = planned(dataset)
    # no trial can replace a folder by its metrics
    folder = tmp_path / "trials" / trial.id
    (folder / "metrics.jsonl").mkdir(parents=True)
    pool.start(trial)
    ended = end_of(pool)
    error = folder / "error.txt"
    assert ended.outcome is None
    assert ended.reason is not None
    assert "\n" not in ended.reason
    assert ended.reason.endswith(f"(see {error})")
    assert error.read_text().startswith("Traceback")
    assert "metrics.jsonl" in error.read_text()
    # the next try, once the cause is gone, leaves no old error behind
    (folder / "metrics.jsonl").rmdir()
    pool.start(trial)
    assert end_of(pool).outcome is not None
    assert not error.exists()


def test_a_mistake_of_the_user_is_one_line_without_a_traceback(
    pool: Pool, dataset: Dataset, tmp_path: Path
) -> None:
    trial = planned(dataset, shape=SHAPE.model_copy(update={"vocab": 100}))
    pool.start(trial)
    ended = end_of(pool)
    assert ended.reason == (
        "the tokenizer has 257 tokens but shape.vocab = 100. Set vocab to at least 257"
    )
    assert not (tmp_path / "trials" / trial.id / "error.txt").exists()


def test_an_interrupted_drive_leaves_no_process(pool: Pool, dataset: Dataset) -> None:
    def interrupt(running: list[Running], _: list[Planned]) -> None:
        assert len(running) == 2
        raise KeyboardInterrupt

    trials = [planned(dataset, tokens=LONG, seed=seed) for seed in range(3)]
    with pytest.raises(KeyboardInterrupt):
        drive(pool, lambda: trials, lambda _: None, interrupt)
    assert pool.running == []
    assert multiprocessing.active_children() == []


def test_an_engine_is_found_by_name_and_a_misspelt_one_gets_the_nearest() -> None:
    assert {name: engine_class(name) for name in ENGINES} == ENGINES
    with pytest.raises(DepthbenchError) as caught:
        engine_class("rai")
    assert str(caught.value) == "unknown engine 'rai', did you mean 'ray'? Allowed: local, ray"


def test_every_place_has_its_gpus() -> None:
    gpus = ["3", "5", "6", "7"]
    assert [visible(slot, 1, gpus) for slot in range(5)] == ["3", "5", "6", "7", "3"]
    assert [visible(slot, 2, gpus) for slot in range(2)] == ["3,5", "6,7"]
    assert [visible(slot, 0.5, gpus) for slot in range(5)] == ["3", "3", "5", "5", "6"]
    assert [visible(slot, 0.3, gpus) for slot in range(4)] == ["3", "3", "3", "5"]


def test_room_follows_from_resources(dataset: Dataset, tmp_path: Path) -> None:
    cores = Pool(setup(dataset, tmp_path, workers=None)).free
    assert cores == len(os.sched_getaffinity(0))
    assert Pool(setup(dataset, tmp_path, workers=None, cpus=cores)).free == 1
    assert Pool(setup(dataset, tmp_path, workers=7)).free == 7
    with pytest.raises(DepthbenchError) as caught:
        Pool(setup(dataset, tmp_path, workers=None, cpus=cores + 1))
    assert str(caught.value) == (
        f"resources: a trial needs {cores + 1} cores, but this machine has {cores}. "
        "Lower resources.cpus, or use a cluster (--engine ray)"
    )
    with pytest.raises(DepthbenchError, match=r"resources\.gpus = 1, but trials run on train\.de"):
        Pool(setup(dataset, tmp_path, gpus=1))
