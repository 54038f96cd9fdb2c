"""The process of one trial, run in this one through a real pipe."""

import gc
import multiprocessing
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from depthbench.data.dataset import Dataset
from depthbench.study.process import End, Job
from depthbench.study.worker import work
from depthbench.train.stop import Stop
from tests.small import make_dataset, trial_config


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """A worker sets its process's signals: put ours back."""
    kept = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    yield
    gc.unfreeze()
    for one, handler in kept.items():
        signal.signal(one, handler)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_dataset(tmp_path_factory.mktemp("worker"))


def job(dataset: Dataset, data: Path, folder: Path, **changes: Any) -> Job:
    config = trial_config(dataset, **changes).model_dump_json()
    return Job(config, str(data), str(folder))


def said(jobs: list[Job]) -> list[Any]:
    """What a worker says that is given these jobs and no more."""
    ours, theirs = multiprocessing.Pipe()
    for one in jobs:
        ours.send(one)
    with socket.socket(fileno=os.dup(ours.fileno())) as half:
        half.shutdown(socket.SHUT_WR)
    work(theirs)
    theirs.close()
    found = []
    while ours.poll():
        try:
            found.append(ours.recv())
        except (EOFError, ConnectionResetError):
            break
    ours.close()
    return found


def messages(dataset: Dataset, data: Path, folder: Path, **changes: Any) -> list[Any]:
    return said([job(dataset, data, folder, **changes)])


def test_progress_is_followed_by_the_outcome(dataset: Dataset, tmp_path: Path) -> None:
    first, *others, end = messages(dataset, dataset.folder, tmp_path)
    assert first == (1, 64)
    assert all(tokens == 64 * steps for steps, tokens in others)
    assert isinstance(end, End)
    assert end.outcome is not None
    assert (end.outcome["status"], end.outcome["tokens"]) == ("done", 512)


def test_it_ignores_ctrl_c_and_leaves_that_to_the_study(dataset: Dataset, tmp_path: Path) -> None:
    messages(dataset, dataset.folder, tmp_path)
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    assert isinstance(signal.getsignal(signal.SIGTERM), Stop)


def test_data_that_is_gone_is_a_reason_in_words(dataset: Dataset, tmp_path: Path) -> None:
    [end] = messages(dataset, tmp_path / "gone", tmp_path)
    assert end.outcome is None
    assert end.reason == (
        f"{tmp_path / 'gone'} is no folder. Prepare the data again, or name a folder that "
        "depthbench data prepare --out FOLDER wrote"
    )
    assert not (tmp_path / "error.txt").exists()


def test_it_ends_quietly_when_the_study_is_gone(dataset: Dataset, tmp_path: Path) -> None:
    ours, theirs = multiprocessing.Pipe()
    ours.send(job(dataset, dataset.folder, tmp_path))
    ours.close()
    work(theirs)
    theirs.close()
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == 1, "it trained on although nobody listens"
    assert not (tmp_path / "error.txt").exists()


def test_a_trial_behind_another_is_what_it_is_alone(dataset: Dataset, tmp_path: Path) -> None:
    """Bit for bit, whatever the process trained before."""

    def trained(name: str, **changes: Any) -> Job:
        return job(dataset, dataset.folder, tmp_path / name, **changes)

    changes: dict[str, Any] = {"design": "hc", "backbone": "moe", "save_every": 3}
    before = [trained("before", learning_rate=50.0, divergence_patience=2), trained("one", seed=5)]
    ends = [one for one in said([*before, trained("behind", **changes)]) if isinstance(one, End)]
    statuses = [end.outcome and end.outcome["status"] for end in ends]
    assert statuses == ["diverged", "done", "done"]
    assert [end.last for end in ends] == [False, False, False]
    torch.manual_seed(99)
    assert said([trained("alone", **changes)])[-1].outcome is not None
    for name in ("metrics.jsonl", "config.json"):
        behind, alone = ((tmp_path / one / name).read_bytes() for one in ("behind", "alone"))
        assert behind == alone
    files = sorted((tmp_path / "alone" / "checkpoints").rglob("*.safetensors"))
    assert len(files) == 6
    for path in files:
        other = tmp_path / "behind" / path.relative_to(tmp_path / "alone")
        assert other.read_bytes() == path.read_bytes()


def test_after_a_failure_the_process_trains_no_more(dataset: Dataset, tmp_path: Path) -> None:
    good, bad = (tmp_path / name for name in ("good", "bad"))
    (bad / "metrics.jsonl").mkdir(parents=True)
    ends = [
        one
        for one in said([job(dataset, dataset.folder, bad), job(dataset, dataset.folder, good)])
        if isinstance(one, End)
    ]
    assert [(end.outcome, end.last) for end in ends] == [(None, True)]
    assert not good.exists()
