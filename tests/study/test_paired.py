"""Intervals and tests of paired differences: tables, closed forms, and coverage by simulation."""

import math
import statistics

import numpy as np
import pytest

from depthbench.study.paired import exact, interval, t_quantile, t_within


@pytest.mark.parametrize(
    ("confidence", "freedom", "table"),
    [
        (0.95, 1, 12.706),
        (0.95, 2, 4.303),
        (0.95, 3, 3.182),
        (0.95, 4, 2.776),
        (0.95, 9, 2.262),
        (0.95, 30, 2.042),
        (0.90, 5, 2.015),
        (0.99, 2, 9.925),
        (0.99, 7, 3.499),
        (0.999, 3, 12.924),
    ],
)
def test_quantiles_are_those_of_the_tables(confidence: float, freedom: int, table: float) -> None:
    assert t_quantile(confidence, freedom) == pytest.approx(table, abs=6e-4)


def test_quantiles_in_closed_form_and_in_the_limit() -> None:
    for p in (0.5, 0.9, 0.95, 0.999999):
        # one degree of freedom is Cauchy's distribution, two have an algebraic quantile
        assert t_quantile(p, 1) == pytest.approx(math.tan(math.pi * p / 2), rel=1e-9)
        assert t_quantile(p, 2) == pytest.approx(p * math.sqrt(2 / (1 - p * p)), rel=1e-9)
    normal = statistics.NormalDist().inv_cdf(0.975)
    assert t_quantile(0.95, 100_000) == pytest.approx(normal, abs=3e-5)
    assert t_within(0.0, 5) == 0.0


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 8, 13])
def test_the_series_is_the_integral_of_the_density(freedom: int) -> None:
    t = np.linspace(0, 2.5, 20_001)
    scale = math.gamma((freedom + 1) / 2) / math.gamma(freedom / 2) / math.sqrt(freedom * math.pi)
    density = scale * (1 + t**2 / freedom) ** (-(freedom + 1) / 2)
    area = float(((density[1:] + density[:-1]) / 2 * np.diff(t)).sum())
    assert t_within(2.5, freedom) == pytest.approx(2 * area, abs=1e-8)


def test_an_interval_by_hand() -> None:
    # mean 3, standard deviation 1, standard error 1/sqrt(3)
    found = interval([2.0, 3.0, 4.0], 0.95)
    assert found.mean == 3.0
    assert found.low == pytest.approx(3 - 4.302653 / math.sqrt(3), abs=1e-6)
    assert found.high == pytest.approx(3 + 4.302653 / math.sqrt(3), abs=1e-6)
    assert found.excludes_zero
    assert not interval([-1.0, 3.0, 4.0], 0.95).excludes_zero


def test_one_pair_has_no_interval() -> None:
    found = interval([0.5], 0.95)
    assert (found.mean, found.low, found.high, found.excludes_zero) == (0.5, None, None, False)


@pytest.mark.parametrize("pairs", [2, 3, 5])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_the_interval_covers_as_often_as_it_says(pairs: int, confidence: float) -> None:
    draws = np.random.default_rng(pairs).normal(0.3, 2.0, (4000, pairs))
    found = [interval(list(map(float, row)), confidence) for row in draws]
    covered = sum((one.low or 0.0) <= 0.3 <= (one.high or 0.0) for one in found) / 4000
    deviation = math.sqrt(confidence * (1 - confidence) / 4000)
    assert covered == pytest.approx(confidence, abs=4 * deviation)


def test_sign_and_flips_by_hand() -> None:
    # of the 8 flips of (1, 2, 3) only all-plus and all-minus reach a sum of 6
    one = exact([1.0, 2.0, 3.0])
    assert (one.below, one.above, one.sign_p, one.flip_p, one.least_p) == (0, 3, 0.25, 0.25, 0.25)
    # (-1, 2, 3) sums to 4: ±6 and ±4 reach it, four of eight
    two = exact([-1.0, 2.0, 3.0])
    assert (two.below, two.above, two.sign_p, two.flip_p) == (1, 2, 1.0, 0.5)
    # six of one sign: 2 / 64; one against five: 2 * (1 + 6) / 64
    assert exact([0.1] * 6).sign_p == exact([0.1] * 6).flip_p == 2 / 64
    assert exact([-0.1, *[0.1] * 5]).sign_p == 14 / 64


def test_equal_differences_count_for_neither_sign() -> None:
    found = exact([0.0, 0.0, 0.5])
    assert (found.below, found.above, found.sign_p) == (0, 1, 1.0)
    assert exact([0.0]).sign_p == exact([0.0]).flip_p == 1.0


def test_many_pairs_are_not_flipped() -> None:
    found = exact([0.1] * 17)
    assert found.flip_p is None
    assert found.sign_p == 2 / 2**17


def test_flips_reject_a_true_null_no_more_often_than_they_say() -> None:
    draws = np.random.default_rng(1).normal(0.0, 1.0, (2000, 6))
    p = [exact(list(map(float, row))).flip_p for row in draws]
    # 2 of 64 flips: p = 1/32 is the least that six pairs can give
    rejected = sum(one is not None and one <= 1 / 32 for one in p) / 2000
    assert rejected == pytest.approx(1 / 32, abs=4 * math.sqrt(1 / 32 / 2000))
