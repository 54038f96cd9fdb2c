"""Intervals over documents: what another sample of texts could have given."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from depthbench.probes.result import Number, value

DRAWS = 1000
SHARE = 0.95


def resampled(rows: int, seed: int = 0, draws: int = DRAWS) -> NDArray[np.float64]:
    """``(draws, rows)``: how often each row is in each sample with replacement."""
    generator = np.random.Generator(np.random.Philox(key=seed))
    return generator.multinomial(rows, np.full(rows, 1 / rows), size=draws).astype(np.float64)


def interval(
    measure: Callable[[NDArray[np.float64]], float], rows: int, seed: int = 0
) -> tuple[float, float] | None:
    """95 % percentile interval of ``measure`` of row weights; None under five rows.

    A few texts say nothing of others: an interval would only look like one. None also where
    nothing is measured.
    """
    if rows < 5:
        return None
    values = np.array([measure(weights) for weights in resampled(rows, seed)])
    if np.isnan(values).all():
        return None
    low, high = np.nanquantile(values, [(1 - SHARE) / 2, (1 + SHARE) / 2])
    return float(low), float(high)


def estimated(
    measure: Callable[[NDArray[np.float64]], float],
    found: float,
    rows: int,
    seed: int,
    *,
    name: str,
    title: str,
    unit: str,
) -> Number:
    """``found`` with the interval of ``measure``."""
    low, high = interval(measure, rows, seed) or (None, None)
    return Number(name=name, title=title, unit=unit, value=value(found), low=low, high=high)
