"""A comparison from two sides to what it shows: training, budgets, arithmetic."""

import math
import statistics
from pathlib import Path
from typing import Any

import pytest

from depthbench.errors import DepthbenchError
from depthbench.files import read_lines
from depthbench.nn.count import count_parameters
from depthbench.study.compare import (
    CompareConfig,
    Comparison,
    open_comparison,
    read_resolved,
    train_comparison,
)
from depthbench.study.conclude import contrast
from depthbench.study.contrast import Contrast
from depthbench.study.engine import Place
from depthbench.study.paired import interval
from depthbench.study.sides import parse_sides
from tests.small import TRAIN, write_text

SEEDS = (3, 4, 5)
SHAPE = ["shape.layers=2", "shape.width=16", "shape.heads=2", "shape.ffn=24"]
SETTINGS = [*SHAPE, "learning_rate=1e-2", *(f"train.{k}={v}" for k, v in TRAIN.items())]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compare")
    write_text(folder)
    return folder


def config(root: Path, a: str, b: str, *more: str, **changes: Any) -> CompareConfig:
    shared = [*SETTINGS, f'data.paths=["{root / "words.txt"}"]', *more]
    (one, other), labels = parse_sides(a, b, shared)
    facts: dict[str, Any] = {"name": "it", "labels": labels, "a": one, "b": other, "seeds": SEEDS}
    return CompareConfig.parse(facts | changes)


def opened(root: Path, out: Path, *sides: str, resume: bool = False, **changes: Any) -> Comparison:
    return open_comparison(
        config(root, *sides, **changes), out, resume=resume, cache=root / "cache"
    )


@pytest.fixture(scope="module")
def comparison(root: Path) -> Comparison:
    """``prenorm`` against ``hc``, unequal in parameters by less than a tolerance of 5 %."""
    found = opened(root, root / "runs", "prenorm", "hc", parameter_tolerance=0.05)
    train_comparison(found, place=Place(workers=2))
    return found


@pytest.fixture(scope="module")
def found(comparison: Comparison) -> Contrast:
    return contrast(comparison)


def test_each_seed_trains_once_with_each_side(comparison: Comparison) -> None:
    rows = comparison.store.rows()
    assert {(row.label, row.seed) for row in rows} == {
        (label, seed) for label in ("prenorm", "hc") for seed in SEEDS
    }
    assert len(read_lines(comparison.folder / "results.jsonl")) == 6
    assert all((row.status, row.steps, row.tokens) == ("done", 8, 512) for row in rows)


def test_what_is_finished_is_kept(comparison: Comparison, root: Path) -> None:
    again = opened(root, root / "runs", "prenorm", "hc", parameter_tolerance=0.05)
    before = (comparison.folder / "results.jsonl").read_bytes()
    started: list[str] = []
    rows = train_comparison(again, finished=lambda row: started.append(row.id))
    assert started == []
    assert len(rows) == 6
    assert (comparison.folder / "results.jsonl").read_bytes() == before


def test_both_sides_start_with_the_same_loss_on_the_same_batch(comparison: Comparison) -> None:
    # hc's logits are prenorm's at the start, and the first record is of the first batch
    for a, b in zip(comparison.trials(0), comparison.trials(1), strict=True):
        ours, theirs = (comparison.store.metrics(trial.id)[0] for trial in (a, b))
        assert ours["step"] == theirs["step"] == 1
        assert ours["train_loss"] == pytest.approx(theirs["train_loss"], abs=1e-5)


def test_final_differences_are_those_of_the_rows(comparison: Comparison, found: Contrast) -> None:
    loss = {
        (row.label, row.seed): row.loss.bits_per_byte for row in comparison.store.rows() if row.loss
    }
    expected = {seed: loss["prenorm", seed] - loss["hc", seed] for seed in SEEDS}
    assert found.lead is not None
    assert found.lead.by_seed == expected
    assert found.lead.bits_per_byte == interval(list(expected.values()), 0.95)
    spreads = [statistics.variance([loss[label, s] for s in SEEDS]) for label in ("prenorm", "hc")]
    assert found.lead.noise == pytest.approx(2 * math.sqrt(sum(spreads) / 3))
    # one byte a token: nats are bits times ln 2
    assert found.lead.nats_per_token.mean == pytest.approx(
        math.log(2) * found.lead.bits_per_byte.mean
    )


def test_differences_by_step_are_those_of_the_metrics(
    comparison: Comparison, found: Contrast
) -> None:
    losses = {
        (side, trial.seed, record["step"]): record["train_loss"]
        for side in (0, 1)
        for trial in comparison.trials(side)
        for record in comparison.store.metrics(trial.id)
    }
    curve = found.training
    assert curve is not None
    assert (curve.window, curve.pairs, curve.steps) == (1, 3, tuple(range(1, 9)))
    for place, step in enumerate(curve.steps):
        pairs = [losses[0, seed, step] - losses[1, seed, step] for seed in SEEDS]
        expected = interval(pairs, 0.95)
        assert curve.mean[place] == expected.mean
        assert (curve.low[place], curve.high[place]) == (expected.low, expected.high)
        assert curve.a[place] == statistics.fmean(losses[0, seed, step] for seed in SEEDS)


