"""A planted law comes back, its interval covers, and nothing is said far outside."""

from collections.abc import Sequence

import numpy as np
import pytest

from depthbench.cost.scaling import Law, ScalingConfig, best_by_size, fit_law
from depthbench.errors import DepthbenchError
from tests.cost.made import made

SIZES = (1_000_000, 2_000_000, 4_000_000, 8_000_000, 16_000_000)
FLOOR, FACTOR, EXPONENT = 0.9, 40.0, 0.28


def law_at(size: float) -> float:
    return FLOOR + FACTOR * size**-EXPONENT


def observed(noise: Sequence[float] = (0.0,)) -> list[tuple[int, float]]:
    return [(size, law_at(size) + off) for size in SIZES for off in noise]


def test_the_coefficients_of_a_planted_law() -> None:
    law = fit_law("hc", observed())
    assert law.floor == pytest.approx(FLOOR, abs=1e-6)
    assert law.factor == pytest.approx(FACTOR, rel=1e-5)
    assert law.exponent == pytest.approx(EXPONENT, rel=1e-6)
    assert law.deviation == pytest.approx(0, abs=1e-9)
    said = law.predict(64_000_000)
    assert said.bits_per_byte == pytest.approx(law_at(64_000_000), abs=1e-6)
    assert said.high - said.low == pytest.approx(0, abs=1e-6)


def test_the_deviation_is_that_of_the_residuals() -> None:
    law = fit_law("hc", observed((-0.01, 0.01)))
    # ten residuals of 0.01 around a law that is met exactly, three coefficients
    assert law.deviation == pytest.approx(0.01 * (10 / 7) ** 0.5, rel=1e-4)
    assert (law.observations, law.sizes) == (10, SIZES)


def test_least_squares_agree_with_a_general_optimiser() -> None:
    curve_fit = pytest.importorskip("scipy.optimize").curve_fit
    rng = np.random.default_rng(4)
    data = [(size, loss + rng.normal(0, 0.004)) for size, loss in observed((0.0, 0.0, 0.0))]
    law = fit_law("hc", data)
    x = np.array([size for size, _ in data]) / law.centre
    y = np.array([loss for _, loss in data])
    found, covariance = curve_fit(lambda x, e, b, a: e + b * x**-a, x, y, p0=(1, 0.5, 0.3))
    assert law.floor == pytest.approx(found[0], rel=1e-4)
    assert law.exponent == pytest.approx(found[2], rel=1e-4)
    ours = np.array(law.covariance) * law.deviation**2
    np.testing.assert_allclose(ours, covariance, rtol=2e-3)


def test_the_interval_covers_new_trials_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    inside = repeats = 0
    for _ in range(150):
        data = [(size, loss + rng.normal(0, 0.005)) for size, loss in observed((0.0, 0.0, 0.0))]
        said = fit_law("hc", data).predict(32_000_000)
        inside += said.low <= law_at(32_000_000) + rng.normal(0, 0.005) <= said.high
        repeats += 1
    # 95 % of 150 are 142.5, and three binomial deviations are 8
    assert 134 <= inside <= 149
    assert repeats == 150


def test_the_interval_widens_away_from_the_sizes() -> None:
    law = fit_law("hc", observed((-0.01, 0.01)))
    near, far = (law.predict(size) for size in (4_000_000, 64_000_000))
    assert far.high - far.low > 1.5 * (near.high - near.low)


@pytest.fixture
def law() -> Law:
    return fit_law("hc", observed((-0.01, 0.01)))


def test_far_beyond_the_largest_size_nothing_is_said(law: Law) -> None:
    assert law.predict(64_000_000).parameters == 64_000_000
    with pytest.raises(DepthbenchError) as error:
        law.predict(80_000_000)
    text = str(error.value)
    assert "predict = 80,000,000" in text
    assert "a factor 5 from the largest size of hc (16,000,000): at most 4 is allowed" in text
    assert law.predict(80_000_000, ScalingConfig(extrapolation=5)).parameters == 80_000_000


def test_far_under_the_smallest_size_nothing_is_said(law: Law) -> None:
    with pytest.raises(DepthbenchError, match=r"a factor 5 from the smallest size of hc"):
        law.predict(200_000)


def test_too_few_sizes_are_refused() -> None:
    with pytest.raises(DepthbenchError, match="hc: a scaling fit needs 4 sizes, the study has 3"):
        fit_law("hc", observed((0.0, 0.1))[:6])


@pytest.mark.parametrize("slope", [1.0, 0.0])
def test_losses_that_do_not_fall_are_refused(slope: float) -> None:
    with pytest.raises(DepthbenchError, match="do not follow"):
        fit_law("hc", [(size, 2.0 + slope * i) for i, size in enumerate(SIZES)])


def test_shapes_of_one_budget_are_one_size_and_the_best_counts() -> None:
    shapes = [
        made("a", loss=2.2, params=1_000_000),
        made("b", loss=2.1, params=1_040_000),
        made("c", loss=2.3, params=1_060_000),
        made("d", loss=1.9, params=2_000_000),
    ]
    chosen = best_by_size(shapes, ScalingConfig())
    assert [one.name for one in chosen] == ["b", "c", "d"]
    wider = best_by_size(shapes, ScalingConfig(same_size=0.06))
    assert [one.name for one in wider] == ["b", "d"]
