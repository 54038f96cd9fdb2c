"""Entropy of tokens under their own unigram distribution."""

import numpy as np
from numpy.typing import NDArray


def unigram_nats(counts: NDArray[np.int64]) -> float:
    """``-Σ p ln p`` of the distribution with these counts, in nats per token."""
    seen = counts[counts > 0].astype(np.float64)
    total = seen.sum()
    if not total:
        raise ValueError("no tokens were counted, so there is no entropy")
    return float(np.log(total) - (seen * np.log(seen)).sum() / total)
