"""Settings that save time or memory change no loss, and say what they did."""

import json
from pathlib import Path
from typing import Any

import pytest

from depthbench.data.dataset import Dataset
from depthbench.nn import loss
from depthbench.train.loop import Trial
from depthbench.train.outcome import Outcome
from tests.small import SHAPE, trial_config


def trained(dataset: Dataset, folder: Path, **changes: Any) -> tuple[list[float], Outcome]:
    """Loss of every step, and how it ended."""
    outcome = Trial(trial_config(dataset, **changes), dataset, folder).run(lambda *_: None)
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["train_loss"] for line in lines], outcome


def validation(outcome: Outcome) -> list[float]:
    return [one.nats_per_token for one in outcome.domains.values()]


@pytest.mark.parametrize("more", [{}, {"micro_sequences": 2}, {"backbone": "moe"}], ids=str)
def test_a_loss_in_chunks(dataset: Dataset, tmp_path: Path, more: dict[str, Any]) -> None:
    """With a vocabulary that is padded, and a factor on the logits."""
    shape = SHAPE.model_copy(update={"vocab": 300})
    whole, one = trained(dataset, tmp_path / "whole", shape=shape, **more)
    parts, other = trained(dataset, tmp_path / "parts", shape=shape, loss_chunk=7, **more)
    assert parts == pytest.approx(whole, rel=1e-6)
    assert parts != whole
    assert validation(other) == pytest.approx(validation(one), rel=1e-6)
    assert other.notes == []


def test_chunks_that_nobody_asked_for_are_told(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, one = trained(dataset, tmp_path / "whole")
    assert one.notes == []
    # 64 tokens of 257 logits of 4 bytes do not fit
    monkeypatch.setattr(loss, "LARGEST", 4 * 257 * 20)
    parts, other = trained(dataset, tmp_path / "parts")
    assert other.notes == ["loss: logits of 20 tokens at a time, to save memory"]
    assert parts == pytest.approx(whole, rel=1e-6)


def test_kernels_for_a_gpu_that_is_not_there_are_told(dataset: Dataset, tmp_path: Path) -> None:
    plain, _ = trained(dataset, tmp_path / "plain", design="mhc")
    fused, outcome = trained(dataset, tmp_path / "fused", design="mhc", kernels="fused")
    assert outcome.notes == ["kernels: torch's own operations, for there are none on cpu"]
    assert fused == plain
