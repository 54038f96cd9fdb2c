"""Training on other backbones: what routers add to the loss and to the records."""

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest
from torch.nn import functional

from depthbench.data.dataset import Dataset
from depthbench.train.loop import Trial
from depthbench.train.outcome import Outcome
from tests.small import SHAPE, TRAIN, trial_config


def train(dataset: Dataset, folder: Path, **changes: Any) -> tuple[Trial, Outcome]:
    trial = Trial(trial_config(dataset, **changes), dataset, folder)
    return trial, trial.run(lambda steps, tokens: None)


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_the_router_penalty_joins_the_gradient_and_not_the_loss(
    dataset: Dataset, tmp_path: Path
) -> None:
    """One step's gradient by hand; the record names what was added, and every expert's share."""
    backbone = {"name": "moe", "experts": 4, "balance_weight": 0.5, "z_weight": 0.1}
    config = trial_config(dataset, backbone=backbone)
    trial = Trial(config, dataset, tmp_path)
    model = copy.deepcopy(trial.learner.model).double()
    made = trial.learner.step(0)
    loads: list[Any] = []
    inputs, targets = dataset.batch(0, 0, TRAIN["sequences"], TRAIN["length"])
    loss = functional.cross_entropy(model(inputs, loads=loads).flatten(0, 1), targets.flatten())
    penalty = sum(0.5 * 4 * (load.share * load.probability).sum() + 0.1 * load.z for load in loads)
    (loss + penalty).backward()
    norm = math.sqrt(sum(p.grad.square().sum().item() for p in model.parameters()))
    assert made.loss == pytest.approx(loss.item(), rel=1e-5)
    assert made.router_penalty == pytest.approx(penalty.item(), rel=1e-4)
    assert made.router_penalty > 0.5 * SHAPE.layers
    assert made.grad_norm == pytest.approx(norm, rel=1e-4)


def test_records_of_routers(dataset: Dataset, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"backbone": {"name": "moe", "experts": 4}}
    train(dataset, tmp_path / "moe", **changes)
    train(dataset, tmp_path / "checkpointed", checkpointing=True, **changes)
    train(dataset, tmp_path / "dense")
    routed, again, dense = (metrics(tmp_path / n) for n in ("moe", "checkpointed", "dense"))
    assert all(0.02 < record["router_penalty"] < 0.1 for record in routed)
    assert [r["router_penalty"] for r in again] == pytest.approx(
        [r["router_penalty"] for r in routed], rel=1e-5
    )
    extra = {"router_penalty"}
    assert [r.keys() ^ d.keys() for r, d in zip(routed, dense, strict=True)] == [extra] * 8
    health = routed[-1]["health"]
    assert health.keys() ^ dense[-1]["health"].keys() == {"expert_share", "busiest_share"}
    assert [len(shares) for shares in health["expert_share"]] == [4, 4]
    for shares, busiest in zip(health["expert_share"], health["busiest_share"], strict=True):
        assert sum(shares) == pytest.approx(1, rel=1e-6)
        assert max(shares) == busiest
        assert 0.25 <= busiest <= 0.5


def test_a_hybrid_trains(dataset: Dataset, tmp_path: Path) -> None:
    _, outcome = train(dataset, tmp_path, backbone="hybrid", tokens=64 * 30)
    records = metrics(tmp_path)
    assert outcome.status == "done"
    assert records[-1]["train_loss"] < records[0]["train_loss"] - 0.5
    assert "router_penalty" not in records[-1]
