"""The process of one trial, run in this one through a real pipe."""

import multiprocessing
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

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
    for one, handler in kept.items():
        signal.signal(one, handler)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_dataset(tmp_path_factory.mktemp("worker"))


def job(dataset: Dataset, data: Path, folder: Path, **changes: Any) -> Job:
    config = trial_config(dataset, **changes).model_dump_json()
    return Job(config, str(data), str(folder))


def messages(dataset: Dataset, data: Path, folder: Path, **changes: Any) -> list[Any]:
    receive, send = multiprocessing.Pipe(duplex=False)
    work(send, job(dataset, data, folder, **changes))
    send.close()
    found = []
    while receive.poll():
        try:
            found.append(receive.recv())
        except EOFError:
            break
    receive.close()
    return found


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
        f"{tmp_path / 'gone' / 'manifest.json'} cannot be read: No such file or directory. "
        "Prepare the data again"
    )
    assert not (tmp_path / "error.txt").exists()


def test_it_ends_quietly_when_the_study_is_gone(dataset: Dataset, tmp_path: Path) -> None:
    receive, send = multiprocessing.Pipe(duplex=False)
    receive.close()
    work(send, job(dataset, dataset.folder, tmp_path))
    send.close()
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == 1, "it trained on although nobody listens"
    assert not (tmp_path / "error.txt").exists()