def test_windows_are_means_of_each_seed_first(comparison: Comparison, found: Contrast) -> None:
    whole, each = found.training, comparison.config
    resolved = comparison.resolved.model_copy(
        update={"compare": each.model_copy(update={"window": 3})}
    )
    wide = contrast(
        Comparison(resolved, comparison.folder, comparison.dataset, comparison.budgets)
    ).training
    assert whole is not None
    assert wide is not None
    assert (wide.window, wide.steps) == (3, (3, 6, 8))
    assert wide.mean[0] == pytest.approx(statistics.fmean(whole.mean[:3]))
    assert wide.mean[2] == pytest.approx(statistics.fmean(whole.mean[6:]))
    # an interval of means is not a mean of intervals
    assert wide.low[0] != pytest.approx(statistics.fmean(low or 0.0 for low in whole.low[:3]))


def test_the_four_observations(comparison: Comparison, found: Contrast) -> None:
    seen = found.observations
    records = {
        (side, trial.seed): comparison.store.metrics(trial.id)
        for side in (0, 1)
        for trial in comparison.trials(side)
    }
    last = [[records[side, seed][-1]["health"] for seed in SEEDS] for side in (0, 1)]
    for signal, points, size in (
        ("gradient_norm", seen.gradient_norm, 2),
        ("state_variance", seen.state_variance, 3),
        ("neighbour_cosine", seen.neighbour_cosine, 2),
    ):
        assert points[-1].step == 8
        for mine, health in zip((points[-1].a, points[-1].b), last, strict=True):
            assert len(mine) == size
            for depth in range(size):
                assert mine[depth] == statistics.fmean(one[signal][depth] for one in health)
    # a line through eight losses, by the closed form of least squares: Σ (x - x̄)² = 42
    assert seen.slope.steps == 8
    for seed in SEEDS:
        loss = [record["train_loss"] for record in records[0, seed]]
        slope = sum((x - 4.5) * y for x, y in enumerate(loss, start=1)) / 42
        assert seen.slope.a[seed] == pytest.approx(100 * slope)
    assert seen.slope.difference is not None
    assert seen.slope.difference.mean == pytest.approx(
        statistics.fmean(seen.slope.a[s] - seen.slope.b[s] for s in SEEDS)
    )


def test_the_result_is_what_its_schema_says_and_names_what_differs(found: Contrast) -> None:
    assert Contrast.parse(found.resolved()) == found
    text = " ".join(found.warnings)
    a, b = found.a.budget, found.b.budget
    assert f"hc {b.parameters:,}, prenorm {a.parameters:,}" in text
    assert b.flops_per_token > 1.01 * a.flops_per_token
    assert f"hc {b.flops_per_token:.4g}, prenorm {a.flops_per_token:.4g}" in text
    assert "given (at 0.01), not searched" in text
    assert f"{found.shared.numbers:,} parameters start as the same numbers" in found.facts[1]
    assert found.shared.numbers == a.parameters


def test_sides_of_one_shape_are_fitted_and_that_is_said(root: Path, tmp_path: Path) -> None:
    found = opened(root, tmp_path, "prenorm", "hc")
    a, b = (count_parameters(found.trials(side)[0].model).total for side in (0, 1))
    assert found.config.a.shape.ffn == 24
    assert found.config.b.shape.ffn < 24
    assert abs(b / a - 1) <= 0.01
    [note] = found.resolved.notes
    assert f"narrowed from 24 to {found.config.b.shape.ffn}, which makes {b:,}" in note
    assert read_resolved(found.folder) == found.resolved
    # the same command is the same comparison
    assert opened(root, tmp_path, "prenorm", "hc").resolved == found.resolved


@pytest.mark.parametrize(
    ("sides", "changes", "words"),
    [
        (("prenorm", "hc"), {"fit": False}, "unequal budgets"),
        (("prenorm", "prenorm shape.layers=3"), {}, "unequal budgets"),
        (("prenorm", "hc train.tokens=1024"), {}, "512 training tokens"),
        (("prenorm", "hc train.sequences=2"), {}, "4 sequences in a batch"),
        (("prenorm", "hc seed=7"), {}, "has seed = 0"),
        (("prenorm", "hc data.megabytes=1.0"), {}, "read different data"),
    ],
)
def test_what_is_refused(
    root: Path, tmp_path: Path, sides: tuple[str, str], changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(DepthbenchError, match=words):
        opened(root, tmp_path, *sides, **changes)
    assert not (tmp_path / "it").exists()


def test_another_config_in_the_folder_needs_resume(root: Path, tmp_path: Path) -> None:
    opened(root, tmp_path, "prenorm", "attnres")
    with pytest.raises(DepthbenchError, match="holds a comparison with another config"):
        opened(root, tmp_path, "prenorm", "attnres", confidence=0.9)
    found = opened(root, tmp_path, "prenorm", "attnres", confidence=0.9, resume=True)
    assert read_resolved(found.folder) == found.resolved


def test_before_any_trial_nothing_is_claimed(root: Path, tmp_path: Path) -> None:
    found = contrast(opened(root, tmp_path, "prenorm", "attnres"))
    assert (found.lead, found.training, found.verdict) == (None, None, "too_few_seeds")
    assert found.sentence == "No claim: no seed has finished with both prenorm and attnres."
    assert "Not trained yet: seed 3, seed 4 and seed 5." in found.warnings


def test_a_diverged_side_is_a_warning_and_its_pair_is_left_out(root: Path, tmp_path: Path) -> None:
    wild = "prenorm learning_rate=50.0 train.divergence_patience=2"
    comparison = opened(root, tmp_path, "prenorm", wild, seeds=(0, 1))
    train_comparison(comparison, place=Place(workers=2))
    found = contrast(comparison)
    assert (found.b.diverged, found.b.bits_per_byte, found.lead) == ((0, 1), {}, None)
    assert any(f"{found.b.label} diverged with 2 seeds of 2 (0 and 1)" in w for w in found.warnings)
    assert found.verdict == "too_few_seeds"
