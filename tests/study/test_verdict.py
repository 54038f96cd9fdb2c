"""The verdict against hand-computed figures (CASES 37 and 41)."""

import math
import random

import pytest

from depthbench.errors import DepthbenchError
from depthbench.study.findings import Verdict
from depthbench.study.store import Row
from depthbench.study.verdict import judge, search_of
from tests.report.synthetic import rich_rows, row


def seeds(label: str, layers: int, losses: list[float]) -> list[Row]:
    return [row(label, layers, loss, seed=seed) for seed, loss in enumerate(losses)]


def search(losses: dict[float, float | None], status: str = "diverged") -> list[Row]:
    return [
        row("hc", 8, loss, rate=rate, phase="search", status="done" if loss else status)  # type: ignore[arg-type]  # a status as text
        for rate, loss in losses.items()
    ]


def test_curve_mean_spread_and_best() -> None:
    finding = judge(seeds("hc", 4, [2.1, 2.2, 2.4]) + seeds("hc", 2, [2.5]))
    shallow, deep = finding.designs[0].curve
    assert deep.layers == 4
    assert deep.aspect_ratio == 68 / 4
    assert deep.bits_per_byte == pytest.approx(2.2333333)
    assert deep.nats_per_token == pytest.approx(2.2333333 * math.log(2))
    assert deep.spread is not None
    assert deep.spread.standard_deviation == pytest.approx(0.1527525)  # n - 1
    assert (deep.spread.least, deep.spread.greatest) == (2.1, 2.4)
    assert shallow.spread is None
    assert finding.designs[0].best_layers == 4


def test_slope_and_its_error_over_seeds() -> None:
    # seed slopes: (2.4, 2.2, 2.0) -> -0.2; (2.5, 2.4, 2.3) -> -0.1
    rows = seeds("hc", 2, [2.4, 2.5]) + seeds("hc", 4, [2.2, 2.4]) + seeds("hc", 8, [2.0, 2.3])
    slope = judge(rows).designs[0].slope
    assert slope is not None
    assert slope.bits_per_byte_per_doubling == pytest.approx(-0.15)
    assert slope.standard_error == pytest.approx(math.sqrt(0.005) / math.sqrt(2))
    assert slope.seeds == 2


@pytest.mark.parametrize("loss", [0.0, 2.5, 1 / 3])
def test_a_curve_without_any_slope(loss: float) -> None:
    slope = judge([row("hc", layers, loss) for layers in (2, 4, 8)]).designs[0].slope
    assert slope is not None
    assert slope.bits_per_byte_per_doubling == 0


def test_one_seed_has_no_spread_and_no_error() -> None:
    finding = judge([row("hc", 2, 2.4), row("hc", 8, 2.5)]).designs[0]
    assert finding.slope is not None
    assert finding.slope.bits_per_byte_per_doubling == pytest.approx(0.05)
    assert finding.slope.standard_error is None
    assert finding.turns_back is not None
    assert finding.turns_back.bits_per_byte == pytest.approx(0.1)
    assert finding.turns_back.pooled_deviation is None


def test_turns_back_pools_the_deviation_of_all_shapes() -> None:
    rows = seeds("hc", 2, [2.3, 2.3]) + seeds("hc", 4, [2.0, 2.2]) + seeds("hc", 8, [2.4, 2.5, 2.6])
    finding = judge(rows).designs[0]
    back = finding.turns_back
    assert back is not None
    assert back.bits_per_byte == pytest.approx(0.4)
    # squares of deviations: 0 + 0.02 + 0.02 over 1 + 1 + 2 degrees of freedom
    assert back.pooled_deviation == pytest.approx(0.1)
    assert back.standard_error == pytest.approx(0.1 * math.sqrt(1 / 2 + 1 / 3))
    assert finding.trend == "turns_back"
    assert "is best at 4 layers (aspect ratio 17;" in finding.sentence
    assert "loses 0.400 bits per byte to it" in finding.sentence


@pytest.mark.parametrize(
    ("shallow", "middle", "deep", "trend"),
    [
        (2.5, 2.4, 2.3, "falls"),
        (2.5, 2.3, 2.305, "levels"),
        (2.3, 2.301, 2.302, "flat"),
        (2.3, 2.2, 2.4, "turns_back"),
    ],
)
def test_trend_is_judged_against_the_spread(
    shallow: float, middle: float, deep: float, trend: str
) -> None:
    rows: list[Row] = []
    for layers, loss in ((2, shallow), (4, middle), (8, deep)):
        rows += seeds("hc", layers, [loss - 0.01, loss, loss + 0.01])
    assert judge(rows).designs[0].trend == trend


def test_learning_rate_is_the_least_mean_over_seeds() -> None:
    rows = [
        row("hc", 8, loss, rate=rate, seed=seed, phase="search")
        for rate, losses in {1e-3: (2.0, 2.6), 2e-3: (2.2, 2.2), 4e-3: (2.4, 2.4)}.items()
        for seed, loss in enumerate(losses)
    ]
    found = search_of(rows)
    assert found.chosen == 2e-3
    assert found.edge_of_grid is None
    assert [candidate.bits_per_byte for candidate in found.grid] == pytest.approx([2.3, 2.2, 2.4])


