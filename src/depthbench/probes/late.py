"""Pairs of late blocks: the published measure of depth that is used."""

import numpy as np
from numpy.typing import NDArray

LATE_FROM = 0.25
"""Late blocks are those of the last three quarters."""


def late_pairs(layers: int) -> list[tuple[int, int]]:
    """Pairs ``i < j`` of blocks, both in the last three quarters."""
    first = int(np.ceil(LATE_FROM * layers))
    return [(i, j) for i in range(first, layers) for j in range(i + 1, layers)]


def late_share(scores: NDArray[np.float64], threshold: float) -> float:
    """Share of the late pairs whose score is above ``threshold``; NaN without such pairs."""
    pairs = late_pairs(len(scores))
    if not pairs:
        return float("nan")
    return float(np.mean([scores[i, j] > threshold for i, j in pairs]))
