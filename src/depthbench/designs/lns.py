"""LayerNorm scaling: the deeper the block, the smaller its normed input."""

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
from depthbench.designs.measure import coefficients, noise, rms, started
from depthbench.errors import DepthbenchError
from depthbench.nn.branch import Backbone
from depthbench.nn.norm import RMSNorm
from depthbench.shapes import Shape


class LNSConfig(DesignConfig):
    """No options."""

    name: str = "lns"


@final
class LNSConnection(TensorConnection):
    """``x = N(h) / sqrt(b + 1)``, ``h ← h + y``; both sites of block ``b`` share the factor."""

    def __init__(self, site: Site, shape: Shape, backbone: Backbone) -> None:
        super().__init__()
        self.norm = RMSNorm(shape.width, backbone.norm_eps)
        self.factor = (site.block + 1) ** -0.5

    def read(self, state: Float[Tensor, "b t d"]) -> tuple[Float[Tensor, "b t d"], Route]:
        return self.norm(state) * self.factor, Route()

    def write(
        self,
        state: Float[Tensor, "b t d"],
        y: Float[Tensor, "b t d"],
        route: Route,
        entry: Entry | None,
    ) -> Float[Tensor, "b t d"]:
        return state + y


@final
class LNS(TensorDesign):
    """LayerNorm scaling (arXiv 2502.05795): ``h ← h + F(N(h) / sqrt(b + 1))``."""

    Config = LNSConfig
    card: ClassVar[Card] = Card(
        family="norm placement",
        sources="state",
        weights="fixed",
        own="0",
        equation="x = N(h) / sqrt(b+1); h ← h + y",
        paper="arXiv 2502.05795",
        peak_lr=1e-2,
    )

    def check(self) -> None:
        if self.backbone.depth_scaled_init:
            raise DepthbenchError(
                "backbone.depth_scaled_init = true cancels the depth scaling of design 'lns'. "
                "Set depth_scaled_init = false, or choose another design"
            )

    def connection(self, site: Site) -> LNSConnection:
        return LNSConnection(site, self.shape, self.backbone)

    def facts(self) -> list[Fact]:
        layers = self.shape.layers
        h, y = (noise(1, 3, self.shape.width, seed=s, scale=1e3) for s in (0, 1))
        inputs = []
        for number in (2 * layers - 2, 2 * layers - 1):
            site = started(self.connection(Site(number, layers)))
            x, route = site.read(h)
            inputs.append(rms(x))
            skip, branch = coefficients(site.write(h, y, route, None), h, y)
        return [
            Fact("RMS of the last attention's input", inputs[0], 1 / layers**0.5),
            Fact("RMS of the last feed-forward's input", inputs[1], 1 / layers**0.5),
            Fact("skip over branch in the written state", skip / branch, 1.0),
        ]
