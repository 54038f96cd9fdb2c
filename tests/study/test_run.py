"""Whole studies in their folder: rows, resuming, refusals, failures."""

import multiprocessing
import os
import signal
import tomllib
from pathlib import Path
from typing import Any

import pytest

from depthbench.errors import DepthbenchError
from depthbench.files import read_lines, write_atomic
from depthbench.study.config import StudyConfig
from depthbench.study.engine import Place, Running
from depthbench.study.plan import Planned
from depthbench.study.run import Study, fix_device, locked, open_study, train_study
from depthbench.study.store import Row, Store
from tests.small import study_config, write_text

ONE_RATE = {"learning_rates": [1e-2]}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the text and a cache."""
    folder = tmp_path_factory.mktemp("study")
    write_text(folder)
    return folder


def opened(root: Path, out: Path, resume: bool = False, **changes: Any) -> Study:
    config = study_config(root / "words.txt", **changes)
    return open_study(config, out, resume=resume, cache=root / "cache")


@pytest.fixture(scope="module")
def finished(root: Path) -> Study:
    """The small study, trained once."""
    study = opened(root, root / "runs")
    train_study(study, place=Place(workers=2))
    return study


def state(study: Study) -> dict[str, int]:
    """Time of change of every file of the study."""
    files = (path for path in study.folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path): path.stat().st_mtime_ns for path in files}


def started(study: Study) -> list[str]:
    """Ids of the trials that training the study starts."""
    seen: dict[str, None] = {}
    train_study(study, place=Place(workers=2), finished=lambda row: seen.setdefault(row.id, None))
    return list(seen)


def test_every_needed_trial_has_one_row_that_its_schema_accepts(finished: Study) -> None:
    records = read_lines(finished.folder / "results.jsonl")
    assert len(records) == finished.resolved.trials == 6
    rows = [Row.model_validate(record) for record in records]
    assert len({row.id for row in rows}) == 6
    for row, record in zip(rows, records, strict=True):
        assert row.resolved() == record
        assert row.status == "done"
        assert (row.steps, row.tokens) == (8, 512)
        assert row.loss is not None
        assert row.domains == {"words": row.loss}
        assert row.loss.tokens == 256
        assert row.unigram_bits_per_byte is not None
        assert 3.0 < row.unigram_bits_per_byte < 5.0
        assert row.data_hash == finished.dataset.manifest.hash
        assert row.config["learning_rate"] == row.learning_rate
        checkpoints = finished.folder / "trials" / row.id / "checkpoints"
        assert (checkpoints / "step-000008" / "model.safetensors").exists()
    assert sum(row.phase == "search" for row in rows) == 4
    assert sum(row.phase == "shared" for row in rows) == 2


def test_the_shared_rate_is_the_one_with_the_least_loss(finished: Study) -> None:
    rows = finished.store.rows()
    for label in ("prenorm", "hc"):
        tried = {
            row.loss.bits_per_byte: row.learning_rate
            for row in rows
            if row.label == label and row.phase == "search" and row.loss
        }
        [shared] = [row for row in rows if row.label == label and row.phase == "shared"]
        assert shared.learning_rate == tried[min(tried)]


def test_the_same_study_again_trains_nothing_and_touches_nothing(
    finished: Study, root: Path
) -> None:
    before = state(finished)
    again = opened(root, root / "runs")
    assert again.resolved == finished.resolved
    assert again.needed() == []
    assert started(again) == []
    assert state(again) == before


def test_two_studies_of_one_config_have_the_same_losses(root: Path, finished: Study) -> None:
    other = opened(root, root / "again", search=ONE_RATE, designs=["prenorm"])
    train_study(other, place=Place(workers=1))
    losses = {row.id: row.loss for row in finished.store.rows()}
    same = [row for row in other.store.rows() if row.id in losses]
    assert same
    assert all(row.loss == losses[row.id] for row in same)


def test_another_config_is_refused_and_resumed_on_demand(root: Path, tmp_path: Path) -> None:
    first = opened(root, tmp_path, designs=["prenorm"], search=ONE_RATE)
    assert len(started(first)) == 2
    before = state(first)
    changed: dict[str, Any] = {"designs": ["prenorm"], "seeds": [0, 1]}
    with pytest.raises(DepthbenchError) as caught:
        opened(root, tmp_path, **changed)
    assert str(caught.value) == (
        f"{tmp_path / 'small'} holds a study with another config (differs in search, seeds). Use "
        "--resume to continue it with this config, or --out for another folder"
    )
    assert state(first) == before
    second = opened(root, tmp_path, resume=True, **changed)
    kept = {row.id for row in first.store.rows()}
    new = started(second)
    assert not kept & set(new)
    rows = train_study(second)
    assert len(read_lines(second.store.path)) == 2 + len(new)
    # the trial that was shared before is part of the search now
    assert {(row.phase, row.learning_rate) for row in rows if row.shape.layers == 1} >= {
        ("search", 1e-2),
        ("search", 2e-2),
    }


def test_other_text_is_noticed(tmp_path: Path) -> None:
    write_text(tmp_path)
    first = opened(tmp_path, tmp_path / "runs", search=ONE_RATE)
    write_text(tmp_path, seed=1)
    with pytest.raises(DepthbenchError) as caught:
        opened(tmp_path, tmp_path / "runs", search=ONE_RATE)
    assert f"(data {first.resolved.data_hash} before, " in str(caught.value)
    second = opened(tmp_path, tmp_path / "runs", resume=True, search=ONE_RATE)
    old = {trial.id for trial in first.needed()}
    assert not old & {trial.id for trial in second.needed()}


def kill(running: Running) -> None:
    assert running.pid is not None
    os.kill(running.pid, signal.SIGKILL)


def test_a_trial_killed_once_is_tried_again_and_says_so(root: Path, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"designs": ["prenorm"], "search": ONE_RATE}
    whole = opened(root, tmp_path / "whole", **changes)
    expected = {row.id: row for row in train_study(whole, place=Place(workers=1))}
    study = opened(root, tmp_path / "killed", **changes)
    killed: list[str] = []

    def kill_first(running: list[Running], _: list[Planned]) -> None:
        if not killed:
            killed.append(running[0].planned.id)
            kill(running[0])

    rows = {row.id: row for row in train_study(study, place=Place(workers=1), watch=kill_first)}
    assert {key: row.loss for key, row in rows.items()} == {
        key: row.loss for key, row in expected.items()
    }
    reason = "tried again because its process was killed by signal 9 (out of memory?)"
    assert rows[killed[0]].notes == [reason]


def test_a_killed_trial_is_a_row_and_the_next_run_tries_it_again(
    root: Path, tmp_path: Path
) -> None:
    """After it was killed every time that it was tried."""
    study = opened(root, tmp_path, designs=["prenorm"], search=ONE_RATE)
    killed: list[str] = []
    seen: set[int | None] = set()

    def kill_first(running: list[Running], _: list[Planned]) -> None:
        killed.extend([] if killed else [running[0].planned.id])
        for one in running:
            if one.planned.id == killed[0] and one.pid not in seen:
                seen.add(one.pid)
                kill(one)

    rows = {row.id: row for row in train_study(study, place=Place(workers=1), watch=kill_first)}
    assert len(rows) == 2
    assert sorted(row.status for row in rows.values()) == ["done", "failed"]
    bad = rows[killed[0]]
    assert len(seen) == 3
    assert len(bad.notes) == 2
    assert bad.reason == "its process was killed by signal 9 (out of memory?)"
    assert (bad.loss, bad.tokens_per_second, bad.final_train_loss) == (None, None, None)
    again = opened(root, tmp_path, designs=["prenorm"], search=ONE_RATE)
    assert started(again) == killed
    assert {row.status for row in again.store.rows()} == {"done"}
    assert len(read_lines(again.store.path)) == 3


def test_a_trial_that_always_fails_is_tried_once_a_run(root: Path, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"designs": ["prenorm"], "search": ONE_RATE}
    study = opened(root, tmp_path, **changes)
    [first, second] = study.needed()
    (study.folder / "trials" / first.id / "metrics.jsonl").mkdir(parents=True)
    for tries in (1, 2):
        again = opened(root, tmp_path, **changes)
        assert set(started(again)) == ({first.id, second.id} if tries == 1 else {first.id})
        rows = {row.id: row for row in again.store.rows()}
        assert rows[first.id].status == "failed"
        assert "error.txt" in (rows[first.id].reason or "")
        assert rows[second.id].status == "done"
        assert len(read_lines(again.store.path)) == 1 + tries


def test_a_search_of_diverged_trials_ends_without_shared_ones(root: Path, tmp_path: Path) -> None:
    train = {**study_config(root / "words.txt").train.resolved(), "divergence_patience": 1}
    changes: dict[str, Any] = {
        "designs": ["prenorm"],
        "search": {"learning_rates": [50.0, 100.0]},
        "train": train,
    }
    rows = train_study(opened(root, tmp_path, **changes), place=Place(workers=2))
    assert [row.status for row in rows] == ["diverged", "diverged"]
    assert all((row.reason or "").startswith("the loss was above its start") for row in rows)
    assert all(row.loss is None and row.tokens < 512 for row in rows)
    assert started(opened(root, tmp_path, **changes)) == []


def test_an_interrupted_study_keeps_its_rows_and_goes_on(root: Path, tmp_path: Path) -> None:
    study = opened(root, tmp_path)
    first: list[Row] = []

    def interrupt(row: Row) -> None:
        first.append(row)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_study(study, place=Place(workers=1), finished=interrupt)
    assert multiprocessing.active_children() == []
    again = opened(root, tmp_path)
    assert [row.id for row in again.store.rows()] == [first[0].id]
    assert len(started(again)) == 5
    assert again.store.rows()[0] == first[0]


def test_a_torn_row_is_trained_again(root: Path, tmp_path: Path) -> None:
    study = opened(root, tmp_path, designs=["prenorm"], search=ONE_RATE)
    train_study(study, place=Place(workers=2))
    torn = study.store.path.read_bytes()[:-40]
    study.store.path.write_bytes(torn)
    again = opened(root, tmp_path, designs=["prenorm"], search=ONE_RATE)
    assert len(started(again)) == 1
    assert len(again.store.rows()) == 2


def test_two_at_once_on_one_folder_are_refused_in_one_line(root: Path, tmp_path: Path) -> None:
    study = opened(root, tmp_path)
    written = (study.folder / "study.toml").read_bytes()
    expected = f"{study.folder} is being trained by another process. Wait for it, or use --out"
    with locked(study.folder):
        with pytest.raises(DepthbenchError) as caught:
            train_study(opened(root, tmp_path))
        assert str(caught.value) == expected
        # nor may another config change the folder meanwhile
        with pytest.raises(DepthbenchError) as caught:
            opened(root, tmp_path, resume=True, seeds=[5])
        assert str(caught.value) == expected
    assert (study.folder / "study.toml").read_bytes() == written
    assert study.store.rows() == []


def test_results_of_another_schema_are_refused_in_one_line(root: Path, tmp_path: Path) -> None:
    study = opened(root, tmp_path, search=ONE_RATE)
    write_atomic(study.store.path, '{"schema_version": 2}\n')
    with pytest.raises(DepthbenchError) as caught:
        Store(study.folder).rows()
    assert str(caught.value).startswith(f"{study.store.path} row 1: ")
    assert "\n" not in str(caught.value)


def test_a_broken_study_file_is_refused_in_one_line(root: Path, tmp_path: Path) -> None:
    study = opened(root, tmp_path, search=ONE_RATE)
    (study.folder / "study.toml").write_text("half = ")
    with pytest.raises(DepthbenchError, match=r"study\.toml cannot be read .* or use --out$"):
        opened(root, tmp_path, search=ONE_RATE)


def test_metrics_of_one_step_are_merged_and_the_last_write_wins(tmp_path: Path) -> None:
    lines = (
        '{"step": 2, "train_loss": 5.0}\n{"step": 1, "train_loss": 6.0}\n'
        '{"step": 2, "train_loss": 4.0, "loss": {"nats": 3.0}}\n'
    )
    write_atomic(tmp_path / "trials" / "x" / "metrics.jsonl", lines)
    assert Store(tmp_path).metrics("x") == [
        {"step": 1, "train_loss": 6.0},
        {"step": 2, "train_loss": 4.0, "loss": {"nats": 3.0}},
    ]


def test_devices_and_formats_are_made_explicit() -> None:
    text = Path("words.txt")

    def with_train(**train: Any) -> StudyConfig:
        return study_config(text, train={"tokens": 1_000_000, **train})

    fixed = fix_device(with_train(device="cpu", dtype="auto")).train
    assert fixed.dtype in ("float32", "bfloat16")
    with pytest.raises(DepthbenchError) as caught:
        fix_device(with_train(device="gpu"))
    assert str(caught.value).startswith("unknown device 'gpu'")
    assert str(caught.value).endswith("Allowed: auto, cpu, cuda")


def test_other_resources_are_no_other_study(root: Path, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"designs": ["prenorm"], "search": ONE_RATE}
    first = opened(root, tmp_path, **changes)
    one, two = first.needed()
    rows = {row.id: row for row in train_study(first, place=Place(workers=1))}
    first.store.path.write_text("")
    # the same trials, with two threads and from their checkpoints
    second = opened(root, tmp_path, resources={"cpus": 2}, **changes)
    written = tomllib.loads((second.folder / "study.toml").read_text())
    assert written["study"]["resources"]["cpus"] == 2
    assert [trial.id for trial in second.needed()] == [one.id, two.id]
    again = {row.id: row for row in train_study(second)}
    assert {key: row.loss for key, row in again.items()} == {
        key: row.loss for key, row in rows.items()
    }
    note = "2 threads: sums are rounded in another order than with one"
    assert [row.notes for row in again.values()] == [[note], [note]]
    # resources beside another difference are not named
    with pytest.raises(DepthbenchError, match=r"another config \(differs in seeds\)"):
        opened(root, tmp_path, seeds=[3], **changes)


def test_a_gpu_of_another_machine_needs_its_kind_of_number_named() -> None:
    config = study_config(Path("words.txt"), train={"tokens": 1_000_000, "device": "cuda"})
    with pytest.raises(DepthbenchError) as caught:
        fix_device(config, here=False)
    assert str(caught.value) == (
        "train.dtype = auto: this machine has no GPU that tells what the others can do. "
        "Name it: train.dtype=bfloat16 or train.dtype=float32"
    )
    named = {"tokens": 1_000_000, "device": "cuda", "dtype": "bfloat16"}
    config = study_config(Path("words.txt"), train=named)
    assert fix_device(config, here=False) == config
    with pytest.raises(DepthbenchError, match="torch finds no GPU here"):
        fix_device(config)
