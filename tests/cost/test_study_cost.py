"""What a study will cost, against the sum over its trials and by hand."""

import pytest

from depthbench.cost.devices import find_device
from depthbench.cost.study_cost import sentences, study_cost
from depthbench.cost.training import training_cost
from depthbench.study.config import StudyConfig
from depthbench.study.plan import Planned, ResolvedStudy, plan, resolve
from depthbench.study.store import Row
from tests.small import TRAIN, row_for

H100 = find_device("h100")


def resolved_study(**changes: object) -> ResolvedStudy:
    """Two designs × two shapes × two seeds, two learning rates: 2 · (2 · 2 + 1) = 10 trials."""
    tables = {
        "name": "small",
        "designs": ["prenorm", "hc"],
        "shapes": {
            "sizes": [
                {"layers": 1, "width": 16, "heads": 2, "ffn": 24},
                {"layers": 2, "width": 24, "heads": 2, "ffn": 32},
            ]
        },
        "search": {"learning_rates": [1e-2, 2e-2]},
        "seeds": [0, 1],
        "train": TRAIN | {"tokens": 500},
    }
    return resolve(StudyConfig.parse(tables | changes), data_hash="d0d0cafe1234", vocab=257)


def all_trials(resolved: ResolvedStudy) -> tuple[list[Planned], list[Row]]:
    """Every trial of the study, once its searches are over; the rows of the searches."""
    searched = [row_for(trial, 2.0) for trial in plan(resolved, [])]
    return plan(resolved, searched), searched


def at_speed(trial: Planned, speed: float) -> Row:
    return row_for(trial, 2.0).model_copy(update={"tokens_per_second": speed})


def test_sums_are_those_over_all_trials() -> None:
    resolved = resolved_study()
    cost = study_cost(resolved, device=H100, price=3.0)
    trials, _ = all_trials(resolved)
    each = [training_cost(trial.config, H100) for trial in trials]
    assert cost.trials == len(trials) == sum(part.trials for part in cost.parts) == 10
    # 500 tokens are eight whole batches of 64
    assert cost.tokens == 10 * 512
    seconds = sum(one.seconds for one in each)
    assert cost.seconds == pytest.approx(seconds)
    assert cost.device_hours == pytest.approx(seconds / 3600)
    assert cost.money == pytest.approx(3.0 * seconds / 3600)
    assert cost.memory_bytes == max(one.memory_bytes for one in each)
    assert cost.finished == 0
    assert cost.money_to_go == pytest.approx(cost.money)


def test_flops_by_hand() -> None:
    cost = study_cost(resolved_study(designs=["prenorm"], seeds=[0]))
    part = cost.parts[0]
    d, f, t, v = 16, 24, 16, 257
    forward = 2 * t * (4 * d * d + 3 * d * f) + 2 * t * t * d + 2 * t * d * v
    assert (part.shape.layers, part.shape.width) == (1, 16)
    assert part.flops == 3 * forward * 8 * 4
    assert cost.flops == sum(one.trials * one.flops for one in cost.parts)


def test_the_search_is_at_its_shape_alone() -> None:
    cost = study_cost(resolved_study(search={"learning_rates": [1e-3, 2e-3, 4e-3], "layers": 2}))
    assert [(part.shape.layers, part.trials) for part in cost.parts] == [(1, 2), (2, 4)] * 2


def test_a_trial_that_does_not_fit_is_said() -> None:
    small = H100.model_copy(update={"memory": 1024})
    cost = study_cost(resolved_study(), device=small)
    assert cost.fits is False
    assert "it does not fit the 1 KiB of h100." in " ".join(sentences(cost))
    assert study_cost(resolved_study(), device=H100).fits is True


def test_a_price_of_ones_own_stands_before_the_devices() -> None:
    priced = H100.model_copy(update={"price_per_hour": 2.0})
    hours = study_cost(resolved_study(), device=priced).device_hours
    assert hours is not None
    assert study_cost(resolved_study(), device=priced).money == pytest.approx(2 * hours)
    assert study_cost(resolved_study(), device=priced, price=5.0).money == pytest.approx(5 * hours)
    free = H100.model_copy(update={"price_per_hour": None})
    assert study_cost(resolved_study(), device=free).money is None


def test_times_of_finished_trials() -> None:
    resolved = resolved_study()
    trials, _ = all_trials(resolved)
    rows = [at_speed(trial, 128.0) for trial in trials]
    cost = study_cost(resolved, rows, price=36.0)
    assert {part.source for part in cost.parts} == {"measured"}
    # 512 tokens at 128 a second
    assert [part.seconds for part in cost.parts] == [4.0] * 4
    assert cost.seconds == 40.0
    assert cost.device_hours == pytest.approx(40 / 3600)
    assert (cost.finished, cost.device_hours_to_go, cost.money_to_go) == (10, 0.0, 0.0)
    assert cost.money == pytest.approx(0.4)
    assert cost.memory_bytes is None


def test_shapes_without_a_trial_are_scaled_by_their_operations() -> None:
    resolved = resolved_study()
    (first, *_), _ = all_trials(resolved)
    cost = study_cost(resolved, [at_speed(first, 128.0)])
    known = next(part for part in cost.parts if part.source == "measured")
    others = [part for part in cost.parts if part is not known]
    assert known.seconds == 4.0
    assert len(others) == 3
    for part in others:
        assert part.source == "scaled"
        assert part.seconds == pytest.approx(4.0 * part.flops / known.flops)
    assert cost.finished == 1
    assert "Times of 3 shapes without a finished trial are scaled" in " ".join(sentences(cost))


def test_a_speed_of_another_training_does_not_count() -> None:
    other = resolved_study(train=TRAIN | {"sequences": 8})
    rows = [at_speed(trial, 128.0) for trial in plan(other, [])]
    cost = study_cost(resolved_study(), rows)
    assert {part.source for part in cost.parts} == {None}
    assert (cost.seconds, cost.device_hours, cost.money) == (None, None, None)
    assert "No time is known" in " ".join(sentences(cost))


def test_failed_trials_are_not_finished() -> None:
    resolved = resolved_study()
    first, second, *_ = plan(resolved, [])
    rows = [row_for(first, None, "failed"), row_for(second, None, "diverged")]
    assert study_cost(resolved, rows).finished == 1


def test_several_devices_share_a_trial() -> None:
    alone = study_cost(resolved_study(), device=H100)
    shared = study_cost(resolved_study(resources={"processes": 4}), device=H100)
    assert alone.seconds is not None
    assert shared.seconds == pytest.approx(alone.seconds / 4)
    assert shared.device_hours == pytest.approx(alone.device_hours)
    assert "4 devices share a trial" in " ".join(sentences(shared))
