"""Block Attention Residuals: depth attention over sums of neighbouring branch outputs."""

import math
from typing import ClassVar, final

from pydantic import Field

from depthbench.designs.attnres import SourceDesign
from depthbench.designs.base import Card, DesignConfig


class BlockAttnResConfig(DesignConfig):
    """``blocks``: runs that the sites are grouped in; the last run may be shorter."""

    name: str = "block_attnres"
    blocks: int = Field(default=8, ge=1)


@final
class BlockAttnRes(SourceDesign):
    """Block Attention Residuals (arXiv 2603.15031).

    Sites are grouped in runs of ``S = ceil(2L / blocks)``; the outputs of a run add up to one
    source. A site weighs the complete sums, the embedding and, if its run has begun, the running
    sum. ``S = 1`` is `attnres`. Where S does not divide 2L, the last run is shorter and there may
    be fewer runs than ``blocks``.
    """

    Config = BlockAttnResConfig
    start_distance: ClassVar[float | None] = 2e-7
    card: ClassVar[Card] = Card(
        family="depth attention",
        sources="sums of runs of branch outputs",
        weights="dynamic",
        own="4 d L",
        equation="x = N(Σ_i a_i v_i) over sums v of S = ceil(2L / blocks) neighbouring outputs",
        paper="arXiv 2603.15031",
    )

    @property
    def run(self) -> int:
        return math.ceil(self.shape.sites / self.config.blocks)
