"""Health of whole trials: when it is measured, what is told, and that watching changes nothing."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from depthbench.data.dataset import Dataset
from depthbench.train.config import TrainConfig
from depthbench.train.health.findings import FILE, read_report
from depthbench.train.health.monitor import Monitor
from depthbench.train.loop import Trial
from depthbench.train.outcome import Outcome, Step
from tests.small import trial_config

RESTLESS = {"every": 3, "update_every": 2, "window": 10, "window_least": 5, "spike_z": 0.5}
RESTLESS |= {"norm_floor": 0.01}
"""So that eight steps hold spikes."""


def train(dataset: Dataset, folder: Path, **changes: Any) -> tuple[Trial, Outcome]:
    trial = Trial(trial_config(dataset, **changes), dataset, folder)
    return trial, trial.run(lambda steps, tokens: None)


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_measured_every_so_many_steps_and_at_validations(dataset: Dataset, tmp_path: Path) -> None:
    train(dataset, tmp_path / "three", log_every=100, health={"every": 3})
    train(dataset, tmp_path / "never", log_every=100, health={"every": 0})
    steps = {
        name: [r["step"] for r in metrics(tmp_path / name) if "health" in r]
        for name in ("three", "never")
    }
    assert steps == {"three": [3, 4, 6, 8], "never": [4, 8]}
    assert [r["step"] for r in metrics(tmp_path / "three")] == [1, 3, 4, 6, 8]


def test_watching_changes_nothing(dataset: Dataset, tmp_path: Path) -> None:
    """Read-only: the weights are those of a run that was hardly watched, bit for bit."""
    for name, health in (("often", {"every": 1, "update_every": 1}), ("hardly", {"every": 0})):
        train(dataset, tmp_path / name, design="mhc", dtype="bfloat16", health=health)
    one, other = (
        load_file(tmp_path / name / "checkpoints" / "step-000008" / "model.safetensors")
        for name in ("often", "hardly")
    )
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_the_file_says_what_the_records_say(dataset: Dataset, tmp_path: Path) -> None:
    train(dataset, tmp_path, health=RESTLESS)
    report = read_report(tmp_path)
    assert report is not None
    assert report.step == 8
    told = [spike for record in metrics(tmp_path) for spike in record.get("spikes", ())]
    assert told, "nothing stood out: the test does not see spikes"
    kinds = {f"{spike['signal']}_spike" for spike in told}
    assert kinds == {finding.kind for finding in report.findings if "spike" in finding.kind}
    assert report.loss_slope is not None
    assert (report.loss_slope.last, report.loss_slope.points) == (8, 8)
    assert report.loss_slope.nats_per_100_steps < 0


def test_a_spike_is_recorded_where_no_record_was_due(dataset: Dataset, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"log_every": 100, "evaluations": 1, "tokens": 64 * 14}
    trial, _ = train(
        dataset, tmp_path, learning_rate=0.1, health=RESTLESS | {"every": 0}, **changes
    )
    records = metrics(tmp_path)
    extra = [record for record in records if record["step"] not in (1, 14)]
    assert extra
    assert all(record["spikes"] for record in extra)
    assert [step for step, _ in trial.monitor.history.losses] == [r["step"] for r in records]


def test_stable_for_some_steps_and_gone_later(dataset: Dataset, tmp_path: Path) -> None:
    """A gradient goes bad at the seventh step of a run that had been fine: CASES 37."""
    config = trial_config(dataset, health={"stable_steps": 5, "every": 2})
    trial = Trial(config, dataset, tmp_path)
    calls = iter(range(1, 100))

    def spoil(gradient: torch.Tensor) -> torch.Tensor:
        return gradient * math.nan if next(calls) == 7 else gradient

    block = trial.learner.model.blocks[1]
    block.get_parameter("feedforward.down.weight").register_hook(spoil)
    outcome = trial.run(lambda steps, tokens: None)
    assert (outcome.status, outcome.steps) == ("diverged", 7)
    report = read_report(tmp_path)
    assert report is not None
    finding, bad, *_ = report.findings
    assert (finding.kind, finding.severity, finding.step) == ("late_divergence", "problem", 7)
    assert finding.words.startswith(
        "stable for 6 steps, gone at 7: the gradient is not finite at step 6; the loss had been "
    )
    # the last record says where: the second block's gradient alone
    assert (bad.kind, bad.where, bad.places) == ("not_finite", "block", (1,))
    assert metrics(tmp_path)[-1]["health"]["gradient_norm"][1] is None


def test_the_file_is_there_while_training_goes_on(dataset: Dataset, tmp_path: Path) -> None:
    """After the first validation; before it only once there is something to tell."""
    there: dict[int, bool] = {}
    trial = Trial(trial_config(dataset, health={"every": 1}), dataset, tmp_path)
    trial.run(lambda steps, _: there.update({steps: (tmp_path / FILE).exists()}))
    assert there == {step: step >= 4 for step in range(1, 9)}
    loud = Trial(
        trial_config(dataset, health={"every": 1, "lasting": 2, "update_ratio_high": 1e-4}),
        dataset,
        tmp_path / "loud",
    )
    there.clear()
    loud.run(lambda steps, _: there.update({steps: (tmp_path / "loud" / FILE).exists()}))
    assert there == {step: step >= 2 for step in range(1, 9)}


def test_findings_of_long_runs_are_looked_for_as_the_run_grows(tmp_path: Path) -> None:
    """Of 200 measurements: the first 51 each, then when there are 2 % more."""
    watched = monitor(tmp_path)
    names = ("update_over_weight", "second_moment", "gradient_norm")
    measured = {name: [1e-3] for name in names} | {"state_rms": [1.0, 1.0]}
    seen = []
    for step in range(1, 201):
        record = {"step": step, "train_loss": 2.0, "health": measured}
        watched.record(record, {})
        if watched.seen == step:
            seen.append(step)
    assert seen[:51] == list(range(1, 52))
    assert seen[51:54] == [53, 55, 57]
    assert 95 < len(seen) < 115


def monitor(folder: Path, **health: Any) -> Monitor:
    health = {"window_least": 5, "update_every": 5} | health
    return Monitor(TrainConfig.parse({"health": health}), folder)


def test_update_sizes_are_held_against_each_other_over_the_learning_rate(tmp_path: Path) -> None:
    """A rate that doubles is no jump; an update that triples at the same rate is one."""
    watched = monitor(tmp_path)
    rates = [1e-3 * 2 ** (step // 2) for step in range(8)]
    for step, rate in enumerate(rates, start=1):
        assert watched.watch(step, Step(2.0, 1.0, rate, None), [0.5 * rate, 0.2 * rate]) == {}
    [spike] = watched.watch(9, Step(2.0, 1.0, 1e-3, None), [5e-4, 6e-4])["spikes"]
    assert (spike["signal"], spike["block"]) == ("update", 1)
    assert spike["value"] == pytest.approx(0.6)
    assert spike["z"] == pytest.approx(math.log(3) / 0.1)


def test_what_is_not_finite_is_not_compared(tmp_path: Path) -> None:
    watched = monitor(tmp_path)
    for step in range(1, 9):
        watched.watch(step, Step(2.0, 1.0, 1e-3, None), None)
    assert watched.watch(9, Step(math.nan, math.inf, 1e-3, None), [math.nan, 1.0]) == {}
    assert len(watched.spikes.windows["loss"]) == 8
    [spike] = watched.watch(10, Step(2.0, 8.0, 1e-3, None), None)["spikes"]
    assert (spike["signal"], spike["step"]) == ("gradient", 10)
