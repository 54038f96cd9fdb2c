"""Mix-LN: post-norm in the first blocks, pre-norm in the others."""

import math
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar, final

from pydantic import Field
from torch import Tensor

from depthbench.designs.base import Card, Connection, DesignConfig, Fact, Site, TensorDesign
from depthbench.designs.measure import farthest, noise, started
from depthbench.designs.postnorm import PostNormConnection
from depthbench.designs.prenorm import PreNormConnection


class MixLNConfig(DesignConfig):
    """``share``: the part of the blocks that is post-norm, rounded down."""

    name: str = "mix_ln"
    share: float = Field(default=0.25, ge=0, le=1)


@final
class MixLN(TensorDesign):
    """Mix-LN (arXiv 2412.13795): the first ``⌊share · L⌋`` blocks ``h ← N(h + F(h))``.

    The others ``h ← h + F(N(h))``. With fewer than ``1 / share`` blocks it is `prenorm`.
    """

    Config = MixLNConfig
    card: ClassVar[Card] = Card(
        family="norm placement",
        sources="state",
        weights="fixed",
        own="0",
        equation="block < ⌊share·L⌋: x = h; h ← N(h + y). Others: x = N(h); h ← h + y",
        paper="arXiv 2412.13795",
    )

    @property
    def post_norm_blocks(self) -> int:
        """``⌊share · L⌋`` of the decimal number that was given: 0.29 of 100 blocks are 29."""
        return math.floor(Fraction(str(self.config.share)) * self.shape.layers)

    def connection(self, site: Site) -> Connection[Tensor]:
        kind = PostNormConnection if site.block < self.post_norm_blocks else PreNormConnection
        return kind(self.shape, self.backbone)

    def facts(self) -> list[Fact]:
        """A post-norm block writes the same for a state and a branch ten times as large."""
        layers, width = self.shape.layers, self.shape.width
        h, y = (noise(1, 1, width, seed=s, scale=1e3) for s in (0, 1))
        normed: list[int] = []
        for number in range(2 * layers):
            site = started(self.connection(Site(number, layers)))
            route = site.read(h)[1]
            one, ten = (site.write(k * h, k * y, route, None) for k in (1, 10))
            if farthest(one, ten) < 1e-6:
                normed.append(number)
        sites = 2 * int(Decimal(str(self.config.share)) * layers)
        return [
            Fact("post-norm sites", float(len(normed)), float(sites)),
            Fact("sum of their numbers", float(sum(normed)), sites * (sites - 1) / 2),
        ]
