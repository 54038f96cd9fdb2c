"""Differences between paired trials: interval, sign test and sign flips, without assumptions hidden
in a library: pairs are few, so everything here is exact."""

import itertools
import math
import statistics
from collections.abc import Sequence

from pydantic import Field

from depthbench.config import Frozen

MOST_FLIPPED = 16
"""Pairs whose signs are all flipped: 65 536 combinations."""


class Interval(Frozen):
    """Mean of paired differences, with Student's interval for it.

    ``mean ± t · s / sqrt(n)`` with ``n - 1`` degrees of freedom, ``s`` the sample standard
    deviation of the differences. It covers the true mean in ``confidence`` of repetitions if the
    differences are normal.
    """

    mean: float
    low: float | None
    """None with a single pair: one difference has no spread."""
    high: float | None
    pairs: int
    confidence: float = Field(gt=0, lt=1)

    @property
    def excludes_zero(self) -> bool:
        """Whether all of it lies on one side of 0."""
        return self.low is not None and self.high is not None and self.low * self.high > 0


class Exact(Frozen):
    """Two tests that hold for any distribution of the differences, both two-sided."""

    below: int
    """Pairs with a difference under 0."""
    above: int
    sign_p: float
    """Of the sign test: equal differences left out, each sign as likely as the other."""
    flip_p: float | None
    """Share of all flips of signs with a mean as far from 0; None for more pairs than
    `MOST_FLIPPED`."""
    least_p: float
    """The least either could be with so many pairs: ``2 / 2^n``."""


def interval(differences: Sequence[float], confidence: float) -> Interval:
    """Of at least one difference. Raises `ValueError` without any."""
    mean, count = statistics.fmean(differences), len(differences)
    if count == 1:
        return Interval(mean=mean, low=None, high=None, pairs=1, confidence=confidence)
    error = statistics.stdev(differences) / math.sqrt(count)
    reach = t_quantile(confidence, count - 1) * error
    return Interval(
        mean=mean, low=mean - reach, high=mean + reach, pairs=count, confidence=confidence
    )


def exact(differences: Sequence[float]) -> Exact:
    """Both tests of at least one difference."""
    below, above = sum(d < 0 for d in differences), sum(d > 0 for d in differences)
    unequal = below + above
    tail = sum(math.comb(unequal, k) for k in range(min(below, above) + 1)) / 2**unequal
    return Exact(
        below=below,
        above=above,
        sign_p=min(1.0, 2 * tail),
        flip_p=_flips(differences) if len(differences) <= MOST_FLIPPED else None,
        least_p=2 / 2 ** len(differences),
    )


def _flips(differences: Sequence[float]) -> float:
    sizes = [abs(d) for d in differences]
    found = abs(math.fsum(differences))
    # sums of the same numbers in another order differ in the last digits
    reached = found - 1e-12 * math.fsum(sizes)
    signs = itertools.product((1, -1), repeat=len(sizes))
    sums = [
        abs(math.fsum(s * d for s, d in zip(each, sizes, strict=True))) >= reached for each in signs
    ]
    return sum(sums) / len(sums)


def t_within(t: float, freedom: int) -> float:
    """``P(|T| ≤ t)`` of Student's distribution, by its finite series.

    Abramowitz & Stegun, Handbook of Mathematical Functions, 26.7.3 (odd) and 26.7.4 (even
    degrees of freedom).
    """
    angle = math.atan2(t, math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = (cosine if odd else 1.0), 0.0
    for power in range(1 + odd, freedom, 2):
        total += term
        term *= cosine**2 * power / (power + 1)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def t_quantile(confidence: float, freedom: int) -> float:
    """The ``t`` with ``P(|T| ≤ t) = confidence``; 4.303 for 0.95 and 2 degrees of freedom."""
    low, high = 0.0, 1.0
    while t_within(high, freedom) < confidence:
        low, high = high, 2 * high
    # halving a bracket of doubles ends after some fifty steps, when its middle is an end
    while low < (middle := (low + high) / 2) < high:
        if t_within(middle, freedom) < confidence:
            low = middle
        else:
            high = middle
    return high
