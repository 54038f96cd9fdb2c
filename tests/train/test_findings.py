"""Every rule on made-up records: where it speaks, with the numbers, and where it is silent."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from depthbench.errors import DepthbenchError
from depthbench.train.config import TrainConfig
from depthbench.train.health.depth_rules import effective, spoken
from depthbench.train.health.findings import FILE, read_report, report_of
from depthbench.train.health.history import Finding, History, Kind
from depthbench.train.health.loss_rules import loss_slope
from depthbench.train.health.spikes import Spike

HEALTHY: dict[str, Any] = {
    "gradient_norm": [0.4, 0.3, 0.2],
    "gradient_bottom_over_top": 2.0,
    "update_over_weight": [1e-3, 2e-3, 1e-3],
    "second_moment": [2e-8, 1e-8, 1e-8],
    "output_norm": [1.0] * 6,
    "output_variance": [0.1] * 6,
    "state_rms": [0.02, 0.1, 0.5, 1.0],
    "state_variance": [0.0004, 0.01, 0.25, 1.0],
    "neighbour_cosine": [0.5, 0.8, 0.9],
    "shallow_deep_cosine": 0.5,
}


def history(
    losses: Iterable[float | None] = (),
    measures: Iterable[dict[str, Any]] = (),
    *,
    every: int = 10,
    diverged: str | None = None,
    steps: int = 2000,
    **health: Any,
) -> History:
    """Losses recorded at step 1 and then each ``every``; measurements, as changes, at 20, 40, …"""
    train = TrainConfig.parse(
        {"tokens": steps * 64, "sequences": 4, "length": 16, "health": health}
    )
    found = History(train)
    for place, loss in enumerate(losses):
        found.add({"step": max(1, place * every), "train_loss": loss})
    for place, changes in enumerate(measures, start=1):
        found.measures.append((20 * place, HEALTHY | changes))
    if diverged is not None:
        found.diverged = (found.step, diverged)
    return found


def findings(found: History) -> dict[Kind, Finding]:
    report = report_of(found)
    assert len({finding.kind for finding in report.findings}) == len(report.findings)
    return {finding.kind: finding for finding in report.findings}


def falling(steps: int, every: int = 10) -> list[float]:
    """``6 - log2(step) / 4``: from 6, a quarter of a nat for each doubling."""
    return [6 - math.log2(max(1, step)) / 4 for step in range(0, steps + 1, every)]


def by_depth(kind: Kind, *measures: dict[str, Any], **health: Any) -> Finding | None:
    return findings(history(measures=measures, **health)).get(kind)


def test_a_healthy_trial_has_no_findings() -> None:
    report = report_of(history(falling(600), [{}] * 30))
    assert report.findings == ()
    assert report.step == 600


def test_the_slope_is_the_fitted_line_over_the_first_steps() -> None:
    """Losses after step 200 play no part; by hand for three points."""
    straight = [6 - 0.005 * max(1, step) for step in range(0, 201, 10)]
    slope = loss_slope(history([*straight, *[9.0] * 5]))
    assert slope is not None
    assert slope.nats_per_100_steps == pytest.approx(-0.5)
    assert (slope.last, slope.points) == (200, 21)
    bent = history([6.0, None, 5.0, 5.0, 4.5])
    slope = loss_slope(bent)
    # steps 1, 20, 30, 40 about 22.75: Σ(x - 22.75)(y - 5.125) / Σ(x - 22.75)²
    assert slope is not None
    across = -21.75 * 0.875 - 2.75 * -0.125 + 7.25 * -0.125 + 17.25 * -0.625
    along = 21.75**2 + 2.75**2 + 7.25**2 + 17.25**2
    assert slope.nats_per_100_steps == pytest.approx(100 * across / along)
    assert loss_slope(history(falling(20))) is None


def test_a_loss_that_does_not_fall() -> None:
    flat = [6 - 0.0004 * max(1, step) for step in range(0, 201, 10)]
    found = findings(history(flat))["no_learning"]
    assert found.numbers["nats_per_100_steps"] == pytest.approx(-0.04)
    assert (found.severity, found.step) == ("warning", 200)
    assert "-0.040 nats per token in 100 steps" in found.words
    assert "no_learning" not in findings(history([6 - 0.0006 * s for s in range(0, 201, 10)]))
    # not before the first steps are over, unless the whole run is shorter
    assert "no_learning" not in findings(history(flat[:20]))
    assert "no_learning" in findings(history(flat[:20], steps=190))


def test_stable_for_long_and_then_not_finite() -> None:
    found = findings(
        history([*falling(1990), None], diverged="the loss is not finite at step 1999")
    )["late_divergence"]
    assert found.words.startswith("stable for 1990 steps, gone at 2000: the loss is not finite")
    assert (found.step, found.severity) == (2000, "problem")
    assert found.numbers == {
        "stable_steps": 1990,
        "least_loss": pytest.approx(6 - math.log2(1990) / 4),
    }


def test_stable_for_long_and_then_above_the_start() -> None:
    """Down to 3.9 at 300, then up: 4.4 is a tenth above the least, 6.5 above the start."""
    losses = [*falling(300), 4.4, 5.0, *[6.5] * 6]
    found = findings(history(losses, diverged="above"))["late_divergence"]
    assert (found.numbers["stable_steps"], found.step) == (300, 330)
    assert found.words.startswith("stable for 300 steps, gone at 330: since then the loss is above")
    # live, before the trial ends: three records above the start say so
    assert findings(history(losses[:-3])).keys() == {"late_divergence"}
    assert "late_divergence" not in findings(history(losses[:-4]))


def test_an_early_divergence_is_not_late() -> None:
    found = findings(history([6.0, 5.0, 7.0, 8.0], diverged="above"))
    assert found.keys() == {"divergence"}
    assert found["divergence"].numbers["stable_steps"] == 10
    assert found["divergence"].words.startswith("gone at 20")
    [first] = findings(history([None], diverged="the loss is not finite at step 0")).values()
    assert (first.kind, first.numbers) == ("divergence", {"stable_steps": 0})
    # a rise during warm-up, here 200 steps, is none
    assert findings(history([6.0, 6.1, 6.2, 6.3, 6.4])) == {}


def test_a_loss_that_rises_and_stays() -> None:
    """From 6.0 down to 2.0 and up to 3.0: a quarter of what was learned."""
    losses = [6.0, 5.0, 4.0, 3.0, *[2.0] * 6, *[3.0] * 6]
    found = findings(history(losses, steps=150))["loss_lost"]
    assert found.numbers == {"least_loss": 2.0, "loss": 3.0, "start_loss": 6.0}
    assert found.words.endswith("has not come back: 25% of what was learned")
    assert "loss_lost" not in findings(history([*losses[:10], *[2.7] * 6], steps=150))
    assert "loss_lost" not in findings(history([*losses, *[2.1] * 6], steps=210))


def spike(**changes: Any) -> dict[str, Any]:
    facts = {"signal": "loss", "step": 100, "value": 6.0, "usual": 3.0, "z": 9.0}
    return Spike.parse(facts | changes).resolved()


def test_spikes_are_told_once_a_signal_with_the_largest() -> None:
    found = history(falling(600))
    found.add({"step": 610, "train_loss": 3.0, "spikes": [spike(), spike(z=12.0, value=8.0)]})
    found.add({"step": 620, "train_loss": 3.0, "spikes": [spike(z=12.0, value=8.0, until=108)]})
    found.add({"step": 630, "train_loss": 3.0, "spikes": [spike(step=200, z=8.0)]})
    updates = [spike(signal="update", block=block, z=7.0 + block) for block in (0, 1)]
    found.add({"step": 640, "train_loss": 3.0, "spikes": updates})
    kinds = findings(found)
    assert kinds.keys() == {"loss_spike", "update_spike"}
    loss, update = kinds["loss_spike"], kinds["update_spike"]
    assert loss.numbers == {"events": 2, "z": 12.0, "value": 8.0, "usual": 3.0, "largest_at": 100}
    assert (loss.step, loss.until, loss.severity) == (100, None, "warning")
    assert loss.words == (
        "2 spikes of the loss: 8 against 3 (nats per token), robust z 12.0, from step 100, "
        "over after 8 steps"
    )
    assert (update.where, update.places, update.severity) == ("block", (0, 1), "note")
    assert update.numbers["events"] == 1
    assert "in block 1, robust z 8.0" in update.words


LOW: dict[str, Any] = {"second_moment": [1e-13, 1e-8, 2e-8]}


def test_second_moments_near_zero_in_low_layers() -> None:
    """1e-13 against 2e-8 at the top."""
    found = by_depth("second_moment_low", {}, LOW, LOW, LOW)
    assert found is not None
    assert (found.where, found.places) == ("block", (0,))
    assert (found.step, found.until) == (40, None)
    assert found.numbers == {"share_of_largest": pytest.approx(5e-6), "measurements": 3}
    assert found.words == (
        "second moments of block 0 are down to 5e-06 of the largest block's: almost no gradient "
        "arrives there from step 40 on"
    )
    assert by_depth("second_moment_low", LOW, LOW) is None
    assert by_depth("second_moment_low", LOW, LOW, {}, LOW) is None
    near = {"second_moment": [3e-13, 1e-8, 2e-8]}
    assert by_depth("second_moment_low", near, near, near) is None
    most = {"second_moment": [1e-20, 1e-18, 1e-14, 2e-8]}
    found = by_depth("second_moment_low", most, most, most)
    assert found is not None
    assert found.places == (0, 1, 2)
    # nothing has moved yet
    none = {"second_moment": [None] * 3}
    assert by_depth("second_moment_low", none, none, none) is None


def test_a_state_that_ended_says_when() -> None:
    found = by_depth("second_moment_low", LOW, LOW, LOW, LOW, {}, {}, LOW)
    assert found is not None
    assert (found.step, found.until, found.numbers["measurements"]) == (20, 100, 4)
    assert found.words.endswith("(steps 20 to 100)")


@pytest.mark.parametrize(("ratio", "speaks"), [(250.0, True), (0.004, True), (90.0, False)])
def test_gradients_of_bottom_and_top_far_apart(ratio: float, speaks: bool) -> None:
    measured = {"gradient_bottom_over_top": ratio}
    found = by_depth("gradient_ratio", measured, measured, measured)
    assert (found is not None) == speaks
    if found:
        assert found.numbers["worst"] == ratio
        assert f"{ratio:.3g} times the top one's" in found.words


def test_the_farthest_ratio_is_told_also_below_one() -> None:
    ratios = [{"gradient_bottom_over_top": ratio} for ratio in (200.0, 0.001, 300.0)]
    found = by_depth("gradient_ratio", *ratios)
    assert found is not None
    assert found.numbers["worst"] == 0.001


def test_updates_that_stand_still_or_leap() -> None:
    measured = {"update_over_weight": [1e-3, 2e-6, 0.3]}
    found = findings(history(measures=[measured, measured, measured]))
    assert (found["update_small"].places, found["update_large"].places) == ((1,), (2,))
    assert found["update_small"].numbers["update_over_weight"] == 2e-6
    assert found["update_large"].numbers["update_over_weight"] == 0.3
    usual = {"update_over_weight": [2e-5, 1e-3, 0.09]}
    assert findings(history(measures=[usual] * 3)) == {}


def test_shallow_and_deep_states_become_alike() -> None:
    """Medians of the first and of the last three."""
    cosines = [0.7, 0.75, 0.2, 0.8, 0.9, 0.95, 0.91]
    found = by_depth("similarity_rising", *({"shallow_deep_cosine": c} for c in cosines))
    assert found is not None
    assert found.numbers == {"first": 0.7, "last": 0.91}
    assert found.step == 100
    for other in ([0.85, 0.86, 0.87, 0.9, 0.91, 0.92], [0.1] * 3 + [0.7] * 3, [0.1, 0.9] * 2):
        assert by_depth("similarity_rising", *({"shallow_deep_cosine": c} for c in other)) is None
    assert by_depth("similarity_rising", *[{"shallow_deep_cosine": None}] * 6) is None


@pytest.mark.parametrize(("last", "speaks"), [(30.0, True), (1e-5, True), (19.0, False)])
def test_states_that_grow_or_shrink_over_depth(last: float, speaks: bool) -> None:
    """Against the embedding's 0.02."""
    measured = {"state_rms": [0.02, 0.1, 0.5, last]}
    found = by_depth("state_growth", measured, measured, measured)
    assert (found is not None) == speaks
    if found:
        assert found.numbers["growth"] == pytest.approx(last / 0.02)


