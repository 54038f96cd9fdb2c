"""Which blocks can go: four ways to choose them."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from depthbench.errors import DepthbenchError, unknown
from depthbench.probes.angular import Angular
from depthbench.probes.causal import Causal
from depthbench.probes.depth import cheapest_out
from depthbench.probes.lab import Lab
from depthbench.probes.permutation import Permutation
from depthbench.probes.result import Matrix


def chosen(lab: Lab, keep: int, by: str) -> list[int]:
    """Blocks that stay, in order.

    ``loss`` leaves out the block that costs least, again and again; ``angular`` the span of blocks
    over which the state turns least (arXiv 2403.17887); ``causal`` the blocks with the least mean
    effect on later ones; ``permutation`` those whose swaps change the loss least. The last block
    has no effect on later ones, so ``causal`` keeps it.

    Raises `DepthbenchError` for an unknown way, and for a number of blocks that is none.
    """
    if by not in WAYS:
        raise unknown("way to choose", by, WAYS)
    if lab.layers == 1:
        raise DepthbenchError("the model has one block: there is none to leave out")
    if not 1 <= keep < lab.layers:
        raise DepthbenchError(
            f"keep = {keep}: the model has {lab.layers} blocks. Keep 1 to {lab.layers - 1}"
        )
    out = set(WAYS[by](lab, lab.layers - keep))
    return [block for block in range(lab.layers) if block not in out]


def _by_loss(lab: Lab, count: int) -> Sequence[int]:
    return cheapest_out(lab, candidates=lab.layers, most=count).order


def _by_angle(lab: Lab, count: int) -> Sequence[int]:
    angles = _values(Angular().look(lab).findings[0])
    first = int(np.argmin(np.diagonal(angles, count)))
    return range(first, first + count)


def _by_effect(lab: Lab, count: int) -> Sequence[int]:
    effects = _values(Causal().look(lab).findings[0])
    return _least([_mean(row) for row in effects], count)


def _by_swaps(lab: Lab, count: int) -> Sequence[int]:
    changes = _values(Permutation().look(lab).findings[0])
    return _least([_mean(row) for row in changes], count)


def _least(scores: Sequence[float], count: int) -> Sequence[int]:
    """Places of the smallest scores; those that are not defined come last."""
    known = np.where(np.isnan(scores), np.inf, scores)
    return [int(one) for one in np.argsort(known, kind="stable")[:count]]


def _mean(scores: NDArray[np.float64]) -> float:
    known = scores[~np.isnan(scores)]
    return float(known.mean()) if len(known) else float("nan")


def _values(finding: object) -> NDArray[np.float64]:
    assert isinstance(finding, Matrix)
    return np.array(finding.values, dtype=np.float64)


WAYS: dict[str, Callable[[Lab, int], Sequence[int]]] = {
    "loss": _by_loss,
    "angular": _by_angle,
    "causal": _by_effect,
    "permutation": _by_swaps,
}
