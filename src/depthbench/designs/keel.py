"""KEEL: post-norm with a strongly up-weighted skip and an inner pre-norm."""

from typing import ClassVar, final

from jaxtyping import Float
from torch import Tensor, nn

from depthbench.designs.base import (
    Card,
    DesignConfig,
    Entry,
    Fact,
    Route,
    Site,
    TensorConnection,
    TensorDesign,
)
from depthbench.designs.measure import coefficients, farthest, noise, started
from depthbench.nn.branch import Backbone
from depthbench.nn.norm import RMSNorm
from depthbench.shapes import Shape


class KeelConfig(DesignConfig):
    """No options."""

    name: str = "keel"


@final
class KeelConnection(TensorConnection):
    """``x = N_pre(h)``, ``h ← N_post(α h + y)``; site 0 writes ``h + y``, site 1 has α = 1."""

    def __init__(self, site: Site, shape: Shape, backbone: Backbone) -> None:
        super().__init__()
        self.alpha = 1.0 if site.block == 0 else 2.0 * shape.layers
        self.norm_pre = RMSNorm(shape.width, backbone.norm_eps)
        self.norm_post = (
            nn.Identity() if site.number == 0 else RMSNorm(shape.width, backbone.norm_eps)
        )

    def read(self, state: Float[Tensor, "b t d"]) -> tuple[Float[Tensor, "b t d"], Route]:
        return self.norm_pre(state), Route()

    def write(
        self,
        state: Float[Tensor, "b t d"],
        y: Float[Tensor, "b t d"],
        route: Route,
        entry: Entry | None,
    ) -> Float[Tensor, "b t d"]:
        return self.norm_post(self.alpha * state + y)


@final
class Keel(TensorDesign):
    """KEEL (arXiv 2601.19895): ``h ← N_post(α h + F(N_pre(h)))`` with ``α = 2L``.

    In block 0 attention writes ``h + y`` without a post-norm and the feed-forward uses α = 1.
    """

    Config = KeelConfig
    card: ClassVar[Card] = Card(
        family="residual scale",
        sources="state",
        weights="fixed",
        own="2 d L - d",
        equation="x = N_pre(h); h ← N_post(α h + y), α = 2L",
        paper="arXiv 2601.19895",
    )

    def connection(self, site: Site) -> KeelConnection:
        return KeelConnection(site, self.shape, self.backbone)

    def facts(self) -> list[Fact]:
        layers = self.shape.layers
        h, y = (noise(1, 1, self.shape.width, seed=s, scale=1e3) for s in (0, 1))
        written = []
        for number in (0, 1, 2 * layers - 1):
            site = started(self.connection(Site(number, layers)))
            written.append(site.write(h, y, site.read(h)[1], None))
        second, last = (coefficients(total, h, y) for total in written[1:])
        factor = 2.0 * layers if layers > 1 else 1.0
        return [
            Fact("first attention: distance from h + y", farthest(written[0], h + y), 0.0),
            Fact("first feed-forward: skip over branch", second[0] / second[1], 1.0),
            Fact("last site: skip over branch", last[0] / last[1], factor),
        ]
