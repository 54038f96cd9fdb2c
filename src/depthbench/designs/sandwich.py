"""Sandwich norm (Peri-LN): a norm before and after every branch."""

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
from depthbench.designs.measure import coefficients, noise, rms, started
from depthbench.nn.branch import Backbone
from depthbench.nn.norm import RMSNorm
from depthbench.shapes import Shape


class SandwichConfig(DesignConfig):
    """Without the norm in front of the branches it is the residual of OLMo 2 (arXiv 2501.00656)."""

    later: ClassVar[frozenset[str]] = frozenset({"before"})
    name: str = "sandwich"
    before: bool = True
    """A norm in front of every branch: else ``x = h``."""


@final
class SandwichConnection(TensorConnection):
    """``x = N_in(h)``, or ``x = h`` without ``before``; ``h ← h + N_out(y)``."""

    def __init__(self, config: SandwichConfig, shape: Shape, backbone: Backbone) -> None:
        super().__init__()
        self.norm_in = RMSNorm(shape.width, backbone.norm_eps) if config.before else nn.Identity()
        self.norm_out = RMSNorm(shape.width, backbone.norm_eps)

    def read(self, state: Float[Tensor, "b t d"]) -> tuple[Float[Tensor, "b t d"], Route]:
        return self.norm_in(state), Route()

    def write(
        self,
        state: Float[Tensor, "b t d"],
        y: Float[Tensor, "b t d"],
        route: Route,
        entry: Entry | None,
    ) -> Float[Tensor, "b t d"]:
        return state + self.norm_out(y)


@final
class Sandwich(TensorDesign):
    """Sandwich or Peri-LN residual (arXiv 2502.02732): ``h ← h + N_out(F(N_in(h)))``."""

    Config = SandwichConfig
    card: ClassVar[Card] = Card(
        family="norm placement",
        sources="state",
        weights="fixed",
        own="2 d L·before",
        equation="x = N_in(h); h ← h + N_out(y)",
        paper="arXiv 2502.02732",
    )

    def connection(self, site: Site) -> SandwichConnection:
        return SandwichConnection(self.config, self.shape, self.backbone)

    def facts(self) -> list[Fact]:
        site = started(self.connection(Site(1, self.shape.layers)))
        h, y = (noise(1, 1, self.shape.width, seed=s, scale=1e3) for s in (0, 1))
        x, route = site.read(h)
        written = site.write(h, y, route, None)
        return [
            Fact("skip in the written state", coefficients(written, h, y)[0], 1.0),
            Fact("RMS of what is added", rms(written - h), 1.0),
            Fact("RMS of the branch's input", rms(x), 1.0 if self.config.before else rms(h)),
        ]
