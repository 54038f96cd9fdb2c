"""nGPT: the state stays on a sphere and moves a learned step towards the normed branch."""

from typing import ClassVar, final

import torch
from jaxtyping import Float
from pydantic import Field
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
from depthbench.designs.measure import coefficients, filled, noise, rms, started
from depthbench.nn.branch import Backbone, Context
from depthbench.nn.fast_norm import rms_scale
from depthbench.nn.kernels import holding
from depthbench.nn.parameters import Start, constant
from depthbench.nn.precision import at_least_float32
from depthbench.nn.work import Work
from depthbench.shapes import Shape


class NGPTConfig(DesignConfig):
    """``alpha``: the steps at the start; ``scale``: of the stored parameter, unset 1/sqrt(d).

    A step is stored parameter · ``alpha / scale``, so its learning rate is that of a parameter
    that starts at ``scale``.
    """

    name: str = "ngpt"
    alpha: float = Field(default=0.05, gt=0, lt=1)
    scale: float | None = Field(default=None, gt=0)


@final
class NGPTConnection(TensorConnection):
    """``x = h``, ``h ← Norm(h + α ⊙ (Norm(y) - h))``, ``α = |stored · alpha / scale|``.

    ``Norm(v) = v / sqrt(mean(v²) + eps)`` has no gain.
    """

    def __init__(self, config: NGPTConfig, shape: Shape, backbone: Backbone) -> None:
        super().__init__()
        self.scale = shape.width**-0.5 if config.scale is None else config.scale
        self.alpha = config.alpha
        self.eps = backbone.norm_eps
        self.step = nn.Parameter(torch.empty(shape.width))

    def starts(self) -> dict[str, Start]:
        return {"step": constant(self.scale)}

    def read(self, state: Float[Tensor, "b t d"]) -> tuple[Float[Tensor, "b t d"], Route]:
        return state, Route()

    def write(
        self,
        state: Float[Tensor, "b t d"],
        y: Float[Tensor, "b t d"],
        route: Route,
        entry: Entry | None,
    ) -> Float[Tensor, "b t d"]:
        alpha = (self.step * (self.alpha / self.scale)).abs()
        moved = state + alpha * (on_sphere(y, self.eps) - state)
        return on_sphere(moved, self.eps).to(state.dtype)

    def work(self, length: int) -> Work:
        """Two weighted terms."""
        return Work(sums=4 * length * len(self.step))


def on_sphere(x: Float[Tensor, "b t d"], eps: float) -> Float[Tensor, "b t d"]:
    """``x / sqrt(mean(x²) + eps)``, in float32 or better."""
    x = at_least_float32(x)
    if holding():
        return x * rms_scale(x.detach(), eps)
    return nn.functional.rms_norm(x, x.shape[-1:], None, eps)


@final
class NGPT(TensorDesign):
    """The residual of nGPT (arXiv 2410.01131): ``h ← Norm(h + α ⊙ (Norm(F(h)) - h))``.

    ``α`` is a vector at each site, 0.05 at the start, made of a stored one as in the paper, and
    its magnitude is used, as in the published code. The embedding is normed at the opening.

    Ours: only the residual is taken over. The backbone's matrices, queries and keys stay as they
    are, without unit norms and without nGPT's other scaling factors; and the sphere has radius
    sqrt(d), not 1, so a branch reads entries of unit mean square, as behind a norm.
    """

    Config = NGPTConfig
    card: ClassVar[Card] = Card(
        family="norm placement",
        sources="state",
        weights="learned",
        own="0",
        equation="x = h; h ← Norm(h + α ⊙ (Norm(y) - h)), α = 0.05 at the start",
        paper="arXiv 2410.01131",
    )

    def connection(self, site: Site) -> NGPTConnection:
        return NGPTConnection(self.config, self.shape, self.backbone)

    def open(self, embedding: Float[Tensor, "b t d"], context: Context) -> Float[Tensor, "b t d"]:
        return on_sphere(embedding, self.backbone.norm_eps).to(embedding.dtype)

    def facts(self) -> list[Fact]:
        place, width = Site(1, self.shape.layers), self.shape.width
        fresh, other = started(self.connection(place)), filled(self.connection(place))
        h, y = noise(1, 1, width), noise(1, 1, width, seed=1, scale=1e3)
        h = h / rms(h)
        route = fresh.read(h)[1]
        skip, branch = coefficients(fresh.write(h, y, route, None), h, y / rms(y))
        alpha, eps = self.config.alpha, self.backbone.norm_eps
        nowhere = torch.empty(0, 1, device="cpu")
        opened = self.open(1e3 * y, Context(nowhere, nowhere))
        return [
            Fact("branch over skip at the start", branch / skip, alpha / (1 - alpha), 1e-6),
            Fact("RMS of the opened state", rms(opened), 1.0),
            Fact("RMS of the written state", rms(other.write(h, y, route, None)), 1.0, 10 * eps),
        ]
