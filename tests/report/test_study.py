"""What a report reads from a study folder."""

from pathlib import Path

import pytest

from depthbench.errors import DepthbenchError
from depthbench.files import append_line
from depthbench.report.study import load, published, training_curve
from depthbench.study.store import Store
from tests.report.synthetic import rich_rows, row, write_study


def test_training_curve_is_the_mean_of_stretches(tmp_path: Path) -> None:
    one = row("hc", 4, 2.2)
    path = tmp_path / "trials" / one.id / "metrics.jsonl"
    for step in range(1, 361):
        loss = None if step == 360 else float(step)
        append_line(path, {"step": step, "tokens": step * 10, "train_loss": loss})
    curve = training_curve(Store(tmp_path), one)
    assert curve is not None
    assert len(curve.tokens) == 120
    assert curve.nats_per_token[:2] == [2.0, 5.0]  # of 1, 2, 3 and 4, 5, 6
    assert curve.tokens[:2] == [30, 60]
    assert curve.nats_per_token[-1] == 358.5  # of 358 and 359: the missing one is no 0
    assert curve.tokens[-1] == 3590


def test_a_trial_without_metrics_has_no_curve(tmp_path: Path) -> None:
    assert training_curve(Store(tmp_path), row("hc", 4, 2.2)) is None


def test_a_metrics_record_without_a_step_is_one_clear_line(tmp_path: Path) -> None:
    planned = rich_rows()[2]  # at the rate that its curve uses
    folder = write_study(tmp_path / "study", [planned])
    path = folder / "trials" / planned.id / "metrics.jsonl"
    path.write_text('{"tokens": 4}\n', encoding="utf-8")
    with pytest.raises(DepthbenchError, match=r"metrics.jsonl record 1: 'step' is missing"):
        load(folder)


def test_published_curves_pair_each_loss_with_its_shape() -> None:
    curve = published().curve("prenorm")
    assert [layers for _, layers, _ in curve] == [16, 20, 24, 28, 32]
    assert curve[0] == (76.0, 16, 2.759)
    assert curve[-1] == (28.0, 32, 2.782)
    assert published().curve("attnres")[-1] == pytest.approx((640 / 70, 70, 2.702))
