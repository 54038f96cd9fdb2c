"""Health numbers against direct computations from gradients, states and Adam's own sums."""

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from depthbench.data.dataset import Dataset
from depthbench.designs import REGISTRY
from depthbench.nn.block import Trace
from depthbench.train.health import Health, measure
from depthbench.train.loop import Trial
from depthbench.train.tensors import norm_of
from tests.small import trial_config

RATE = 2e-2


def after_two_steps(dataset: Dataset, folder: Path, design: str) -> tuple[Trial, Health]:
    config = trial_config(
        dataset, design=design, learning_rate=RATE, max_grad_norm=1e6, warmup_fraction=0.25
    )
    trial = Trial(config, dataset, folder)
    for step in range(2):
        trial.learner.step(step)
    return trial, measure(trial.learner.model, trial.learner.optimizer, tokens_of(dataset))


def tokens_of(dataset: Dataset) -> torch.Tensor:
    return dataset.batch(3, 3, 2, 16)[0]


def test_the_norm_reads_only() -> None:
    tensors = [torch.tensor([3.0, 0.0]), torch.tensor([[4.0]])]
    assert norm_of(tensors).item() == 5.0
    assert tensors[0].tolist() == [3.0, 0.0]
    bad = [torch.tensor([math.nan, 1.0]), torch.tensor([2.0])]
    assert not norm_of(bad).isfinite()
    assert bad[1].tolist() == [2.0]


@pytest.mark.parametrize("design", ["prenorm", "hc"])
def test_gradient_norms_by_block(dataset: Dataset, tmp_path: Path, design: str) -> None:
    trial, health = after_two_steps(dataset, tmp_path, design)
    expected = [
        math.sqrt(
            sum(
                p.grad.double().square().sum().item()
                for p in block.parameters()
                if p.grad is not None
            )
        )
        for block in trial.learner.model.blocks
    ]
    assert health.gradient_norm == pytest.approx(expected, rel=1e-5)
    assert expected[0] != pytest.approx(expected[1], rel=1e-2)
    assert health.gradient_bottom_over_top == pytest.approx(expected[0] / expected[1], rel=1e-5)


def test_updates_over_weights_are_the_steps_that_adam_made(
    dataset: Dataset, tmp_path: Path
) -> None:
    config = trial_config(dataset, learning_rate=RATE, weight_decay=0.0)
    trial = Trial(config, dataset, tmp_path)
    trial.learner.step(0)
    before = [
        [p.detach().clone() for p in block.parameters()] for block in trial.learner.model.blocks
    ]
    trial.learner.step(1)
    health = measure(trial.learner.model, trial.learner.optimizer, tokens_of(dataset))
    for number, block in enumerate(trial.learner.model.blocks):
        pairs = list(zip(block.parameters(), before[number], strict=True))
        update = math.sqrt(sum((p - old).double().square().sum().item() for p, old in pairs))
        weight = math.sqrt(sum(p.double().square().sum().item() for p, _ in pairs))
        assert health.update_over_weight[number] == pytest.approx(update / weight, rel=1e-3)


def test_second_moments_are_the_mean_over_all_entries(dataset: Dataset, tmp_path: Path) -> None:
    trial, health = after_two_steps(dataset, tmp_path, "prenorm")
    for number, block in enumerate(trial.learner.model.blocks):
        moments = [
            trial.learner.optimizer.state[p]["exp_avg_sq"].flatten() for p in block.parameters()
        ]
        mean = torch.cat(moments).double().mean().item()
        assert mean > 0
        assert health.second_moment[number] == pytest.approx(mean, rel=1e-5)


def test_states_by_depth(dataset: Dataset, tmp_path: Path) -> None:
    trial, health = after_two_steps(dataset, tmp_path, "prenorm")
    model, tokens = trial.learner.model, tokens_of(dataset)
    trace = Trace()
    with torch.no_grad():
        embedded = model.embed(tokens)
        model(tokens, trace=trace)
    states = [state.double() for state in trace.depth_states]
    assert torch.equal(states[0], embedded.double())
    assert len(states) == 3
    rms = [math.sqrt(z.square().mean().item()) for z in states]
    assert health.state_rms == pytest.approx(rms, rel=1e-5)
    assert health.state_variance == pytest.approx([z.var().item() for z in states], rel=1e-4)
    cosines = [
        ((a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))).mean().item()
        for a, b in itertools.pairwise(states)
    ]
    assert health.neighbour_cosine == pytest.approx(cosines, rel=1e-4)
    assert all(0 < cosine < 1 for cosine in cosines)


def test_what_is_not_finite_is_none_and_not_zero(dataset: Dataset, tmp_path: Path) -> None:
    trial, _ = after_two_steps(dataset, tmp_path, "prenorm")
    with torch.no_grad():
        trial.learner.model.blocks[1].get_parameter("attention.o.weight")[0, 0] = float("nan")
    health = measure(trial.learner.model, trial.learner.optimizer, tokens_of(dataset))
    assert [rms is None for rms in health.state_rms] == [False, False, True]
    assert health.neighbour_cosine[1] is None
    assert health.update_over_weight[0] is not None
    assert health.update_over_weight[1] is None


@pytest.mark.parametrize("design", list(REGISTRY))
def test_every_design_has_all_health_numbers(dataset: Dataset, tmp_path: Path, design: str) -> None:
    _, health = after_two_steps(dataset, tmp_path, design)
    facts: dict[str, Any] = health.resolved()
    assert facts.pop("gradient_bottom_over_top") > 0
    for name, numbers in facts.items():
        assert len(numbers) in (2, 3), name
        assert all(number is not None and number != 0 for number in numbers), (name, numbers)
