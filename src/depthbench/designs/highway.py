"""Highway: a gate of the state chooses between it and the branch, channel by channel."""

import math
from dataclasses import dataclass
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
from depthbench.designs.measure import coefficients, farthest, filled, noise, started
from depthbench.nn.branch import Backbone, projections_of
from depthbench.nn.norm import RMSNorm
from depthbench.nn.parameters import Projection, Start, constant
from depthbench.nn.precision import at_least_float32, full_precision
from depthbench.nn.work import Work
from depthbench.shapes import Shape


class HighwayConfig(DesignConfig):
    """``bias``: start of the gates' bias; below 0 the state passes at first."""

    name: str = "highway"
    bias: float = Field(default=-2.0, ge=-20, le=20)


@dataclass(frozen=True)
class GateRoute(Route):
    """How much of the branch goes into each channel."""

    gate: Float[Tensor, "b t d"] | None = None


@final
class HighwayConnection(TensorConnection):
    """``x = N(h)``, ``h ← g ⊙ y + (1 - g) ⊙ h`` with ``g = σ(W h + c)``, in float32 or better."""

    def __init__(self, config: HighwayConfig, shape: Shape, backbone: Backbone) -> None:
        super().__init__()
        self.config = config
        self.norm = RMSNorm(shape.width, backbone.norm_eps)
        self.gate = Projection(shape.width, [(shape.width, backbone.init_std)])
        self.bias = nn.Parameter(torch.empty(shape.width))

    def starts(self) -> dict[str, Start]:
        return {"bias": constant(self.config.bias)}

    def read(self, state: Float[Tensor, "b t d"]) -> tuple[Float[Tensor, "b t d"], GateRoute]:
        with full_precision(state):
            operands = (at_least_float32(x) for x in (state, self.gate.weight, self.bias))
            gate = torch.sigmoid(nn.functional.linear(*operands))
        return self.norm(state), GateRoute(gate=gate)

    def write(
        self,
        state: Float[Tensor, "b t d"],
        y: Float[Tensor, "b t d"],
        route: GateRoute,
        entry: Entry | None,
    ) -> Float[Tensor, "b t d"]:
        assert route.gate is not None
        return (route.gate * y + (1 - route.gate) * state).to(state.dtype)

    def work(self, length: int) -> Work:
        """The gate's product, and two weighted terms."""
        return projections_of(self, length) + Work(sums=4 * length * len(self.bias))


@final
class Highway(TensorDesign):
    """Highway residual (arXiv 1505.00387): ``h ← g ⊙ F(N(h)) + (1 - g) ⊙ h``, ``g = σ(W h + c)``.

    ``c = -2`` at the start, as in the paper, and ``W`` starts as every matrix of the backbone
    (the paper: any distribution of mean 0), so the gates start near ``σ(-2) = 0.12``. Ours: the
    branch is a Transformer's and reads the normed state; the gate reads the state itself.
    """

    Config = HighwayConfig
    card: ClassVar[Card] = Card(
        family="gate",
        sources="state",
        weights="dynamic",
        own="2 L (d² + d)",
        equation="x = N(h); h ← g ⊙ y + (1 - g) ⊙ h, g = σ(W h + c)",
        paper="arXiv 1505.00387",
    )

    def connection(self, site: Site) -> HighwayConnection:
        return HighwayConnection(self.config, self.shape, self.backbone)

    def facts(self) -> list[Fact]:
        place, width = Site(1, self.shape.layers), self.shape.width
        fresh, other = started(self.connection(place)), filled(self.connection(place))
        h, y = noise(1, 3, width), noise(1, 3, width, seed=1)
        nothing = torch.zeros_like(h)
        (opened,) = coefficients(fresh.write(nothing, y, fresh.read(nothing)[1], None), y)
        expected = 1 / (1 + math.exp(-self.config.bias))
        route = other.read(h)[1]
        halves = other.write(h, nothing, route, None) / h + other.write(nothing, y, route, None) / y
        return [
            Fact("gate at the start, without a state", opened, expected),
            Fact("gates of branch and skip together", farthest(halves, torch.ones_like(h)), 0.0),
        ]
