"""KEEL: post-norm with a strongly up-weighted skip and an inner pre-norm."""

from typing import ClassVar, final

from jaxtyping import Float
from torch import Tensor, nn

from depthbench.designs.base import (
    Card,
    Connection,
    DesignConfig,
    Entry,
    Route,
    Site,
    TensorDesign,
)
from depthbench.nn.branch import Backbone
from depthbench.nn.norm import RMSNorm
from depthbench.shapes import Shape


class KeelConfig(DesignConfig):
    """No options."""

    name: str = "keel"


@final
class KeelConnection(Connection[Tensor]):
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
