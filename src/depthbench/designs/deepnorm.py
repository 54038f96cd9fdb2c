"""DeepNorm: post-norm with an up-weighted skip and a down-scaled start."""

from typing import ClassVar, Literal, final

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
from depthbench.nn.branch import Role
from depthbench.nn.norm import LayerNorm, RMSNorm
from depthbench.shapes import Shape


class DeepNormConfig(DesignConfig):
    """``norm``: the published runs used `layernorm` (mean removed)."""

    name: str = "deepnorm"
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"


@final
class DeepNormConnection(TensorConnection):
    """``x = h``, ``h ← N(α h + y)``."""

    def __init__(self, config: DeepNormConfig, alpha: float, shape: Shape, eps: float) -> None:
        super().__init__()
        self.alpha = alpha
        kind = {"rmsnorm": RMSNorm, "layernorm": LayerNorm}[config.norm]
        self.norm = kind(shape.width, eps)

    def read(self, state: Float[Tensor, "b t d"]) -> tuple[Float[Tensor, "b t d"], Route]:
        return state, Route()

    def write(
        self,
        state: Float[Tensor, "b t d"],
        y: Float[Tensor, "b t d"],
        route: Route,
        entry: Entry | None,
    ) -> Float[Tensor, "b t d"]:
        return self.norm(self.alpha * state + y)


@final
class DeepNorm(TensorDesign):
    """DeepNorm for decoders (arXiv 2203.00555).

    ``h ← N(α h + F(h))`` with ``α = (2L)^(1/4)``; V, O and all feed-forward matrices start at
    std × ``β = (8L)^(-1/4)``.
    """

    Config = DeepNormConfig
    card: ClassVar[Card] = Card(
        family="residual scale",
        sources="state",
        weights="fixed",
        own="0",
        equation="x = h; h ← N(α h + y), α = (2L)^(1/4)",
        paper="arXiv 2203.00555",
    )

    def check(self) -> None:
        if self.backbone.depth_scaled_init:
            raise DepthbenchError(
                "backbone.depth_scaled_init = true fights the own start of design 'deepnorm'. "
                "Set depth_scaled_init = false, or choose another design"
            )

    def branch_scale(self, role: Role) -> float:
        return 1.0 if role == "qk" else (8 * self.shape.layers) ** -0.25

    def connection(self, site: Site) -> DeepNormConnection:
        alpha = (2 * self.shape.layers) ** 0.25
        return DeepNormConnection(self.config, alpha, self.shape, self.backbone.norm_eps)

    def facts(self) -> list[Fact]:
        layers = self.shape.layers
        site = started(self.connection(Site(1, layers)))
        h, y = (noise(1, 1, self.shape.width, seed=s, scale=1e3) for s in (0, 1))
        if self.config.norm == "layernorm":
            h, y = (z - z.mean() for z in (h, y))
        written = site.write(h, y, site.read(h)[1], None)
        skip, branch = coefficients(written, h, y)
        start = self.branch_scale("o") / self.branch_scale("qk")
        return [
            Fact("skip over branch in the written state", skip / branch, (2 * layers) ** 0.25),
            Fact("RMS of the written state", rms(written), 1.0),
            Fact("start of outputs over start of queries", start, (8 * layers) ** -0.25),
        ]
