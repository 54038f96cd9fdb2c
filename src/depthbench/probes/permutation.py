"""Blocks in each other's place: does their order matter?"""

from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from depthbench.probes.bootstrap import estimated
from depthbench.probes.lab import Lab
from depthbench.probes.late import late_share
from depthbench.probes.measures import Loss
from depthbench.probes.probe import Found, Probe
from depthbench.probes.program import swap
from depthbench.probes.result import curve, matrix


@final
class Permutation(Probe):
    """The published threshold is an option."""

    name: ClassVar[str] = "permutation"
    title: ClassVar[str] = "Loss when two blocks are swapped"
    definition: ClassVar[str] = "P(i, j) = |loss(swap i, j) - loss| / loss, all pairs of blocks"
    blind: ClassVar[str] = (
        "A swap breaks statistics that are bound to a place (sizes of states, norm gains), so a "
        "block can suffer from its place rather than its order. Low values do not say that "
        "either block is needed."
    )
    reading: ClassVar[str] = (
        "Near 0: the two blocks could stand in either order, so they do not form steps. Large "
        "values far from the diagonal: order over long distances matters."
    )
    source: ClassVar[str] = "arXiv 2505.13898"
    threshold: float = Field(default=0.15, gt=0)
    """Change of the loss above which a late pair counts."""

    def look(self, lab: Lab) -> Found:
        layers = lab.layers
        pairs = [(i, j) for i in range(layers) for j in range(i + 1, layers)]
        loss = Loss(lab, [swap(layers, *pair) for pair in pairs])

        def share(weights: NDArray[np.float64] | None = None) -> float:
            return late_share(self.scores(loss, pairs, layers, weights), self.threshold)

        found = self.scores(loss, pairs, layers)
        words = "blocks {row} and {column} swapped: relative change of the loss"
        neighbours = np.diagonal(found, 1)
        return Found(
            [
                matrix("change", self.title, found, words=words, unit="of the loss"),
                curve(
                    "neighbours",
                    "Loss when neighbours are swapped",
                    neighbours,
                    unit="of the loss",
                    words="block {} swapped with the next: relative change of the loss",
                ),
                estimated(
                    share,
                    share(),
                    len(loss.tokens),
                    self.seed,
                    name="late_share",
                    title=f"Late pairs whose swap changes the loss by over {self.threshold:.0%}",
                    unit="share",
                ),
            ]
        )

    @staticmethod
    def scores(
        loss: Loss,
        pairs: list[tuple[int, int]],
        layers: int,
        weights: NDArray[np.float64] | None = None,
    ) -> NDArray[np.float64]:
        """``P``; NaN on the diagonal."""
        found = np.full((layers, layers), np.nan)
        relative = np.abs(loss.changes(weights)) / loss.average(weights)
        for (i, j), value in zip(pairs, relative, strict=True):
            found[i, j] = found[j, i] = value
        return found
