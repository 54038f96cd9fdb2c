"""LayerScale: a learned factor for each channel of every branch, small at the start."""

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
from depthbench.nn.branch import Backbone
from depthbench.nn.norm import RMSNorm
from depthbench.nn.parameters import Start, constant
from depthbench.nn.work import Work
from depthbench.shapes import Shape


class LayerScaleConfig(DesignConfig):
    """``start`` of the factors; unset, 0.1 up to 18 blocks and 1e-4 in deeper models."""

    name: str = "layerscale"
    start: float | None = Field(default=None, ge=0)


@final
class LayerScaleConnection(TensorConnection):
    """``x = N(h)``, ``h ← h + λ ⊙ y``."""

    def __init__(self, start: float, shape: Shape, backbone: Backbone) -> None:
        super().__init__()
        self.start = start
        self.norm = RMSNorm(shape.width, backbone.norm_eps)
        self.factor = nn.Parameter(torch.empty(shape.width))

    def starts(self) -> dict[str, Start]:
        return {"factor": constant(self.start)}

    def read(self, state: Float[Tensor, "b t d"]) -> tuple[Float[Tensor, "b t d"], Route]:
        return self.norm(state), Route()

    def write(
        self,
        state: Float[Tensor, "b t d"],
        y: Float[Tensor, "b t d"],
        route: Route,
        entry: Entry | None,
    ) -> Float[Tensor, "b t d"]:
        return state + self.factor * y

    def work(self, length: int) -> Work:
        return Work(sums=2 * length * len(self.factor))


@final
class LayerScale(TensorDesign):
    """LayerScale (arXiv 2103.17239): ``h ← h + λ ⊙ F(N(h))`` with a vector ``λ``.

    The paper starts ``λ`` at 0.1 up to depth 18, as here, at 1e-5 for 24 blocks and at 1e-6 for
    deeper ones, found on images. One start of 1e-4 for every deeper model is ours: ``start = 1e-5``
    and ``start = 1e-6`` are the paper's.
    """

    Config = LayerScaleConfig
    card: ClassVar[Card] = Card(
        family="residual scale",
        sources="state",
        weights="learned",
        own="2 d L",
        equation="x = N(h); h ← h + λ ⊙ y, λ = 0.1 at the start (L > 18: 1e-4)",
        paper="arXiv 2103.17239",
    )

    def connection(self, site: Site) -> LayerScaleConnection:
        start = self.config.start
        if start is None:
            start = 0.1 if self.shape.layers <= 18 else 1e-4
        return LayerScaleConnection(start, self.shape, self.backbone)

    def facts(self) -> list[Fact]:
        place, width = Site(1, self.shape.layers), self.shape.width
        h, y = (noise(1, 3, width, seed=s, scale=1e3) for s in (0, 1))
        fresh, other = started(self.connection(place)), filled(self.connection(place))
        x, route = fresh.read(h)
        skip, branch = coefficients(fresh.write(h, y, route, None), h, y)
        change = other.write(h, y, other.read(h)[1], None) - h
        spread = (change / y).detach().std(dim=1).max().item()
        deep = 1e-4 if self.shape.layers > 18 else 1e-1
        expected = deep if self.config.start is None else self.config.start
        return [
            Fact("skip in the written state", skip, 1.0),
            Fact("branch in the written state at the start", branch, expected, 1e-6 * expected),
            Fact("RMS of the branch's input", rms(x), 1.0),
            Fact("spread over tokens of a channel's factor", spread, 0.0),
        ]