def test_a_diverged_seed_ranks_its_learning_rate_last() -> None:
    rows = search({1e-3: 2.4, 2e-3: 2.3})
    rows += [
        row("hc", 8, 1.9, rate=4e-3, seed=0, phase="search"),
        row("hc", 8, None, rate=4e-3, seed=1, phase="search", status="diverged"),
    ]
    found = search_of(rows)
    assert found.chosen == 2e-3
    assert found.grid[-1].diverged == 1
    assert found.edge_of_grid is None  # the diverged rate closes the grid


@pytest.mark.parametrize(
    ("losses", "edge"),
    [
        ({1e-3: 2.1, 2e-3: 2.2}, "lowest"),
        ({1e-3: 2.2, 2e-3: 2.1}, "highest"),
        ({1e-3: 2.2, 2e-3: 2.1, 4e-3: None}, None),
        ({2e-3: 2.1}, None),
    ],
)
def test_edge_of_grid(losses: dict[float, float | None], edge: str | None) -> None:
    verdict = judge(search(losses))
    assert verdict.designs[0].search.edge_of_grid == edge
    assert any("Widen the grid" in text for text in verdict.cautions) == (edge is not None)


def test_a_failed_rate_does_not_close_the_grid() -> None:
    assert search_of(search({1e-3: 2.2, 2e-3: 2.1, 4e-3: None}, "failed")).edge_of_grid == "highest"


def three(label: str, mean: float, half: float, layers: int = 8) -> list[Row]:
    """Three seeds whose sample standard deviation is ``half``."""
    return seeds(label, layers, [mean - half, mean, mean + half])


def test_a_winner_needs_three_seeds_of_each() -> None:
    rows = three("hc", 2.1, 0.01) + seeds("prenorm", 8, [2.4, 2.41])
    deepest = judge(rows).comparisons[0]
    assert deepest.winner is None
    assert "too few seeds (n < 3: prenorm n = 2): no winner is claimed" in deepest.sentence
    assert judge([*rows, row("prenorm", 8, 2.42, seed=2)]).comparisons[0].winner == "hc"


@pytest.mark.parametrize(("gap", "winner"), [(0.0163, None), (0.0164, "hc")])
def test_a_winner_leads_by_more_than_two_standard_errors(gap: float, winner: str | None) -> None:
    # 2 sqrt(0.01² / 3 + 0.01² / 3) = 0.01633
    comparison = judge(three("hc", 2.1, 0.01) + three("prenorm", 2.1 + gap, 0.01)).comparisons[0]
    assert comparison.difference == pytest.approx(gap)
    assert comparison.standard_error == pytest.approx(0.0081650, abs=1e-6)
    assert comparison.winner == winner
    assert ("smaller than the spread between seeds, a tie" in comparison.sentence) == (not winner)


def test_comparison_at_the_deepest_and_at_the_best_differ() -> None:
    rows = three("prenorm", 2.0, 0.01, 4) + three("prenorm", 2.4, 0.01, 16)
    rows += three("hc", 2.2, 0.01, 4) + three("hc", 2.1, 0.01, 16)
    deepest, best = judge(rows).comparisons
    assert (deepest.winner, deepest.layers) == ("hc", 16)
    assert (best.winner, best.layers) == ("prenorm", None)
    assert [entry.layers for entry in best.entries] == [4, 16]


def test_diverged_trials_are_counted_and_named() -> None:
    rows = seeds("hc", 4, [2.2, 2.3]) + seeds("hc", 8, [2.2])
    rows.append(row("hc", 8, None, seed=1, status="diverged", reason="not finite"))
    verdict = judge(rows)
    point = verdict.designs[0].curve[-1]
    assert (point.finished, point.diverged, point.trials) == (1, 1, 2)
    assert point.bits_per_byte == 2.2
    assert "of its 4 trials 1 diverged, and the means miss them" in verdict.designs[0].sentence


def test_a_deepest_shape_that_only_diverged_has_no_difference() -> None:
    rows = [row("hc", 4, 2.2), row("hc", 8, 2.1), row("hc", 16, None, status="diverged")]
    rows += [row("prenorm", 16, 2.5)]
    verdict = judge(rows)
    design = verdict.designs[0]
    assert design.turns_back is None
    assert design.trend == "diverged"
    assert design.best_layers == 8
    assert "every trial at its deepest shape (16 layers) diverged" in design.sentence
    assert verdict.comparisons[0].left_out == ("hc",)


def test_everything_diverged_is_a_verdict_not_a_crash() -> None:
    verdict = judge(search({1e-3: None, 2e-3: None}))
    assert verdict.headline == "No trial finished: 2 trials diverged or failed."
    assert verdict.designs[0].search.chosen is None
    assert verdict.designs[0].curve[0].diverged == 2


