"""TensorBoard: what its own reader finds in the event files is what metrics.jsonl says."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from shutil import rmtree

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from depthbench.cli.app import execute
from depthbench.files import read_lines
from depthbench.study.engine import Place
from depthbench.study.run import open_study, train_study
from depthbench.train.loop import Trial
from depthbench.train.trackers.relay import Relay, flatten
from depthbench.train.trackers.tensorboard import TensorBoard
from tests.small import make_dataset, study_config, trial_config, write_text

TINY = ["shape.layers=2", "shape.width=16", "shape.heads=2", "shape.ffn=24", "train.length=16"]
SHORT = [*TINY, "train.sequences=4", "train.validation_tokens=256", "train.log_every=1"]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text(tmp_path)
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(tmp_path / "cache"))


def command(root: Path, *more: str) -> list[str]:
    text = f'data.paths=["{root / "words.txt"}"]'
    log = ["--log", "tensorboard", "--out", str(root / "runs")]
    return ["train", text, *SHORT, *log, *more]


def read(folder: Path) -> EventAccumulator:
    # 0 = keep all: by default only a sample of the steps is read
    found = EventAccumulator(str(folder / "tensorboard"), {"scalars": 0, "tensors": 0})
    found.Reload()
    return found


def assert_equal_to_metrics(folder: Path) -> None:
    """Every number of every record, and no other, at its step, each step once."""
    events = read(folder)
    expected: dict[str, list[tuple[int, float]]] = {}
    for record in read_lines(folder / "metrics.jsonl"):
        step = record.pop("step")
        for tag, value in flatten(record).items():
            # an event holds a float32
            expected.setdefault(tag, []).append((step, float(np.float32(value))))
    tags = {tag for tag in events.Tags()["scalars"] if not tag.startswith("timing/")}
    assert tags == expected.keys()
    for tag in tags:
        assert [(event.step, event.value) for event in events.Scalars(tag)] == expected[tag], tag
    speeds = [event.step for event in events.Scalars("timing/tokens_per_second")]
    assert speeds == [step for step, _ in expected["train_loss"]]


def texts(folder: Path, tag: str) -> list[tuple[int, dict[str, object]]]:
    events = read(folder).Tensors(tag)
    return [(e.step, json.loads(e.tensor_proto.string_val[0].decode())) for e in events]


def test_a_whole_run(tmp_path: Path) -> None:
    assert execute(command(tmp_path, "train.tokens=512")) == 0
    folder = tmp_path / "runs" / "run"
    assert_equal_to_metrics(folder)
    [(step, config)] = texts(folder, "config")
    assert (step, config) == (0, json.loads((folder / "config.json").read_text()))
    assert texts(folder, "outcome") == [(8, {"status": "done", "reason": None, "steps": 8})]


def test_what_lies_behind_the_checkpoint_is_taken_back(tmp_path: Path) -> None:
    dataset, folder = make_dataset(tmp_path), tmp_path / "run"
    for stop in (5, 99):
        asked = iter(range(1, 100))
        trial = Trial(trial_config(dataset, save_every=3), dataset, folder, [Relay(TensorBoard())])
        trial.run(lambda *_: None, stop=lambda s=stop, a=asked: next(a) >= s, resume=True)
        # as a kill leaves it: two steps behind the checkpoint
        if stop == 5:
            rmtree(folder / "checkpoints" / "step-000005")
    assert len(list((folder / "tensorboard").iterdir())) == 2
    assert_equal_to_metrics(folder)


@pytest.mark.slow
def test_killed_and_continued_it_shows_every_step_once(tmp_path: Path) -> None:
    long = ["train.tokens=7680", "train.save_every=20"]
    environment = {**os.environ, "DEPTHBENCH_CACHE": str(tmp_path / "cache")}
    arguments = [sys.executable, "-m", "depthbench", *command(tmp_path, *long)]
    process = subprocess.Popen(arguments, env=environment, stdout=subprocess.DEVNULL)
    folder = tmp_path / "runs" / "run"
    while not (folder / "checkpoints" / "step-000020").exists():
        assert process.poll() is None
        time.sleep(0.01)
    # some steps behind the checkpoint, so that they are made twice
    while len((folder / "metrics.jsonl").read_bytes().splitlines()) < 25:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert execute(command(tmp_path, *long)) == 0
    assert len(list((folder / "tensorboard").iterdir())) == 2
    assert len(read_lines(folder / "metrics.jsonl")) == 120
    assert_equal_to_metrics(folder)


def test_started_over_it_shows_the_new_run_alone(tmp_path: Path) -> None:
    assert execute(command(tmp_path, "train.tokens=1024")) == 0
    assert (
        execute(command(tmp_path, "train.tokens=512", "learning_rate=0.02", "--resume", "never"))
        == 0
    )
    folder = tmp_path / "runs" / "run"
    assert len(read_lines(folder / "metrics.jsonl")) == 8
    assert_equal_to_metrics(folder)
    # its reader takes back scalars, and lists texts one behind the other
    assert texts(folder, "config")[-1][1]["learning_rate"] == 0.02


def test_trials_of_a_study_in_processes_of_their_own(tmp_path: Path) -> None:
    sizes = {"sizes": [{"layers": 1, "width": 16, "heads": 2, "ffn": 24}]}
    config = study_config(
        tmp_path / "words.txt", search={"learning_rates": [1e-2]}, designs=["hc"], shapes=sizes
    )
    study = open_study(config, tmp_path / "runs", cache=tmp_path / "cache")
    [row] = train_study(study, place=Place(log=("tensorboard",)))
    assert (row.status, row.notes) == ("done", [])
    assert_equal_to_metrics(study.folder / "trials" / row.id)


def test_a_folder_that_cannot_be_written_is_a_note(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "run"
    folder.mkdir(parents=True)
    (folder / "tensorboard").write_text("in the way")
    assert execute(command(tmp_path, "train.tokens=512")) == 0
    result = json.loads((folder / "result.json").read_text())
    assert result["status"] == "done"
    [note] = result["notes"]
    assert note.startswith("--log tensorboard ended after step 0: FileExistsError")


def test_an_unknown_tracker_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute([*command(tmp_path, "train.tokens=512"), "--log", "tensorbord"]) == 2
    assert "did you mean 'tensorboard'" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
