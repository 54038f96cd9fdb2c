"""Groups of parameters: two for the standard parametrization, and the table's factors else."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from depthbench.data.dataset import Dataset
from depthbench.nn.model import Model
from depthbench.nn.parameters import decayed
from depthbench.shapes import Shape
from depthbench.train.config import TrialConfig
from depthbench.train.health.measure import measure
from depthbench.train.loop import Trial
from depthbench.train.optim import make_optimizer
from tests.small import trial_config

DEEP = Shape(layers=4, width=16, heads=2, kv_heads=2, ffn=24, vocab=257)
COMPLETE = {"kind": "completep", "base_layers": 1, "base_width": 8, "base_head_dim": 8}
"""DEEP is 4 times as deep and twice as wide."""


def scaled(dataset: Dataset, design: Any, **own: Any) -> TrialConfig:
    config = trial_config(dataset, design=design, shape=DEEP, eps=1e-6, weight_decay=0.3)
    model = config.model.resolved() | {"parametrization": COMPLETE | own}
    return TrialConfig.parse(config.resolved() | {"model": model})


def by_name(config: TrialConfig) -> dict[str, tuple[float, float, float]]:
    """Learning rate over the config's, weight decay and eps of every parameter."""
    model = Model.build(config.model, seed=0)
    names = {id(p): name for name, p in model.named_parameters()}
    groups = make_optimizer(model, config).param_groups
    found = {
        names[id(p)]: (group["lr"] / config.learning_rate, group["weight_decay"], group["eps"])
        for group in groups
        for p in group["params"]
    }
    assert found.keys() == set(names.values())
    assert all(g["lr"] == g["rate_factor"] * config.learning_rate for g in groups)
    return found


@pytest.mark.parametrize("design", ["prenorm", "hc", "attnres"])
def test_standard_is_adamw_with_and_without_decay(dataset: Dataset, design: str) -> None:
    config = trial_config(dataset, design=design, weight_decay=0.3)
    model = Model.build(config.model, seed=0)
    other = copy.deepcopy(model)
    optimizer = make_optimizer(model, config)
    with_decay, without = decayed(model)
    assert [group["params"] for group in optimizer.param_groups] == [with_decay, without]
    with_decay, without = decayed(other)
    plain = torch.optim.AdamW(
        [{"params": with_decay, "weight_decay": 0.3}, {"params": without, "weight_decay": 0.0}],
        lr=config.learning_rate,
        betas=(0.9, 0.95),
        eps=1e-8,
        fused=True,
    )
    for step in range(3):
        inputs, _ = dataset.batch(0, step, 2, 16)
        for one, steps in ((model, optimizer), (other, plain)):
            steps.zero_grad()
            one(inputs).logsumexp(-1).mean().backward()
            steps.step()
    pairs = zip(model.parameters(), other.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_completep_over_depth_and_width(dataset: Dataset) -> None:
    found = by_name(scaled(dataset, "prenorm"))
    for name, facts in found.items():
        if not name.startswith("blocks."):
            expected = (1.0, 0.0 if name.endswith("gain") else 0.3, 5e-7)
        elif name.endswith("gain"):
            expected = (1.0, 0.0, 1.25e-7)
        else:
            expected = (0.5, 0.6, 1.25e-7)
        assert facts == pytest.approx(expected), name


def test_depth_mup_over_depth_alone(dataset: Dataset) -> None:
    found = by_name(scaled(dataset, "prenorm", kind="depth_mup", scope="depth"))
    for name, facts in found.items():
        inner = name.startswith("blocks.")
        decay = 0.0 if name.endswith("gain") else 0.3
        assert facts == pytest.approx((0.5 if inner else 1.0, decay, 5e-7 if inner else 1e-6))


def test_what_weighs_the_carried_state_learns_slower_with_depth(dataset: Dataset) -> None:
    found = by_name(scaled(dataset, "hc"))
    block = "blocks.2.feedforward_connection."
    assert found[f"{block}static_mix"] == pytest.approx((1 / 4, 0.0, 5e-7))
    assert found[f"{block}dynamic"] == pytest.approx((1 / 8, 0.6, 5e-7))
    assert found[f"{block}static_write"] == pytest.approx((1.0, 0.0, 1.25e-7))
    unmixed = by_name(scaled(dataset, {"name": "hc", "mix": False}))
    assert unmixed[f"{block}dynamic"] == pytest.approx((1 / 2, 0.6, 1.25e-7))


def test_the_schedule_moves_every_group(dataset: Dataset, tmp_path: Path) -> None:
    config = scaled(dataset, "prenorm")
    trial = Trial(config, dataset, tmp_path)
    for step in range(3):
        made = trial.learner.step(step)
        assert made.rate == config.train.learning_rate(step, config.learning_rate)
        for group in trial.learner.optimizer.param_groups:
            assert group["lr"] == made.rate * group["rate_factor"]
    assert len({group["lr"] for group in trial.learner.optimizer.param_groups}) > 1


def test_health_reads_each_groups_rate(dataset: Dataset, tmp_path: Path) -> None:
    config = scaled(dataset, "prenorm")
    config = TrialConfig.parse(
        config.resolved() | {"train": config.train.resolved() | {"weight_decay": 0.0}}
    )
    trial = Trial(config, dataset, tmp_path)
    trial.learner.step(0)
    before = [p.detach().clone() for p in trial.learner.model.blocks[0].parameters()]
    trial.learner.step(1)
    health = measure(trial.learner.model, trial.learner.optimizer, dataset.batch(0, 5, 2, 16)[0])
    after = list(trial.learner.model.blocks[0].parameters())
    moved = torch.cat([(a - b).flatten() for a, b in zip(after, before, strict=True)])
    weights = torch.cat([p.flatten() for p in after])
    expected = (moved.norm() / weights.norm()).item()
    assert health.update_over_weight[0] == pytest.approx(expected, rel=1e-3)
