"""Candidates from the rows of a stored study, and the laws through them."""

import statistics
from pathlib import Path

import pytest

from depthbench.cost.candidates import Candidate, Conditions, candidates_of
from depthbench.cost.devices import find_device
from depthbench.cost.flops import count_flops
from depthbench.cost.scaling import fit_designs
from depthbench.errors import DepthbenchError
from depthbench.nn.count import count_parameters
from depthbench.nn.model import ModelConfig
from depthbench.study.store import Row, Store
from depthbench.study.verdict import judge, on_curves
from tests.cost.planted import EXPONENT, FLOOR, SIZES, WORSE, planted_loss, write_planted
from tests.report.synthetic import rich_rows
from tests.small import TRAIN

WHERE = Conditions(device=find_device("h100"), context=1024, batch=3)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    return Store(write_planted(tmp_path_factory.mktemp("planted"))).rows()


@pytest.fixture(scope="module")
def found(rows: list[Row]) -> tuple[Candidate, ...]:
    return candidates_of([rows], WHERE)[0]


def test_thirty_trials_are_ten_candidates(rows: list[Row], found: tuple[Candidate, ...]) -> None:
    assert len(rows) == 30
    assert [one.name for one in found] == [
        f"{label} L{layers} d{width}"
        for label in WORSE
        for layers, width in sorted(SIZES, key=lambda size: (size[0], -size[1]))
    ]


def test_losses_are_means_over_seeds(found: tuple[Candidate, ...]) -> None:
    for one in found:
        losses = [planted_loss(one.label, one.parameters, seed) for seed in range(3)]
        assert one.bits_per_byte == pytest.approx(statistics.fmean(losses), rel=1e-12)
        assert one.standard_deviation == pytest.approx(0.004, rel=1e-9)
        assert (one.finished, one.trials, one.training_seconds) == (3, 3, 1.0)


def test_costs_are_those_of_the_model(found: tuple[Candidate, ...]) -> None:
    for one in found:
        model = ModelConfig.parse({"shape": one.shape, "design": one.label})
        assert one.parameters == count_parameters(model).total
        step = count_flops(model, TRAIN["length"]).training_step
        assert one.training_flops == step * (TRAIN["tokens"] // TRAIN["length"])
        # keys and values, 2 bytes each, of 2 KV heads that are a quarter of the width wide
        assert one.kv_bytes == 2 * one.shape.layers * 2 * (one.shape.width // 4) * 1024 * 3 * 2


def test_the_law_that_was_planted_comes_back(found: tuple[Candidate, ...]) -> None:
    laws, refused = fit_designs(found)
    assert refused == ()
    assert [law.label for law in laws] == list(WORSE)
    for law in laws:
        # the seeds' offsets sum to zero at every size, so the means lie on the law
        assert law.floor == pytest.approx(FLOOR + WORSE[law.label], abs=1e-4)
        assert law.exponent == pytest.approx(EXPONENT, abs=1e-4)
        assert law.observations == 15


def test_a_trial_that_is_lost_is_counted_and_a_shape_without_any_is_named(rows: list[Row]) -> None:
    lost = {"status": "diverged", "loss": None}
    first = rows[0].shape
    changed = [
        row.model_copy(update=lost)
        if row.label == "hc" and (row.shape == first or row.seed == 1)
        else row
        for row in rows
    ]
    found, left_out = candidates_of([changed], WHERE)
    assert left_out == (f"hc L{first.layers} d{first.width}",)
    hc = [one for one in found if one.label == "hc"]
    assert [(one.finished, one.trials) for one in hc] == [(2, 3)] * 4
    # seeds 0 and 2 lie 0.004 on either side
    assert hc[0].standard_deviation == pytest.approx(0.008 / 2**0.5)


def test_curves_are_those_of_the_verdict() -> None:
    rows = rich_rows()
    curves = on_curves(rows)
    for design in judge(rows).designs:
        for point in design.curve:
            losses = [
                row.loss.bits_per_byte
                for row in curves[design.label]
                if row.shape.layers == point.layers and row.loss
            ]
            assert statistics.fmean(losses) == pytest.approx(point.bits_per_byte)


def test_different_data_are_no_candidates_of_one_choice(rows: list[Row]) -> None:
    other = [row.model_copy(update={"data_hash": "feedbeef0000"}) for row in rows]
    with pytest.raises(DepthbenchError, match="different data"):
        candidates_of([rows, other], WHERE)


def test_nothing_finished_is_said(rows: list[Row]) -> None:
    lost = [row.model_copy(update={"status": "failed", "loss": None}) for row in rows]
    with pytest.raises(DepthbenchError, match="no trial has finished"):
        candidates_of([lost], WHERE)


def test_two_studies_with_the_same_shapes_keep_their_names(rows: list[Row], tmp_path: Path) -> None:
    other = [row.model_copy(update={"study": "other"}) for row in rows]
    found, _ = candidates_of([rows, other], WHERE)
    assert len({one.name for one in found}) == 20
    assert found[0].name.startswith("planted: prenorm L1 d16")
