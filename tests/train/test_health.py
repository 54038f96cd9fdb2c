"""Health numbers against direct computations from gradients, states and Adam's own sums."""

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from depthbench.data.dataset import Dataset
from depthbench.designs import REGISTRY
from depthbench.nn.block import Trace
from depthbench.train.health.measure import Health, measure
from depthbench.train.health.sums import magnitudes, squares, update_squares
from depthbench.train.loop import Trial
from depthbench.train.tensors import norm_of
from tests.small import SHAPE, trial_config

RATE = 2e-2


def after_two_steps(dataset: Dataset, folder: Path, design: Any) -> tuple[Trial, Health]:
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


def test_outputs_by_site(dataset: Dataset, tmp_path: Path) -> None:
    """In float64, from branches that are called by hand on what they were given."""
    trial, health = after_two_steps(dataset, tmp_path, "hc")
    outputs: list[torch.Tensor] = []

    def keep(_: int, __: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        outputs.append(y.double())
        return y

    with torch.no_grad():
        trial.learner.model(tokens_of(dataset), tap=keep)
    assert len(outputs) == 4
    norms = [y.square().sum(-1).sqrt().mean().item() for y in outputs]
    assert health.output_norm == pytest.approx(norms, rel=1e-5)
    assert health.output_variance == pytest.approx([y.var().item() for y in outputs], rel=1e-4)
    assert len(set(norms)) == 4


def test_cosines_of_shallow_and_deep_states(dataset: Dataset, tmp_path: Path) -> None:
    """Five blocks: every pair of one of the first two and one of the last two, one by one."""
    shape = SHAPE.model_copy(update={"layers": 5})
    trial = Trial(trial_config(dataset, shape=shape, learning_rate=RATE), dataset, tmp_path)
    trial.learner.step(0)
    trace = Trace()
    with torch.no_grad():
        trial.learner.model(tokens_of(dataset), trace=trace)
    z = [state.double() for state in trace.depth_states]
    pairs = [
        functional.cosine_similarity(z[i], z[j], dim=-1).mean().item()
        for i in (1, 2)
        for j in (4, 5)
    ]
    health = trial.learner.health(tokens_of(dataset))
    assert health.shallow_deep_cosine == pytest.approx(sum(pairs) / 4, rel=1e-5)
    single = SHAPE.model_copy(update={"layers": 1})
    trial = Trial(trial_config(dataset, shape=single), dataset, tmp_path)
    assert trial.learner.health(tokens_of(dataset)).shallow_deep_cosine is None


def test_errors_of_mixing_matrices(dataset: Dataset, tmp_path: Path) -> None:
    """Wide logits, so that two rounds leave rows far from 1; columns come last and are exact."""
    trial, _ = after_two_steps(dataset, tmp_path, {"name": "mhc", "rounds": 2})
    model, tokens = trial.learner.model, tokens_of(dataset)
    with torch.no_grad():
        for number, (_, _, connection) in enumerate(model.sites()):
            bias = connection.get_parameter("bias_mix")
            bias.copy_(number * torch.arange(float(bias.numel())).sin().view_as(bias))
    trace = Trace()
    with torch.no_grad():
        model(tokens, trace=trace)
    rows = []
    for _, route in trace.routes:
        [mix] = route.mixes()
        sums = mix.double().flatten(0, 1).sum(-1).flatten().tolist()
        rows.append(max(abs(total - 1) for total in sums))
    health = trial.learner.health(tokens)
    assert health.mixing_row_error == pytest.approx(rows, rel=1e-6)
    assert rows[3] > 0.01
    assert health.mixing_column_error is not None
    assert max(error or 0 for error in health.mixing_column_error) < 1e-6
    free, _ = after_two_steps(dataset, tmp_path / "hc", "hc")
    assert free.learner.health(tokens).mixing_row_error is None


def test_drift_of_states_in_bfloat16(dataset: Dataset, tmp_path: Path) -> None:
    trial, health = after_two_steps(dataset, tmp_path, "prenorm")
    assert health.low_precision_drift is None
    model, tokens = trial.learner.model, tokens_of(dataset)
    low = torch.autocast("cpu", torch.bfloat16)
    health = measure(model, trial.learner.optimizer, tokens, low)
    traces = [Trace(), Trace()]
    with torch.no_grad():
        model(tokens[:1], trace=traces[0])
        with torch.autocast("cpu", torch.bfloat16):
            model(tokens[:1], trace=traces[1])
    full, rounded = ([z.double() for z in trace.depth_states] for trace in traces)
    drift = [((a - b).norm() / a.norm()).item() for a, b in zip(full, rounded, strict=True)]
    assert drift[0] == 0
    assert 1e-4 < drift[2] < 0.02
    assert health.low_precision_drift == pytest.approx(drift, rel=1e-2)


def test_before_any_step_there_is_no_update_and_no_second_moment(
    dataset: Dataset, tmp_path: Path
) -> None:
    trial = Trial(trial_config(dataset), dataset, tmp_path)
    health = trial.learner.health(tokens_of(dataset))
    assert health.update_over_weight == [None, None]
    assert health.second_moment == [None, None]
    assert health.gradient_norm == [0.0, 0.0]


def test_sums_by_block_skip_what_has_no_gradient() -> None:
    blocks = [[torch.tensor([3.0, -4.0]), None], [], [torch.tensor([[-2.0]])]]
    assert squares(blocks).tolist() == [25.0, 0.0, 4.0]
    assert magnitudes(blocks).tolist() == [7.0, 0.0, 2.0]
    assert squares([[None], [None]]).tolist() == [0.0, 0.0]


def test_updates_keep_the_rates_and_eps_of_their_groups() -> None:
    """Two groups in one block, by hand after two steps; one parameter moved only once."""
    one, two, idle = (nn.Parameter(torch.tensor(v)) for v in ([1.0, 2.0], [3.0], [4.0]))
    groups: list[dict[str, Any]] = [
        {"params": [one], "lr": 0.1, "eps": 1e-3},
        {"params": [two, idle], "lr": 0.5, "eps": 1e-1},
    ]
    optimizer = torch.optim.AdamW(groups, betas=(0.8, 0.9), weight_decay=0.0, fused=True)
    one.grad, two.grad = torch.tensor([0.5, -0.1]), torch.tensor([0.01])
    optimizer.step()
    two.grad, before = None, [p.detach().clone() for p in (one, two)]
    one.grad = torch.tensor([-0.2, 0.3])
    optimizer.step()
    # the one that stood still: its own first step, over again
    again = 0.5 * 0.01 / (0.01 + 1e-1)
    moved = (one.detach() - before[0]).double().square().sum().item()
    found = update_squares([[one, two], [idle]], optimizer)
    assert found.tolist() == pytest.approx([moved + again**2, 0.0], rel=1e-4)


def test_records_are_short_and_leave_out_what_does_not_apply(
    dataset: Dataset, tmp_path: Path
) -> None:
    _, health = after_two_steps(dataset, tmp_path, "prenorm")
    record = health.record()
    assert "expert_share" not in record
    assert "mixing_row_error" not in record
    assert record["state_rms"] == pytest.approx(health.state_rms, rel=1e-5)
    assert all(len(f"{number:.10g}") <= 12 for number in record["state_rms"])
    assert Health.parse(record).neighbour_cosine == record["neighbour_cosine"]


@pytest.mark.parametrize("design", list(REGISTRY))
def test_every_design_has_all_health_numbers(dataset: Dataset, tmp_path: Path, design: str) -> None:
    trial, health = after_two_steps(dataset, tmp_path, design)
    facts: dict[str, Any] = health.record()
    assert facts.pop("gradient_bottom_over_top") > 0
    assert -1 < facts.pop("shallow_deep_cosine") <= 1
    errors = [facts.pop(f"mixing_{axis}_error", None) for axis in ("row", "column")]
    assert (errors == [None, None]) == (trial.learner.model.design.mixing_error() is None)
    for name, numbers in facts.items():
        assert len(numbers) == (4 if name.startswith("output") else 3 if "state" in name else 2)
        assert all(number is not None and number != 0 for number in numbers), (name, numbers)
