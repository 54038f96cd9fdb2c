"""Pre-norm: the baseline."""

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
from depthbench.nn.branch import Backbone
from depthbench.nn.norm import RMSNorm
from depthbench.shapes import Shape


class PreNormConfig(DesignConfig):
    """No options."""

    name: str = "prenorm"


@final
class PreNormConnection(TensorConnection):
    """``x = N(h)``, ``h ← h + y``."""

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
        return state + y


@final
class PreNorm(TensorDesign):
    """Pre-norm residual (arXiv 2002.04745): ``h ← h + F(N(h))``."""

    Config = PreNormConfig
    start_distance: ClassVar[float | None] = 0.0
    sums_branches: ClassVar[bool] = True
    card: ClassVar[Card] = Card(
        family="baseline",
        sources="state",
        weights="fixed",
        own="0",
        equation="x = N(h); h ← h + y",
        paper="arXiv 2002.04745",
    )

    def connection(self, site: Site) -> PreNormConnection:
        return PreNormConnection(self.shape, self.backbone)

    def facts(self) -> list[Fact]:
        site = started(self.connection(Site(1, self.shape.layers)))
        h, y = (noise(1, 3, self.shape.width, seed=s, scale=1e3) for s in (0, 1))
        x, route = site.read(h)
        skip, branch = coefficients(site.write(h, y, route, None), h, y)
        return [
            Fact("skip in the written state", skip, 1.0),
            Fact("branch in the written state", branch, 1.0),
            Fact("RMS of the branch's input", rms(x), 1.0),
        ]
