"""Post-norm: the Transformer as it was first published."""

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
from depthbench.designs.measure import coefficients, farthest, noise, rms, started
from depthbench.nn.branch import Backbone
from depthbench.nn.norm import RMSNorm
from depthbench.shapes import Shape


class PostNormConfig(DesignConfig):
    """No options."""

    name: str = "postnorm"


@final
class PostNormConnection(TensorConnection):
    """``x = h``, ``h ← N(h + y)``."""

    def __init__(self, shape: Shape, backbone: Backbone) -> None:
        super().__init__()
        self.norm = RMSNorm(shape.width, backbone.norm_eps)

    def read(self, state: Float[Tensor, "b t d"]) -> tuple[Float[Tensor, "b t d"], Route]:
        return state, Route()

    def write(
        self,
        state: Float[Tensor, "b t d"],
        y: Float[Tensor, "b t d"],
        route: Route,
        entry: Entry | None,
    ) -> Float[Tensor, "b t d"]:
        return self.norm(state + y)


@final
class PostNorm(TensorDesign):
    """Post-norm residual (arXiv 1706.03762, 2002.04745): ``h ← N(h + F(h))``.

    The last norm is followed by the final norm that every design has.
    """

    Config = PostNormConfig
    card: ClassVar[Card] = Card(
        family="norm placement",
        sources="state",
        weights="fixed",
        own="0",
        equation="x = h; h ← N(h + y)",
        paper="arXiv 1706.03762",
    )

    def connection(self, site: Site) -> PostNormConnection:
        return PostNormConnection(self.shape, self.backbone)

    def facts(self) -> list[Fact]:
        site = started(self.connection(Site(1, self.shape.layers)))
        h, y = (noise(1, 1, self.shape.width, seed=s, scale=1e3) for s in (0, 1))
        x, route = site.read(h)
        written = site.write(h, y, route, None)
        skip, branch = coefficients(written, h, y)
        return [
            Fact("distance of the branch's input to the state", farthest(x, h), 0.0),
            Fact("skip over branch in the written state", skip / branch, 1.0),
            Fact("RMS of the written state", rms(written), 1.0),
        ]
