"""`depthbench watch`: runs, trials and studies, while they go on and after."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from depthbench.cli.app import execute
from depthbench.files import append_line
from depthbench.study.run import Study, open_study, train_study
from depthbench.train.status import write_status
from depthbench.watch.place import Watched
from tests.small import study_config, write_text

Capture = pytest.CaptureFixture[str]
TINY = ["shape.layers=1", "shape.width=16", "shape.heads=2", "shape.ffn=24", "train.length=16"]
SHORT = [*TINY, "train.sequences=4", "train.validation_tokens=256", "train.log_every=1"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("watch")
    write_text(folder)
    return folder


@pytest.fixture(autouse=True)
def _environment(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The commands set handlers: put ours back."""
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(root / "cache"))
    monkeypatch.setenv("COLUMNS", "120")
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def training(root: Path, out: Path, *more: str) -> list[str]:
    return ["train", f'data.paths=["{root / "words.txt"}"]', *SHORT, *more, "--out", str(out)]


def seen(folder: Path, capsys: Capture) -> dict[str, Any]:
    assert execute(["watch", str(folder), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_finished_run(root: Path, tmp_path: Path, capsys: Capture) -> None:
    assert execute(training(root, tmp_path, "train.tokens=512", "design=hc")) == 0
    capsys.readouterr()
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    view = seen(tmp_path / "run", capsys)
    [run] = view["runs"]
    assert (view["kind"], view["over"], view["total"]) == ("run", True, None)
    assert (run["state"], run["step"], run["steps"], run["tokens"]) == ("done", 8, 8, 512)
    assert run["train_loss"] == result["final_train_loss"]
    assert run["validation_loss"] == result["loss"]["bits_per_byte"]
    assert run["label"] == "hc, 1 layer, width 16, seed 0"
    # standard output is no terminal here, so one view is printed
    assert execute(["watch", str(tmp_path / "run")]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "hc, 1 layer, width 16, seed 0 done" in text
    assert "step 8 of 8 (100 %)" in text
    assert f"loss {run['train_loss']:.4f} validation {run['validation_loss']:.4f}" in text
    assert f"LR {run['learning_rate']:.3g}" in text


@pytest.mark.slow
def test_a_stopped_run_and_one_that_was_killed(root: Path, tmp_path: Path, capsys: Capture) -> None:
    arguments = training(root, tmp_path, "train.tokens=6400000", "train.save_every=100")
    environment = {**os.environ, "DEPTHBENCH_CACHE": str(root / "cache")}
    folder = tmp_path / "run"
    for number, state in ((signal.SIGTERM, "stopped"), (signal.SIGKILL, "lost")):
        process = subprocess.Popen(
            [sys.executable, "-m", "depthbench", *arguments],
            env=environment,
            stdout=subprocess.DEVNULL,
        )
        while seen(folder, capsys)["runs"][0]["step"] == 0 if folder.exists() else True:
            assert process.poll() is None
            time.sleep(0.05)
        view = seen(folder, capsys)
        assert (view["over"], view["runs"][0]["state"]) == (False, "running")
        assert view["runs"][0]["seconds_left"] > 0
        assert view["runs"][0]["tokens_per_second"] > 0
        process.send_signal(number)
        process.wait()
        view = seen(folder, capsys)
        assert (view["over"], view["runs"][0]["state"]) == (True, state)
        (folder / "metrics.jsonl").unlink()


@pytest.fixture(scope="module")
def study(root: Path) -> Study:
    config = study_config(root / "words.txt", search={"learning_rates": [1e-2]})
    found = open_study(config, root / "runs", cache=root / "cache")
    train_study(found)
    return found


def test_a_finished_study_and_a_trial_of_it(study: Study, capsys: Capture) -> None:
    view = seen(study.folder, capsys)
    assert (view["kind"], view["over"], view["reason"]) == ("study", True, None)
    assert (view["total"], view["finished"], view["runs"]) == (4, {"done": 4}, [])
    row = study.store.rows()[0]
    [run] = seen(study.folder / "trials" / row.id, capsys)["runs"]
    assert (run["state"], run["step"]) == ("done", 8)
    assert row.loss is not None
    assert run["validation_loss"] == row.loss.bits_per_byte
    assert execute(["watch", str(study.folder), "--once"]) == 0
    assert "4 of 4 trials have a result (4 done)" in " ".join(capsys.readouterr().out.split())


def test_a_study_under_way_shows_its_open_trials(study: Study, tmp_path: Path) -> None:
    folder = tmp_path / "small"
    (folder / "trials").mkdir(parents=True)
    text = (study.folder / "study.toml").read_text()
    (folder / "study.toml").write_text(text)
    watched = Watched(folder)
    write_status(folder, "running")
    assert (watched.look().total, watched.look().over, watched.look().runs) == (4, False, ())
    rows = study.store.rows()
    for row in rows[:2]:
        trial = folder / "trials" / row.id
        trial.mkdir()
        write_status(trial, "running")
        append_line(trial / "metrics.jsonl", {"step": 3, "tokens": 192, "train_loss": 5.0})
    assert [run.step for run in watched.look().runs] == [3, 3]
    append_line(folder / "results.jsonl", rows[0].resolved())
    append_line(folder / "results.jsonl", rows[1].resolved() | {"status": "failed"})
    # a failed trial is tried again: it runs
    view = watched.look()
    assert view.finished == {"done": 1, "failed": 1}
    assert [Path(run.folder).name for run in view.runs] == [rows[1].id]
    write_status(folder / "trials" / rows[1].id, "stopped")
    write_status(folder, "stopped", "interrupted")
    view = watched.look()
    assert (view.over, view.reason, view.runs) == (True, "stopped: interrupted", ())


def test_on_a_terminal_it_follows_until_the_end(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    write_status(folder, "running")
    append_line(folder / "metrics.jsonl", {"step": 1, "tokens": 64, "train_loss": 6.125})
    before = {path: path.read_bytes() for path in folder.iterdir()}
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "depthbench", "watch", str(folder), "--every", "0.1"],
        stdout=theirs,
        stdin=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(theirs)
    text = _until(ours, "6.1250")
    # it reads and leaves no trace
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    append_line(folder / "metrics.jsonl", {"step": 2, "tokens": 128, "train_loss": 5.25})
    text += _until(ours, "5.2500")
    assert process.poll() is None
    write_status(folder, "done")
    text += _until(ours, "done")
    assert process.wait(timeout=30) == 0
    os.close(ours)


def _until(terminal: int, words: str) -> str:
    """What the terminal shows until these words, without its control codes."""
    text = ""
    end = time.monotonic() + 60
    while words not in text:
        assert time.monotonic() < end, text
        text += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", os.read(terminal, 65536).decode())
    return text


@pytest.mark.parametrize("name", ["nowhere", "file.txt", "empty", "runs"])
def test_what_is_refused(name: str, study: Study, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "file.txt").write_text("x")
    (tmp_path / "empty").mkdir()
    words = {
        "nowhere": "no such folder",
        "file.txt": "is a file",
        "empty": "none has begun there. name the folder that",
        "runs": f"such as {study.folder}",
    }
    target = study.folder.parent if name == "runs" else tmp_path / name
    assert execute(["watch", str(target)]) == 2
    error = capsys.readouterr().err
    assert words[name].lower() in error.lower()
    assert len(error.splitlines()) == 1
