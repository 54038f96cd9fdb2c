"""Trials that several processes train together, started by an engine."""

import math
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from depthbench.data.dataset import Dataset
from depthbench.errors import DepthbenchError
from depthbench.study.config import Resources
from depthbench.study.engine import Ended, Need, Place, Setup
from depthbench.study.engine_local import Pool
from depthbench.study.plan import Planned
from tests.processes import is_alive, wait_for
from tests.small import make_dataset, study_config, trial_config

LONG = 64 * 20_000


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_dataset(tmp_path_factory.mktemp("ranks"))


@pytest.fixture
def pool(dataset: Dataset, tmp_path: Path) -> Iterator[Pool]:
    pool = opened(dataset, tmp_path, processes=2)
    yield pool
    pool.stop()


def opened(dataset: Dataset, folder: Path, **resources: Any) -> Pool:
    need = Need(Resources(**resources), "cpu")
    return Pool(Setup(Place(workers=1), need, dataset.folder, folder))


def planned(dataset: Dataset, **changes: Any) -> Planned:
    return Planned(trial_config(dataset, **changes), "prenorm", "shared")


def end_of(pool: Pool) -> Ended:
    while True:
        for ended in pool.poll():
            return ended


def under_way(pool: Pool, trial: Planned) -> tuple[int, int]:
    """Both processes of a trial that has done a step."""
    pool.start(trial)
    while not pool.running[0].tokens:
        assert pool.poll() == []
    first = pool.running[0].pid
    assert first is not None
    listed = subprocess.run(["pgrep", "-P", str(first)], capture_output=True, text=True, check=True)
    [second] = listed.stdout.split()
    return first, int(second)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_processes_train_what_one_does(dataset: Dataset, tmp_path: Path, parallel: str) -> None:
    trial = planned(dataset, design="hc")
    found = []
    for processes in (1, 2):
        pool = opened(dataset, tmp_path / str(processes), processes=processes, parallel=parallel)
        pool.start(trial)
        found.append(end_of(pool).outcome)
        pool.stop()
    one, two = found
    assert (one.status, two.status) == ("done", "done")
    assert math.isclose(one.final_train_loss, two.final_train_loss, rel_tol=1e-5)
    assert two.domains["words"].tokens == one.domains["words"].tokens == 256
    assert math.isclose(two.domains["words"].nats, one.domains["words"].nats, rel_tol=1e-5)
    assert one.notes == []
    [note] = two.notes
    assert note.startswith("trained by 2 processes (the model ")


def test_a_killed_second_process_breaks_the_trial_off(pool: Pool, dataset: Dataset) -> None:
    first, second = under_way(pool, planned(dataset, tokens=LONG))
    os.kill(second, signal.SIGKILL)
    ended = end_of(pool)
    assert ended.broken_off
    assert ended.reason == (
        "process 1 of its team: its process was killed by signal 9 (out of memory?)"
    )
    wait_for(lambda: not is_alive(first))


def test_the_second_process_ends_with_a_killed_first(pool: Pool, dataset: Dataset) -> None:
    first, second = under_way(pool, planned(dataset, tokens=LONG))
    os.kill(first, signal.SIGKILL)
    ended = end_of(pool)
    assert ended.broken_off
    assert ended.reason == "its process was killed by signal 9 (out of memory?)"
    wait_for(lambda: not is_alive(second))


def test_both_write_one_checkpoint_when_stopped(
    pool: Pool, dataset: Dataset, tmp_path: Path
) -> None:
    trial = planned(dataset, tokens=LONG)
    pair = under_way(pool, trial)
    pool.stop()
    for pid in pair:
        wait_for(lambda pid=pid: not is_alive(pid))
    [path] = (tmp_path / "trials" / trial.id / "checkpoints").iterdir()
    assert (path / "state.json").exists()


def test_an_error_in_one_process_is_named_with_its_traceback(
    pool: Pool, dataset: Dataset, tmp_path: Path
) -> None:
    trial = planned(dataset)
    folder = tmp_path / "trials" / trial.id
    (folder / "metrics.jsonl").mkdir(parents=True)
    pool.start(trial)
    ended = end_of(pool)
    assert not ended.broken_off
    assert ended.reason is not None
    assert ended.reason.endswith(f"(see {folder / 'error.txt'})")
    assert "metrics.jsonl" in (folder / "error.txt").read_text()


def test_sequences_that_the_processes_cannot_share_are_refused() -> None:
    with pytest.raises(DepthbenchError) as caught:
        study_config(Path("words.txt"), resources={"processes": 3})
    assert str(caught.value) == (
        "resources.processes = 3 cannot share 4 sequences. "
        "Use a divisor of train.sequences and train.micro_sequences"
    )
