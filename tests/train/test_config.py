"""The learning-rate schedule and the counting of steps, in closed form."""

import math

import pytest

from depthbench.data.dataset import Dataset
from depthbench.train.config import TrainConfig
from tests.small import SHAPE, TRAIN, trial_config


def recipe(**changes: object) -> TrainConfig:
    return TrainConfig.parse({"tokens": 100 * 64, "sequences": 4, "length": 16} | changes)


def test_the_last_batch_is_whole() -> None:
    assert recipe().steps == 100
    assert recipe(tokens=6401).steps == 101
    assert recipe(tokens=1, evaluations=1).steps == 1


def test_warm_up_is_linear_and_reaches_the_peak_on_its_last_step() -> None:
    config = recipe(warmup_fraction=0.1)
    assert config.warmup_steps == 10
    rates = [config.learning_rate(step, 3e-3) for step in range(10)]
    assert rates == pytest.approx([3e-4 * (step + 1) for step in range(10)], rel=1e-12)


def test_cosine_falls_from_the_peak_to_a_tenth_on_the_last_step() -> None:
    config = recipe(warmup_fraction=0.1, final_fraction=0.1)
    assert config.learning_rate(10, 1.0) == pytest.approx(1.0, rel=1e-12)
    assert config.learning_rate(99, 1.0) == pytest.approx(0.1, rel=1e-12)
    for step in range(10, 100):
        angle = math.pi * (step - 10) / 89
        expected = 0.1 + 0.9 * (math.cos(angle) + 1) / 2
        assert config.learning_rate(step, 1.0) == pytest.approx(expected, rel=1e-12)


def test_the_middle_of_the_cosine_is_the_mean_of_both_ends() -> None:
    config = recipe(tokens=101 * 64, warmup_fraction=0.0, final_fraction=0.2)
    assert config.warmup_steps == 0
    assert config.learning_rate(50, 1.0) == pytest.approx(0.6, rel=1e-12)


@pytest.mark.parametrize(("fraction", "warmup"), [(0.07, 7), (0.071, 8), (0.29, 29), (1.0, 100)])
def test_warm_up_steps_are_rounded_up_but_not_for_rounding_errors(
    fraction: float, warmup: int
) -> None:
    assert recipe(warmup_fraction=fraction).warmup_steps == warmup


def test_a_single_step_and_all_warm_up_divide_by_nothing() -> None:
    one = recipe(tokens=1, evaluations=1)
    assert one.learning_rate(0, 0.5) == 0.5
    assert recipe(warmup_fraction=1.0).learning_rate(99, 0.5) == 0.5


def test_evaluations_are_evenly_spread_and_end_with_the_last_step() -> None:
    assert sorted(recipe(evaluations=4).evaluation_steps()) == [25, 50, 75, 100]
    for evaluations in range(1, 41):
        steps = recipe(tokens=40 * 64, evaluations=evaluations).evaluation_steps()
        assert len(steps) == evaluations
        assert max(steps) == 40
        assert min(steps) >= 1


def test_the_id_of_a_trial_changes_with_everything_that_changes_its_result(
    dataset: Dataset,
) -> None:
    plain = trial_config(dataset)
    assert plain.id == trial_config(dataset).id
    others = [
        trial_config(dataset, **change)
        for change in (
            {"seed": 1},
            {"learning_rate": 2e-2},
            {"design": {"name": "hc", "mix": False}},
            {"design": "hc"},
            {"shape": SHAPE.model_copy(update={"ffn": 32})},
            {"tokens": TRAIN["tokens"] * 2},
            {"weight_decay": 0.0},
            {"dtype": "bfloat16"},
        )
    ]
    others.append(plain.model_copy(update={"data_hash": "other"}))
    assert len({one.id for one in [plain, *others]}) == len(others) + 1