def test_mixing_matrices_that_are_not_doubly_stochastic() -> None:
    measured = {"mixing_row_error": [0.2, 1e-4, 0.01], "mixing_column_error": [1e-7, 0.06, 0.01]}
    found = by_depth("mixing_error", measured, measured, measured)
    assert found is not None
    assert (found.where, found.places) == ("site", (0, 1))
    assert found.numbers["worst"] == 0.2
    assert "at sites 0 and 1 add up to 1 only within 0.2" in found.words
    assert by_depth("mixing_error", measured, measured, measured, mixing_error=0.3) is None


def test_states_that_leave_float32() -> None:
    measured = {"low_precision_drift": [0.001, 0.02, 0.15, 0.3]}
    found = by_depth("low_precision_drift", measured, measured, measured)
    assert found is not None
    assert (found.where, found.places) == ("state", (2, 3))
    assert found.numbers["worst"] == 0.3
    low = {"low_precision_drift": [0.001, 0.02, 0.05, 0.09]}
    assert by_depth("low_precision_drift", low, low, low) is None


def test_experts_that_nobody_or_everybody_chooses() -> None:
    """Of 4: shares 0.97 and 0.01 are 1.16 used ones; 0.02 is 0.08 of an even share."""
    even, dead = [0.25] * 4, [0.3, 0.34, 0.34, 0.02]
    measured = {"expert_share": [even, [0.97, 0.01, 0.01, 0.01], dead]}
    found = findings(history(measures=[measured, measured, measured]))
    assert found["expert_dead"].places == (1, 2)
    assert found["expert_dead"].numbers["worst"] == pytest.approx(0.04)
    collapse = found["expert_collapse"]
    used = math.exp(-(0.97 * math.log(0.97) + 0.03 * math.log(0.01)))
    assert collapse.places == (1,)
    assert collapse.numbers["worst"] == pytest.approx(used / 4)
    assert effective(even) == pytest.approx(4)
    assert effective([1.0, 0.0]) == pytest.approx(1)
    fair = {"expert_share": [[0.4, 0.3, 0.2, 0.1]]}
    assert findings(history(measures=[fair] * 3)) == {}


