"""Value residual: every attention mixes the values of the first one into its own."""

from dataclasses import dataclass, replace
from typing import ClassVar, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from depthbench.designs.base import Card, Connection, Design, DesignConfig, Fact, Route, Site
from depthbench.designs.measure import coefficients, filled, noise, started
from depthbench.nn.attention import mixed_values
from depthbench.nn.branch import Backbone, Context, Depth, Entry, ValueMix
from depthbench.nn.norm import RMSNorm
from depthbench.nn.parameters import Start, constant
from depthbench.nn.work import Work
from depthbench.shapes import Shape


class ValueResidualConfig(DesignConfig):
    """The two coefficients of a block."""

    name: str = "value_residual"
    learned: bool = True
    """Train both coefficients; else they stay as they start."""
    first: float = 0.5
    """Start of ``λ1``, on the first attention's values."""
    own: float = 0.5
    """Start of ``λ2``, on the attention's own."""


@dataclass(frozen=True)
class ValuedStream:
    """The residual stream, and the values of the attention that ran first."""

    stream: Float[Tensor, "b t d"]
    values: Float[Tensor, "b t kv hd"] | None = None


@final
class ValueResidualAttention(Connection[ValuedStream]):
    """``x = N(h)``, values ``λ2 V + λ1 V_first`` in attention, ``h ← h + y``.

    The attention that runs first keeps its values as they are and hands them on, whatever its
    block. Block 0 has no coefficients: where a program runs it later, it mixes nothing.
    """

    def __init__(
        self, config: ValueResidualConfig, site: Site, shape: Shape, backbone: Backbone
    ) -> None:
        super().__init__()
        self.config = config
        self.mixes = site.block > 0
        self.features = shape.keys
        self.norm = RMSNorm(shape.width, backbone.norm_eps)
        if self.mixes and config.learned:
            self.first = nn.Parameter(torch.empty(()))
            self.own = nn.Parameter(torch.empty(()))

    def starts(self) -> dict[str, Start]:
        if not (self.mixes and self.config.learned):
            return {}
        return {"first": constant(self.config.first), "own": constant(self.config.own)}

    def read(self, state: ValuedStream) -> tuple[Float[Tensor, "b t d"], Route]:
        return self.norm(state.stream), Route(depth=Depth(values=self.mix(state.values)))

    def mixed(self, state: ValuedStream, route: Route) -> Float[Tensor, "b t d"]:
        return state.stream

    def mix(self, values: Float[Tensor, "b t kv hd"] | None) -> ValueMix | None:
        """How ``values`` of the first attention go into this one's."""
        if values is None or not self.mixes:
            return None
        if self.config.learned:
            return ValueMix(values, first=self.first, own=self.own)
        return ValueMix(values, first=self.config.first, own=self.config.own)

    def write(
        self, state: ValuedStream, y: Float[Tensor, "b t d"], route: Route, entry: Entry | None
    ) -> ValuedStream:
        values = state.values
        if values is None and entry is not None:
            values = entry.value
        return ValuedStream(state.stream + y, values)

    def work(self, length: int) -> Work:
        """The sum of both values."""
        return Work(sums=4 * length * self.features if self.mixes else 0)


@final
class ValueResidualFeedForward(Connection[ValuedStream]):
    """``x = N(h)``, ``h ← h + y``."""

    def __init__(self, shape: Shape, backbone: Backbone) -> None:
        super().__init__()
        self.norm = RMSNorm(shape.width, backbone.norm_eps)

    def read(self, state: ValuedStream) -> tuple[Float[Tensor, "b t d"], Route]:
        return self.norm(state.stream), Route()

    def mixed(self, state: ValuedStream, route: Route) -> Float[Tensor, "b t d"]:
        return state.stream

    def write(
        self, state: ValuedStream, y: Float[Tensor, "b t d"], route: Route, entry: Entry | None
    ) -> ValuedStream:
        return replace(state, stream=state.stream + y)


@final
class ValueResidual(Design[ValuedStream]):
    """Value residual learning, ResFormer (arXiv 2410.17897), on pre-norm.

    ``V'_b = λ2 V_b + λ1 V_0`` in every attention but the first, under its own softmax. One pair of
    numbers for each block, 0.5 and 0.5 at the start, as in the paper's learnable form.
    """

    Config = ValueResidualConfig
    in_attention: ClassVar[bool] = True
    sums_branches: ClassVar[bool] = True
    card: ClassVar[Card] = Card(
        family="depth average",
        sources="state; values of the first attention",
        weights="learned",
        own="2 (L - 1)",
        equation="x = N(h), V'_b = λ2 V_b + λ1 V_0 in attention; h ← h + y",
        paper="arXiv 2410.17897",
    )

    def connection(self, site: Site) -> Connection[ValuedStream]:
        if site.attention:
            return ValueResidualAttention(self.config, site, self.shape, self.backbone)
        return ValueResidualFeedForward(self.shape, self.backbone)

    def open(self, embedding: Float[Tensor, "b t d"], context: Context) -> ValuedStream:
        return ValuedStream(embedding)

    def readout(self, state: ValuedStream) -> Float[Tensor, "b t d"]:
        return state.stream

    def depth_state(self, state: ValuedStream) -> Float[Tensor, "b t d"]:
        return state.stream

    def with_depth_state(self, state: ValuedStream, z: Float[Tensor, "b t d"]) -> ValuedStream:
        return replace(state, stream=z)

    def facts(self) -> list[Fact]:
        """Of the values that the last block's attention weighs."""
        layers, shape = self.shape.layers, self.shape
        h = noise(1, 2, shape.width)
        own, first = (noise(1, 2, shape.kv_heads, shape.head_dim, seed=s) for s in (1, 2))
        opening = filled(self.connection(Site(0, layers)))
        route = opening.read(ValuedStream(h))[1]
        unmixed = mixed_values(own, route.depth)
        alone = Fact("first attention's own values", coefficients(unmixed, own)[0], 1.0)
        if layers == 1:
            return [alone]
        state = opening.write(ValuedStream(h), h, route, Entry(own, first))
        last = started(self.connection(Site(2 * layers - 2, layers)))
        mixed = mixed_values(own, last.read(state)[1].depth)
        by_own, by_first = coefficients(mixed, own, first)
        return [
            alone,
            Fact("last attention's own values at the start", by_own, self.config.own),
            Fact("last attention's first values at the start", by_first, self.config.first),
        ]
