"""DenseFormer: after each block, a learned average over the outputs of all blocks so far."""

from typing import ClassVar, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from depthbench.designs.base import Card, DesignConfig, Fact, Site
from depthbench.designs.dense import DenseDesign, DenseState, EndConnection
from depthbench.designs.measure import coefficients, farthest, filled, noise, started
from depthbench.nn.branch import Backbone
from depthbench.nn.parameters import Start, values
from depthbench.shapes import Shape


class DenseFormerConfig(DesignConfig):
    """``dilation = k`` and ``period = p`` give the paper's ``k × p`` DenseFormer."""

    name: str = "denseformer"
    dilation: int = Field(default=1, ge=1)
    """Average over every k-th output back."""
    period: int = Field(default=1, ge=1)
    """Average after every p-th block."""


@final
class DepthAverage(EndConnection):
    """``X_i = h + y``; ``h ← Σ_j α_ij X_j`` over ``j = i, i - k, i - 2k, … ≥ 0``.

    Only where ``p`` divides ``i``, the block's number from 1; else ``h ← X_i``.
    """

    def __init__(
        self, config: DenseFormerConfig, site: Site, shape: Shape, backbone: Backbone
    ) -> None:
        super().__init__(site, shape, backbone)
        self.config = config
        if self.sources:
            self.alpha = nn.Parameter(torch.empty(len(self.sources)))

    @property
    def sources(self) -> range:
        k, i = self.config.dilation, self.number
        return range(i % k, i + 1, k) if i % self.config.period == 0 else range(0)

    def starts(self) -> dict[str, Start]:
        if not self.sources:
            return {}
        return {"alpha": values([float(j == self.number) for j in self.sources])}

    def weights(self, output: Float[Tensor, "b t d"]) -> Float[Tensor, "l"]:
        return self.alpha


@final
class DenseFormer(DenseDesign):
    """DenseFormer (arXiv 2402.02622): ``Y_i = Σ_{j ≤ i} α_ij X_j``, ``X_i = block_i(Y_{i-1})``.

    ``X_0 = Y_0`` is the embedding and ``block_i(Y)`` a pre-norm block with its own skip inside, so
    the average comes on top of the residual. ``α_ii = 1`` and the others 0 at the start: `prenorm`.
    """

    Config = DenseFormerConfig
    start_distance: ClassVar[float | None] = 0.0
    card: ClassVar[Card] = Card(
        family="depth average",
        sources="state: weighted sum of the outputs of all blocks",
        weights="learned",
        own="L (L + 3) / 2",
        equation="x = N(h); h + y inside a block; h ← Σ_j α_ij X_j after it",
        paper="arXiv 2402.02622",
    )

    def end(self, site: Site) -> DepthAverage:
        return DepthAverage(self.config, site, self.shape, self.backbone)

    def facts(self) -> list[Fact]:
        layers, width = self.shape.layers, self.shape.width
        dilation, period = self.config.dilation, self.config.period
        last = layers - layers % period
        h, y = noise(1, 3 * layers, width), noise(1, 3 * layers, width, seed=1)
        if last == 0:
            plain, alone = filled(self.connection(Site(1, layers))), DenseState(h, {})
            written = plain.write(alone, y, plain.read(alone)[1], None).stream
            return [Fact("block without an average, from h + y", farthest(written, h + y), 0.0)]
        site = Site(2 * last - 1, layers)
        fresh, other = started(self.end(site)), filled(self.end(site))
        outputs = {j: noise(1, 3 * layers, width, seed=2 + j) for j in range(last)}
        state = DenseState(h, outputs)
        first = fresh.write(state, y, fresh.read(state)[1], None).stream
        summed = other.write(state, y, other.read(state)[1], None).stream
        terms = [*outputs.values(), h + y]
        shares = coefficients(summed, *terms)
        met = [j for j, share in enumerate(shares) if abs(share) > 1e-9]
        return [
            Fact("outputs in the last average", float(len(met)), float(last // dilation + 1)),
            Fact("oldest output in the last average", float(met[0]), float(last % dilation)),
            Fact("start's last average from pre-norm", farthest(first, h + y), 0.0),
        ]
