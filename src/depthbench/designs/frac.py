"""Frac-Connections: one state in fractions, mixed as Hyper-Connections mix streams."""

from dataclasses import dataclass, replace
from typing import ClassVar, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from depthbench.designs.base import Card, Connection, DesignConfig, Entry, Fact, Site, TensorDesign
from depthbench.designs.measure import filled, noise
from depthbench.designs.measure_streams import tanh_of_normed
from depthbench.designs.streams import StreamRoute
from depthbench.errors import DepthbenchError
from depthbench.nn.branch import Backbone
from depthbench.nn.norm import RMSNorm
from depthbench.nn.parameters import Start, constant, values, zeros
from depthbench.nn.precision import at_least_float32, full_precision
from depthbench.nn.work import Work
from depthbench.shapes import Shape


class FracConfig(DesignConfig):
    """``fractions``: ``m``, a divisor of the width; ``dynamic = false`` for static weights only."""

    name: str = "frac"
    fractions: int = Field(default=4, ge=1, examples=[2])
    dynamic: bool = True
    scale: float = Field(default=0.01, gt=0)
    """Start of the factors on the dynamic part."""


@dataclass(frozen=True)
class FracRoute(StreamRoute):
    """`StreamRoute` between fractions; each part of the branch's input has a read of its own."""

    parts: Float[Tensor, "*bt s s"] | None = None
    """``Y[i, j]``: how much of fraction ``i`` goes to part ``j`` of the branch's input."""