def test_what_is_not_finite_is_a_problem_at_once() -> None:
    measured = {"state_rms": [0.02, 0.1, None, None], "state_growth": None}
    found = findings(history(measures=[{}, measured]))
    assert found.keys() == {"not_finite"}
    assert found["not_finite"].places == (2, 3)
    assert found["not_finite"].severity == "problem"


def test_the_most_serious_comes_first() -> None:
    found = history([*falling(300), None], [LOW] * 3, diverged="the loss is not finite at step 309")
    found.add({"step": 311, "train_loss": None, "spikes": [spike(signal="gradient")]})
    kinds = [finding.kind for finding in report_of(found).findings]
    assert kinds == ["late_divergence", "second_moment_low", "gradient_spike"]


def test_places_in_words() -> None:
    assert spoken("block", [3]) == "block 3"
    assert spoken("block", [0, 1]) == "blocks 0 and 1"
    assert spoken("site", [0, 1, 2, 5]) == "sites 0 to 2 and 5"
    assert spoken("state", [1, 3, 4, 5, 9]) == "states 1, 3 to 5 and 9"
    assert spoken("expert", [0, 2, 3, 5, 6]) == "experts 0, 2, 3, 5 and 6"


def test_the_file_comes_back_as_it_was_written(tmp_path: Path) -> None:
    assert read_report(tmp_path) is None
    report = report_of(history([*falling(300), None], [LOW] * 3, diverged="not finite"))
    report.write(tmp_path)
    assert read_report(tmp_path) == report
    (tmp_path / FILE).write_text('{"format": 2, "step": 1}')
    with pytest.raises(DepthbenchError, match=r"health.json"):
        read_report(tmp_path)
    (tmp_path / FILE).write_text('{"format": 1, "st')
    with pytest.raises(DepthbenchError, match=r"health.json cannot be read"):
        read_report(tmp_path)