def test_search_trials_join_the_curve_only_when_trained_as_long() -> None:
    shared = [row("hc", 2, 2.4), row("hc", 16, 2.2)]
    whole = judge([row("hc", 8, 2.3, phase="search"), *shared]).designs[0]
    assert [point.layers for point in whole.curve] == [2, 8, 16]
    short = judge([row("hc", 8, 2.3, phase="search", tokens=500_000), *shared]).designs[0]
    assert [point.layers for point in short.curve] == [2, 16]


def test_a_curve_at_another_rate_than_the_search_prefers_is_said() -> None:
    rows = [*search({0.001: 2.1, 0.002: 2.2}), row("hc", 2, 2.4, rate=0.002)]
    verdict = judge(rows)
    assert verdict.designs[0].search.used == 2e-3
    assert any("the search now prefers 0.001" in text for text in verdict.cautions)


def test_mixed_data_budgets_and_weak_trials_are_said() -> None:
    rows = [row("hc", 2, 4.9), row("hc", 4, 2.2, data_hash="other", tokens=4_000_000)]
    text = " ".join(judge(rows).cautions)
    assert "read different data" in text
    assert "differ in training tokens" in text
    assert f"1 finished trial did not beat the unigram entropy of the text: {rows[0].id}" in text


def test_one_seed_never_makes_a_headline_claim() -> None:
    rows = [row("hc", 2, 2.4), row("hc", 8, 2.2), row("prenorm", 2, 2.3), row("prenorm", 8, 2.5)]
    assert judge(rows).headline == (
        "As far as one seed can show: depth pays for hc; it does not for prenorm. "
        "At 8 layers, no winner is claimed: too few seeds (n < 3)."
    )


def test_order_of_rows_changes_no_number_and_json_round_trips() -> None:
    rows = rich_rows()
    verdict = judge(rows)
    shuffled = rows.copy()
    random.Random(0).shuffle(shuffled)
    numbers = {design.label: design for design in judge(shuffled).designs}
    assert numbers == {design.label: design for design in verdict.designs}
    assert Verdict.parse(verdict.resolved()) == verdict


def test_no_rows_is_one_clear_line() -> None:
    with pytest.raises(DepthbenchError, match="no trial has finished"):
        judge([])


def test_a_deepest_shape_of_which_some_failed_tells_nothing_of_depth() -> None:
    lost = [("diverged", 0), ("failed", 1), ("failed", 2)]
    rows = [*seeds("hc", 4, [2.2, 2.2, 2.2]), *seeds("hc", 8, [2.1, 2.1, 2.1])]
    rows += [row("hc", 16, None, seed=seed, status=status) for status, seed in lost]  # type: ignore[arg-type]  # a status as text
    verdict = judge(rows)
    assert verdict.designs[0].trend == "unknown"
    said = verdict.designs[0].sentence
    assert "no trial at its deepest shape (16 layers) finished: 1 diverged, 2 failed" in said
    assert "does not pay" not in verdict.headline


def test_a_fall_is_held_against_the_error_of_the_two_ends() -> None:
    """With one seed at the shallowest shape: 0.01 · √(1 + 1/3), not 0.01 · √(1/3 + 1/3)."""
    deepest = seeds("hc", 8, [2.09, 2.10, 2.11])
    error = 0.01 * math.sqrt(1 + 1 / 3)
    for fall, trend in ((1.9 * error, "flat"), (2.1 * error, "falls")):
        assert judge([row("hc", 2, 2.10 + fall), *deepest]).designs[0].trend == trend


def test_what_is_still_to_come_is_said_first() -> None:
    rows = seeds("hc", 2, [2.4, 2.4, 2.4]) + seeds("hc", 8, [2.1, 2.1, 2.1])
    whole, part = judge(rows), judge(rows, unfinished=3)
    assert (whole.unfinished, part.unfinished) == (0, 3)
    assert whole.headline.startswith("Depth pays for hc.")
    assert part.headline.startswith("So far, with 6 of 9 trials: depth pays for hc.")
    assert part.cautions[0].startswith("3 trials of the plan have no result yet")
    assert whole.cautions == ()


def test_unlike_machines_are_a_caution() -> None:
    rows = seeds("hc", 2, [2.4, 2.4]) + seeds("hc", 8, [2.1, 2.1])
    gpu = rows[0].machine.model_copy(update={"device": "cuda", "dtype": "bfloat16"})
    [caution] = judge([rows[0].model_copy(update={"machine": gpu}), *rows[1:]]).cautions
    assert caution.startswith("Trials trained in bfloat16 on cuda and float32 on cpu:")
    other = rows[0].machine.model_copy(update={"processor": "another"})
    [caution] = judge([rows[0].model_copy(update={"machine": other}), *rows[1:]]).cautions
    assert caution == "Trials ran on another and test processor: their times are not comparable."