@final
class FracConnection(Connection[Tensor]):
    """``x = N([Σ_i Y[i, j] H_i]_j)``, new ``H_j = Σ_i A[i, j] H_i + β_j y_j``.

    ``H_j`` and ``y_j`` are fractions of ``d/m`` of the state and of the branch's output. Each of
    ``Y``, ``A``, ``β`` is a static part plus ``scale · tanh(norm(H) W)``, with one norm for each
    fraction and ``W`` of ``d/m × (m + m + 1)``: columns for ``Y``, for ``A``, for ``β``.
    """

    def __init__(self, config: FracConfig, shape: Shape, backbone: Backbone) -> None:
        super().__init__()
        self.config = config
        m, d = config.fractions, shape.width
        self.width = d
        self.norm = RMSNorm(d, backbone.norm_eps)
        self.static_read = nn.Parameter(torch.empty(m, m))
        self.static_mix = nn.Parameter(torch.empty(m, m))
        self.static_write = nn.Parameter(torch.empty(m))
        if config.dynamic:
            self.norm_fractions = RMSNorm(d // m, backbone.norm_eps)
            self.dynamic = nn.Parameter(torch.empty(2 * m + 1, d // m))
            self.scale_read = nn.Parameter(torch.empty(()))
            self.scale_write = nn.Parameter(torch.empty(()))

    def starts(self) -> dict[str, Start]:
        m = self.config.fractions
        identity = values([[float(i == j) for j in range(m)] for i in range(m)])
        starts = {
            "static_read": identity,
            "static_mix": replace(identity, carried=True),
            "static_write": constant(1.0),
        }
        if self.config.dynamic:
            starts["dynamic"] = replace(zeros(decay=True, over_width=True), carried=True)
            starts["scale_write"] = constant(self.config.scale)
            starts["scale_read"] = replace(starts["scale_write"], carried=True)
        return starts

    def split(self, vector: Float[Tensor, "b t d"]) -> Float[Tensor, "b t s part"]:
        """The fractions of ``vector``, one after the other."""
        return vector.unflatten(-1, (self.config.fractions, -1))

    def route(self, fractions: Float[Tensor, "b t s part"]) -> FracRoute:
        """``Y``, ``A`` and ``β`` for these fractions, in float32 or better."""
        parts, mix, write = self.static_read, self.static_mix, self.static_write
        if self.config.dynamic:
            m = self.config.fractions
            with full_precision(fractions):
                normed = self.norm_fractions(at_least_float32(fractions))
                change = torch.tanh(nn.functional.linear(normed, self.dynamic))
            parts = parts + self.scale_read * change[..., :m]
            mix = mix + self.scale_read * change[..., m : 2 * m]
            write = write + self.scale_write * change[..., 2 * m]
        return FracRoute(parts=parts, mix=mix, write=write)

    def read(self, state: Float[Tensor, "b t d"]) -> tuple[Float[Tensor, "b t d"], FracRoute]:
        fractions = self.split(state)
        route = self.route(fractions)
        return self.norm(self.mixed(state, route)), route

    def mixed(self, state: Float[Tensor, "b t d"], route: FracRoute) -> Float[Tensor, "b t d"]:
        assert route.parts is not None
        with full_precision(state):
            return _mixed(self.split(state), route.parts).flatten(2)

    def write(
        self,
        state: Float[Tensor, "b t d"],
        y: Float[Tensor, "b t d"],
        route: FracRoute,
        entry: Entry | None,
    ) -> Float[Tensor, "b t d"]:
        assert route.mix is not None
        assert route.write is not None
        with full_precision(state):
            written = route.write.unsqueeze(-1) * self.split(y)
            return (_mixed(self.split(state), route.mix) + written).flatten(2).to(state.dtype)

    def work(self, length: int) -> Work:
        """One projection of every fraction, two mixes and the write."""
        mixes = Work(products=2 * 2 * length * self.config.fractions * self.width)
        mixes += Work(sums=2 * length * self.width)
        if not self.config.dynamic:
            return mixes
        return mixes + Work(products=2 * length * self.config.fractions * self.dynamic.numel())


def _mixed(
    fractions: Float[Tensor, "b t s part"], matrix: Float[Tensor, "*bt s s"]
) -> Float[Tensor, "b t s part"]:
    """``Σ_i M[i, j] H_i``."""
    return torch.matmul(matrix.transpose(-1, -2), fractions.to(matrix.dtype))


@final
class Frac(TensorDesign):
    """Frac-Connections (arXiv 2503.14125), static and dynamic part.

    The state is no wider than `prenorm`'s. Starts as `prenorm`: ``Y = A = I``, ``β = 1``,
    ``W = 0``.
    """

    Config = FracConfig
    start_distance: ClassVar[float | None] = 0.0
    sums_branches: ClassVar[bool] = True
    card: ClassVar[Card] = Card(
        family="streams",
        sources="m fractions of the state",
        weights="dynamic",
        own="2 L ((2 m + 2) d/m + 2 m² + m + 2)",
        equation="x = N(cat_j Σ_i Y_ij H_i); H_j ← Σ_i A_ij H_i + β_j y_j; "
        "each coefficient static + scale·tanh(norm(H) W)",
        paper="arXiv 2503.14125",
    )

    def check(self) -> None:
        fractions, width = self.config.fractions, self.shape.width
        if width % fractions:
            divisors = [n for n in range(1, 17) if width % n == 0]
            raise DepthbenchError(
                f"design 'frac': fractions = {fractions} does not divide width = {width}. "
                f"Set fractions to one of {', '.join(map(str, divisors))}, or change the width"
            )

    def connection(self, site: Site) -> FracConnection:
        return FracConnection(self.config, self.shape, self.backbone)

    @torch.no_grad()
    def facts(self) -> list[Fact]:
        """One entry each of ``Y``, ``A`` and ``β``, as their equations say for a made-up state."""
        connection = filled(self.connection(Site(0, self.shape.layers)))
        connection.norm.gain.fill_(1.0)
        m, width = self.config.fractions, self.shape.width
        if self.config.dynamic:
            connection.dynamic.mul_((width // m) ** -0.5)
        # one fraction alone, so that all else is what it was mixed with
        state = noise(1, 1, width)
        state[..., width // m :] = 0
        x, route = connection.read(state)
        nothing, y = torch.zeros_like(state), torch.ones_like(state)
        mixed = connection.write(state, nothing, route, None)
        written = connection.write(nothing, y, route, None)
        alone = state[0, 0, : width // m]
        parts = [connection.static_read[0, 0], connection.static_read[0, -1]]
        mix, write = connection.static_mix[0, -1], connection.static_write[0]
        if self.config.dynamic:
            gain, eps = connection.norm_fractions.gain, self.backbone.norm_eps
            change = [tanh_of_normed(column, alone, gain, eps) for column in connection.dynamic]
            parts = [
                parts[0] + connection.scale_read * change[0],
                parts[1] + connection.scale_read * change[m - 1],
            ]
            mix = mix + connection.scale_read * change[2 * m - 1]
            write = write + connection.scale_write * change[2 * m]
        last = slice(width - width // m, width)
        ratio = (x[0, 0, last] @ alone) / (x[0, 0, : width // m] @ alone)
        share = (mixed[0, 0, last] @ alone) / (alone @ alone)
        return [
            Fact(
                "last part of the input over the first", ratio.item(), (parts[1] / parts[0]).item()
            ),
            Fact("first old fraction in last new", share.item(), mix.item()),
            Fact("output in first new fraction", written[0, 0, 0].item(), write.item()),
        ]
