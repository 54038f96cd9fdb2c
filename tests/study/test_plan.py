"""The plan as a pure function of config and rows."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from depthbench.errors import DepthbenchError
from depthbench.nn.count import count_parameters
from depthbench.nn.model import ModelConfig
from depthbench.study.plan import Planned, ResolvedStudy, belonging, plan, resolve
from tests.small import row_for, study_config

TEXT = Path("words.txt")


def resolved(**changes: Any) -> ResolvedStudy:
    return resolve(study_config(TEXT, **changes), "hash", 257)


def summary(trials: list[Planned]) -> Counter[tuple[str, str, int, float, int]]:
    return Counter(
        (
            one.phase,
            one.label,
            one.config.model.shape.layers,
            one.config.learning_rate,
            one.config.seed,
        )
        for one in trials
    )


def test_without_rows_only_searches_are_planned_at_the_middle_shape() -> None:
    expected = [("search", d, 1, r, 0) for d in ("prenorm", "hc") for r in (1e-2, 2e-2)]
    assert summary(plan(resolved(), [])) == Counter(expected)


def test_a_finished_search_decides_the_rate_and_its_trial_is_reused() -> None:
    study = resolved(seeds=[3, 4])
    searches = plan(study, [])
    assert {one.config.seed for one in searches} == {3}
    bits = {("prenorm", 1e-2): 2.0, ("prenorm", 2e-2): 3.0, ("hc", 1e-2): 2.5, ("hc", 2e-2): 2.4}
    rows = [row_for(one, bits[one.label, one.config.learning_rate]) for one in searches]
    found = plan(study, rows)
    shared = [
        ("shared", label, layers, rate, seed)
        for label, rate in (("prenorm", 1e-2), ("hc", 2e-2))
        for layers, seed in ((1, 4), (2, 3), (2, 4))
    ]
    assert summary(found) == summary(searches) + Counter(shared)
    assert len({one.id for one in found}) == len(found) == study.trials
    assert plan(study, rows) == found
    assert plan(study, [*rows[::-1]]) == found


def test_one_design_goes_on_while_another_still_searches() -> None:
    study = resolved()
    searches = plan(study, [])
    rows = [row_for(one, 2.0) for one in searches if one.label == "hc"]
    assert {one.label for one in plan(study, rows) if one.phase == "shared"} == {"hc"}
    # one of two rates is no search
    assert {one.phase for one in plan(study, rows[:1])} == {"search"}


def test_of_equal_rates_the_lower_is_taken() -> None:
    study = resolved(designs=["prenorm"])
    rows = [row_for(one, 2.0) for one in plan(study, [])]
    assert {one.config.learning_rate for one in plan(study, rows) if one.phase == "shared"} == {
        1e-2
    }


def test_a_diverged_rate_loses_and_a_design_without_any_rate_gets_no_shared_trials() -> None:
    study = resolved()
    searches = plan(study, [])
    lost = [row_for(one, None, "diverged") for one in searches if one.label == "hc"]
    half = [
        row_for(one, 9.0) if one.config.learning_rate == 2e-2 else row_for(one, None, "diverged")
        for one in searches
        if one.label == "prenorm"
    ]
    found = plan(study, lost + half)
    shared = [one for one in found if one.phase == "shared"]
    assert [(one.label, one.config.learning_rate) for one in shared] == [("prenorm", 2e-2)]
    failed = [row_for(one, None, "failed") for one in searches]
    assert summary(plan(study, failed)) == summary(searches)


def test_a_single_rate_is_no_search() -> None:
    study = resolved(search={"learning_rates": [5e-3]}, seeds=[0, 1])
    expected = [
        ("shared", design, layers, 5e-3, seed)
        for design in ("prenorm", "hc")
        for layers in (1, 2)
        for seed in (0, 1)
    ]
    assert summary(plan(study, [])) == Counter(expected)
    assert study.trials == 8


def test_a_rate_that_was_shared_before_counts_in_a_later_search() -> None:
    single = resolved(designs=["prenorm"], search={"learning_rates": [1e-2]})
    [first] = [one for one in plan(single, []) if one.config.model.shape.layers == 1]
    study = resolved(designs=["prenorm"])
    [old, new] = plan(study, [])
    assert old.id == first.id
    rows = [row_for(first, 2.0), row_for(new, 3.0)]
    assert rows[0].phase == "shared"
    found = plan(study, rows)
    assert [one.config.learning_rate for one in found if one.phase == "shared"] == [1e-2]
    assert [(row.phase, row.id) for row in belonging(study, rows)] == [
        ("search", old.id),
        ("search", new.id),
    ]
    assert [row.id for row in belonging(single, rows)] == [old.id]
    assert belonging(single, rows)[0].phase == "shared"


@pytest.mark.parametrize(
    ("depths", "middle"), [([1], 1), ([2, 1], 1), ([1, 2, 3], 2), ([4, 1, 3, 2], 2)]
)
def test_the_middle_shape_is_the_shallower_of_two(depths: list[int], middle: int) -> None:
    sizes = [{"layers": n, "width": 16, "heads": 2, "ffn": 24} for n in depths]
    study = resolved(shapes={"sizes": sizes})
    assert study.search_shape("hc").layers == middle
    assert [shape.layers for shape in study.shapes["hc"]] == sorted(depths)


def test_the_search_may_be_at_a_depth_of_the_study_and_at_no_other() -> None:
    rates = [1e-2, 2e-2]
    study = resolved(search={"learning_rates": rates, "layers": 2})
    assert {one.config.model.shape.layers for one in plan(study, [])} == {2}
    with pytest.raises(DepthbenchError) as caught:
        resolved(search={"learning_rates": rates, "layers": 3})
    assert str(caught.value) == "search.layers = 3 is no depth of the study: 1, 2. Name one of them"


def test_own_parameters_are_counted_in_the_budget_or_come_on_top() -> None:
    shapes = {"params": "40k", "depths": [8], "tolerance": 0.02}
    counted = resolved(shapes=shapes, designs=["prenorm", "hc"])
    extra = resolved(shapes=shapes | {"own_parameters": "extra"}, designs=["prenorm", "hc"])
    totals = {}
    for name, study in (("counted", counted), ("extra", extra)):
        for design in study.study.designs:
            [shape] = study.shapes[design.name]
            parameters = count_parameters(ModelConfig(shape=shape, design=design))
            totals[name, design.name] = parameters
    assert totals["counted", "hc"].own > 0.05 * 40_000
    assert totals["counted", "hc"].total == pytest.approx(40_000, rel=0.02)
    assert totals["counted", "prenorm"].total == pytest.approx(40_000, rel=0.02)
    assert extra.shapes["hc"] == extra.shapes["prenorm"]
    plain = totals["extra", "hc"].total - totals["extra", "hc"].own
    assert plain == totals["extra", "prenorm"].total
    assert totals["extra", "hc"].total > 1.02 * 40_000


def test_a_family_takes_the_vocabulary_of_the_data() -> None:
    study = resolved(shapes={"family": "200m"}, designs=["prenorm"])
    assert [(s.layers, s.width, s.vocab) for s in study.shapes["prenorm"]] == [
        (12, 896, 257),
        (18, 768, 257),
        (24, 672, 257),
    ]


def test_work_orders_by_cost() -> None:
    study = resolved(search={"learning_rates": [1e-2]})
    works = {one.config.model.shape.layers: one.work for one in plan(study, [])}
    assert works == {1: 512 * 1 * 32, 2: 512 * 2 * 24}
