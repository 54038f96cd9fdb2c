"""A run's numbers as a watcher sees them, from files in every stage of their making."""

import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import pytest

from depthbench.files import append_line, write_atomic
from depthbench.train.config import TrialConfig
from depthbench.train.status import Status, read_status, write_status
from depthbench.watch.screen import clock, sparkline
from depthbench.watch.view import POINTS, Run, stretches
from tests.small import make_dataset, trial_config

GONE = 2**22 + 1
"""Above the largest number that Linux gives a process."""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> TrialConfig:
    dataset = make_dataset(tmp_path_factory.mktemp("watch"))
    # 200 steps of 64 tokens
    return trial_config(dataset, tokens=12800, design="hc", seed=7)


def write_config(folder: Path, config: TrialConfig) -> None:
    write_atomic(folder / "config.json", config.model_dump_json())


def add(folder: Path, step: int, trained: float | None, seconds: float, **more: Any) -> None:
    record = {"step": step, "tokens": 64 * step, "train_loss": trained, "learning_rate": 1e-3}
    append_line(folder / "metrics.jsonl", record | {"grad_norm": 0.5} | more)
    timing = {"step": step, "seconds": seconds, "tokens_per_second": 64 * step / seconds}
    append_line(folder / "timing.jsonl", timing)


def test_before_anything_is_written(tmp_path: Path) -> None:
    view = Run(tmp_path / "run").look()
    assert (view.label, view.state, view.step, view.over) == ("run", "waiting", 0, False)
    assert view.train_loss is None
    assert view.seconds_left is None
    assert view.quiet_seconds is None
    assert (view.losses, view.findings, view.unread) == ((), (), 0)


def test_numbers_of_a_run_that_goes_on(tmp_path: Path, config: TrialConfig) -> None:
    write_config(tmp_path, config)
    write_status(tmp_path, "running")
    run = Run(tmp_path)
    for step in range(1, 101):
        # 0.1 s a step, and from step 60 on 0.05 s
        seconds = 0.1 * min(step, 60) + 0.05 * max(0, step - 60)
        more = {"loss": {"bits_per_byte": 4.5}} if step == 50 else {}
        add(tmp_path, step, 6 - step / 50, seconds, **more)
        if step in (3, 70):
            run.look()
    view = run.look()
    assert view.label == "hc, 2 layers, width 16, seed 7"
    assert (view.state, view.step, view.steps, view.over) == ("running", 100, 200, False)
    assert (view.tokens, view.total_tokens) == (6400, 12800)
    assert view.train_loss == 4.0
    assert (view.validation_loss, view.validation_step) == (4.5, 50)
    assert (view.learning_rate, view.grad_norm) == (1e-3, 0.5)
    # the last twenty records: 64 tokens in 0.05 s each
    assert view.tokens_per_second == pytest.approx(64 / 0.05)
    assert view.seconds_left == pytest.approx(100 * 0.05)
    assert view.quiet_seconds is not None
    assert 0 <= view.quiet_seconds < 30
    # a hundred records in stretches of two
    assert len(view.losses) == 50
    assert view.losses[0] == pytest.approx(6 - 1.5 / 50)
    assert view.losses[-1] == pytest.approx(6 - 99.5 / 50)
    # a watcher that comes later sees the same
    fresh = Run(tmp_path).look()
    assert fresh.model_copy(update={"quiet_seconds": view.quiet_seconds}) == view


def test_one_record_has_a_speed(tmp_path: Path, config: TrialConfig) -> None:
    write_config(tmp_path, config)
    add(tmp_path, 1, 5.0, 0.5)
    assert Run(tmp_path).look().tokens_per_second == 128.0


def test_a_half_written_line_is_not_there_yet(tmp_path: Path, config: TrialConfig) -> None:
    write_config(tmp_path, config)
    run = Run(tmp_path)
    add(tmp_path, 1, 5.0, 0.5)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "train_lo')
    assert (run.look().step, run.look().unread) == (1, 0)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('ss": 4.0, "tokens": 128}\n')
    assert (run.look().step, run.look().train_loss) == (2, 4.0)


def test_a_run_that_went_back_to_its_checkpoint(tmp_path: Path, config: TrialConfig) -> None:
    write_config(tmp_path, config)
    run = Run(tmp_path)
    for step in range(1, 11):
        add(tmp_path, step, 5.0, 0.1 * step)
    assert run.look().step == 10
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines(keepends=True)
    write_atomic(tmp_path / "metrics.jsonl", "".join(lines[:4]))
    assert run.look().step == 4
    add(tmp_path, 5, 3.0, 0.9)
    view = run.look()
    assert (view.step, view.train_loss, len(view.losses)) == (5, 3.0, 5)


