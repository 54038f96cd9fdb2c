"""ReZero: no norm, one learned factor on every branch, 0 at the start."""

from typing import ClassVar, final

import torch
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
from depthbench.designs.measure import coefficients, farthest, filled, noise, started
from depthbench.nn.parameters import Start, zeros
from depthbench.nn.work import Work
from depthbench.shapes import Shape


class ReZeroConfig(DesignConfig):
    """No options."""

    name: str = "rezero"


@final
class ReZeroConnection(TensorConnection):
    """``x = h``, ``h ← h + a y`` with a scalar ``a``."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.width = shape.width
        self.factor = nn.Parameter(torch.empty(()))

    def starts(self) -> dict[str, Start]:
        return {"factor": zeros(decay=False)}

    def read(self, state: Float[Tensor, "b t d"]) -> tuple[Float[Tensor, "b t d"], Route]:
        return state, Route()

    def write(
        self,
        state: Float[Tensor, "b t d"],
        y: Float[Tensor, "b t d"],
        route: Route,
        entry: Entry | None,
    ) -> Float[Tensor, "b t d"]:
        return state + self.factor * y.to(state.dtype)

    def work(self, length: int) -> Work:
        return Work(sums=2 * length * self.width)


@final
class ReZero(TensorDesign):
    """ReZero (arXiv 2003.04887): ``h ← h + a F(h)`` with a scalar ``a = 0`` at the start.

    As in the paper no norm stands in the blocks; what is ours is the final norm that every design
    has.
    """

    Config = ReZeroConfig
    card: ClassVar[Card] = Card(
        family="residual scale",
        sources="state",
        weights="learned",
        own="2 L - 2 d L",
        equation="x = h; h ← h + a y, a = 0 at the start",
        paper="arXiv 2003.04887",
    )

    def connection(self, site: Site) -> ReZeroConnection:
        return ReZeroConnection(self.shape)

    def facts(self) -> list[Fact]:
        place = Site(1, self.shape.layers)
        h, y = (noise(1, 3, self.shape.width, seed=s) for s in (0, 1))
        fresh, other = started(self.connection(place)), filled(self.connection(place))
        x, route = other.read(h)
        start = fresh.write(h, y, fresh.read(h)[1], None)
        written = other.write(h, y, route, None)
        skip, branch = coefficients(written, h, y)
        return [
            Fact("change of the state at the start", farthest(start, h), 0.0),
            Fact("distance of the branch's input to the state", farthest(x, h), 0.0),
            Fact("skip in the written state", skip, 1.0),
            Fact("rest beyond skip and one factor", farthest(written, skip * h + branch * y), 0.0),
        ]
