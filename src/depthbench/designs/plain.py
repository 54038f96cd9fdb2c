"""Plain: no residual, the negative control."""

from typing import ClassVar, final

from jaxtyping import Float
from torch import Tensor

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
from depthbench.designs.measure import farthest, noise, rms, started
from depthbench.nn.branch import Backbone
from depthbench.nn.norm import RMSNorm
from depthbench.shapes import Shape


class PlainConfig(DesignConfig):
    """No options."""

    name: str = "plain"


@final
class PlainConnection(TensorConnection):
    """``x = N(h)``, ``h ← y``."""

    def __init__(self, shape: Shape, backbone: Backbone) -> None:
        super().__init__()
        self.norm = RMSNorm(shape.width, backbone.norm_eps)

    def read(self, state: Float[Tensor, "b t d"]) -> tuple[Float[Tensor, "b t d"], Route]:
        return self.norm(state), Route()

    def write(
        self,
        state: Float[Tensor, "b t d"],
        y: Float[Tensor, "b t d"],
        route: Route,
        entry: Entry | None,
    ) -> Float[Tensor, "b t d"]:
        return y.to(state.dtype)


@final
class Plain(TensorDesign):
    """A stack without residual connections, as in arXiv 1512.03385: ``h ← F(N(h))``.

    What a benchmark of residual designs must find to be worse with depth. The norms keep it from
    vanishing forwards; attention and feed-forward still stand in turn.
    """

    Config = PlainConfig
    autocast_distance: ClassVar[float] = 0.03
    card: ClassVar[Card] = Card(
        family="negative control",
        sources="state",
        weights="fixed",
        own="0",
        equation="x = N(h); h ← y",
        paper="arXiv 1512.03385",
    )

    def connection(self, site: Site) -> PlainConnection:
        return PlainConnection(self.shape, self.backbone)

    def facts(self) -> list[Fact]:
        site = started(self.connection(Site(1, self.shape.layers)))
        h, y = (noise(1, 3, self.shape.width, seed=s, scale=1e3) for s in (0, 1))
        x, route = site.read(h)
        return [
            Fact("rest of the state", farthest(site.write(h, y, route, None), y), 0.0),
            Fact("RMS of the branch's input", rms(x), 1.0),
        ]