def test_values_that_are_not_finite_are_missing(tmp_path: Path, config: TrialConfig) -> None:
    write_config(tmp_path, config)
    add(tmp_path, 1, 5.0, 0.1)
    add(tmp_path, 2, None, 0.2, loss=None, grad_norm=None)
    view = Run(tmp_path).look()
    assert (view.train_loss, view.grad_norm, view.validation_loss) == (None, None, None)
    assert view.losses == (5.0, None)
    assert sparkline(view.losses) == "▁×"


def test_findings_in_words(tmp_path: Path) -> None:
    finding = {"kind": "loss_spike", "severity": "warning", "step": 30, "words": "a spike"}
    report = {"format": 1, "step": 40, "findings": [finding]}
    write_atomic(tmp_path / "health.json", json.dumps(report))
    [found] = Run(tmp_path).look().findings
    assert (found.severity, found.step, found.words) == ("warning", 30, "a spike")
    write_atomic(tmp_path / "health.json", '{"findings": [{"ki')
    assert Run(tmp_path).look().findings == ()


@pytest.mark.parametrize("state", ["done", "diverged", "stopped"])
def test_the_run_says_how_it_ended(tmp_path: Path, config: TrialConfig, state: Any) -> None:
    write_config(tmp_path, config)
    add(tmp_path, 1, 5.0, 0.1)
    write_status(tmp_path, state, "for a reason")
    view = Run(tmp_path).look()
    assert (view.state, view.reason, view.over) == (state, "for a reason", True)
    assert view.seconds_left is None


def test_a_result_counts_only_for_its_own_config(tmp_path: Path, config: TrialConfig) -> None:
    write_config(tmp_path, config)
    write_atomic(tmp_path / "result.json", json.dumps({"id": "another", "status": "done"}))
    assert Run(tmp_path).look().state == "waiting"
    row = {"id": config.id, "status": "diverged", "reason": "not finite"}
    write_atomic(tmp_path / "result.json", json.dumps(row))
    view = Run(tmp_path).look()
    assert (view.state, view.reason) == ("diverged", "not finite")


def say(folder: Path, pid: int, host: str) -> None:
    word = Status(state="running", pid=pid, host=host, at="2026-01-01T00:00:00+00:00")
    (folder / "status.json").write_text(word.model_dump_json())


def test_a_process_that_is_gone_is_lost(tmp_path: Path) -> None:
    say(tmp_path, GONE, platform.node())
    view = Run(tmp_path).look()
    assert (view.state, view.over) == ("lost", True)
    assert view.reason is not None
    assert "without a word" in view.reason
    # of another machine nothing is known
    say(tmp_path, GONE, "elsewhere")
    assert Run(tmp_path).look().state == "waiting"
    say(tmp_path, os.getpid(), platform.node())
    assert Run(tmp_path).look().state == "waiting"


def test_a_failed_trial_that_is_tried_again_runs(tmp_path: Path) -> None:
    row = {"id": "x", "status": "failed", "reason": "out of memory"}
    assert Run(tmp_path, row).look().state == "failed"
    write_status(tmp_path, "running")
    assert Run(tmp_path, row).look().state == "waiting"
    assert Run(tmp_path, row | {"status": "done"}).look().state == "done"


def test_a_status_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text('{"state": "running"')
    assert read_status(tmp_path) is None
    (tmp_path / "status.json").write_text('{"state": "flying", "pid": 1, "host": "x", "at": ""}')
    assert read_status(tmp_path) is None


def test_quiet_is_measured_from_the_last_record(tmp_path: Path) -> None:
    add(tmp_path, 1, 5.0, 0.1)
    earlier = time.time() - 300
    os.utime(tmp_path / "metrics.jsonl", (earlier, earlier))
    quiet = Run(tmp_path).look().quiet_seconds
    assert quiet == pytest.approx(300, abs=20)


def test_stretches_are_means_in_order() -> None:
    assert stretches([]) == ()
    assert stretches([1.0, None]) == (1.0, None)
    many = stretches([float(n) for n in range(2 * POINTS + 1)])
    assert len(many) == 41
    assert many[0] == 1.0
    assert many[-1] == 2 * POINTS
    assert stretches([None, 2.0, 4.0] * POINTS)[0] == 3.0


def test_a_sparkline_spans_least_to_greatest() -> None:
    assert sparkline((1.0, 4.5, 8.0)) == "▁▅█"
    assert sparkline((2.0, 2.0)) == "▁▁"
    assert sparkline(()) == ""
    assert [clock(s) for s in (0, 59.6, 3599, 3661)] == ["0:00", "1:00", "59:59", "1:01:01"]
