"""MoDA: attention looks over the sequence and, for the same token, over depth."""

from abc import ABC
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, final

from jaxtyping import Float
from torch import Tensor

from depthbench.designs.base import Card, Connection, Design, DesignConfig, Fact, Route, Site
from depthbench.designs.measure import coefficients, noise, uniform
from depthbench.errors import DepthbenchError
from depthbench.nn.branch import Backbone, Context, Depth, Entry
from depthbench.nn.fast_depth import channels_first
from depthbench.nn.kernels import fast
from depthbench.nn.norm import RMSNorm
from depthbench.nn.parameters import Projection
from depthbench.nn.work import Work
from depthbench.shapes import Shape


class MoDAConfig(DesignConfig):
    """Both options are off by default.

    ``rotate_depth_keys``: turn depth keys as the query is, so position drops out of the logit. In
    the published code the query meets the stored keys after its own rotation.
    ``postnorm``: ``x = h``, ``h ← N(h + y)`` instead of ``x = N(h)``, ``h ← h + y``.
    """

    name: str = "moda"
    rotate_depth_keys: bool = False
    postnorm: bool = False


@dataclass(frozen=True)
class DepthCache:
    """The residual stream and what earlier sites stored of each token."""

    stream: Float[Tensor, "b t d"]
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True)
class StoreRoute(Route):
    """What a feed-forward site stores of its input."""

    stored: Entry | None = None


class MoDAConnection(Connection[DepthCache], ABC):
    """``x = N(h)``, ``h ← h + y``; with ``postnorm`` ``x = h``, ``h ← N(h + y)``."""

    def __init__(self, config: MoDAConfig, shape: Shape, backbone: Backbone) -> None:
        super().__init__()
        self.postnorm = config.postnorm
        self.norm = RMSNorm(shape.width, backbone.norm_eps)

    def mixed(self, state: DepthCache, route: Route) -> Float[Tensor, "b t d"]:
        return state.stream

    def input_of(self, stream: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        """The branch's input ``x``, which is also what a site stores keys and values of."""
        return stream if self.postnorm else self.norm(stream)

    def added(
        self, stream: Float[Tensor, "b t d"], y: Float[Tensor, "b t d"]
    ) -> Float[Tensor, "b t d"]:
        """The stream after the branch's output ``y``."""
        return self.norm(stream + y) if self.postnorm else stream + y


@final
class MoDAAttentionConnection(MoDAConnection):
    """Attention also over the depth cache; stores its K before RoPE and its V."""

    def __init__(self, config: MoDAConfig, site: Site, shape: Shape, backbone: Backbone) -> None:
        super().__init__(config, shape, backbone)
        self.entries = 2 * site.block
        self.features = shape.queries
        self.rotated = config.rotate_depth_keys

    def read(self, state: DepthCache) -> tuple[Float[Tensor, "b t d"], Route]:
        return self.input_of(state.stream), Route(depth=Depth(state.entries, self.rotated))

    def write(
        self, state: DepthCache, y: Float[Tensor, "b t d"], route: Route, entry: Entry | None
    ) -> DepthCache:
        entries = state.entries if entry is None else (*state.entries, entry)
        return DepthCache(self.added(state.stream, y), entries)

    def work(self, length: int) -> Work:
        """Scores and values over the depth cache."""
        return Work(products=4 * length * self.features * self.entries)


@final
class MoDAFeedForwardConnection(MoDAConnection):
    """Stores ``W_kv x``, but for the last site, which none reads."""

    def __init__(self, config: MoDAConfig, site: Site, shape: Shape, backbone: Backbone) -> None:
        super().__init__(config, shape, backbone)
        self.head_dim = shape.head_dim
        rows = [(2 * shape.keys, backbone.init_std)]
        self.kv = None if site.block == site.layers - 1 else Projection(shape.width, rows)

    def read(self, state: DepthCache) -> tuple[Float[Tensor, "b t d"], StoreRoute]:
        x = self.input_of(state.stream)
        if self.kv is None:
            return x, StoreRoute()
        key, value = self.kv(x).unflatten(-1, (-1, self.head_dim)).chunk(2, dim=2)
        if fast(x):
            return x, StoreRoute(stored=Entry(channels_first(key), channels_first(value)))
        return x, StoreRoute(stored=Entry(key, value))

    def write(
        self, state: DepthCache, y: Float[Tensor, "b t d"], route: StoreRoute, entry: Entry | None
    ) -> DepthCache:
        written = replace(state, stream=self.added(state.stream, y))
        if route.stored is None:
            return written
        return replace(written, entries=(*state.entries, route.stored))


@final
class MoDA(Design[DepthCache]):
    """Mixture-of-Depths Attention (arXiv 2603.15619).

    The softmax of every attention runs over the causal sequence and, for the same token, over the
    keys and values that earlier sites stored for it. The first attention site has none. Pre-norm
    unless ``postnorm``, which the paper found to be the better.
    """

    Config = MoDAConfig
    in_attention: ClassVar[bool] = True
    checkpoint_unit: ClassVar[Literal["block", "branch"]] = "branch"
    sums_branches: ClassVar[bool] = True
    card: ClassVar[Card] = Card(
        family="depth attention",
        sources="state; keys and values of all earlier sites",
        weights="dynamic",
        own="2 d·kv_heads·head_dim (L - 1)",
        equation="x = N(h), softmax over [sequence, depth]; h ← h + y",
        paper="arXiv 2603.15619",
    )

    def takes_branch_factor(self) -> bool:
        """Post-norm divides the state by its size."""
        return not self.config.postnorm

    def check(self) -> None:
        if self.backbone.name == "hybrid":
            raise DepthbenchError(
                "design 'moda' on backbone 'hybrid': its softmax over depth is attention's, and "
                "the state-space half of the site would not see the depth cache. "
                'Set backbone.name = "dense" or "moe", or choose another design'
            )
        scaling = self.backbone.rope_scaling
        if self.config.rotate_depth_keys and scaling is not None and scaling.size != 1.0:
            raise DepthbenchError(
                f"design 'moda' with rotate_depth_keys = true and rope_scaling '{scaling.name}': "
                f"its turns make queries and keys {scaling.size:.3g} times as long, but depth keys "
                "are met unturned. Set rotate_depth_keys = false, or rope_scaling.attention = 1.0"
            )

    def connection(self, site: Site) -> Connection[DepthCache]:
        if site.attention:
            return MoDAAttentionConnection(self.config, site, self.shape, self.backbone)
        return MoDAFeedForwardConnection(self.config, site, self.shape, self.backbone)

    def open(self, embedding: Float[Tensor, "b t d"], context: Context) -> DepthCache:
        return DepthCache(embedding)

    def readout(self, state: DepthCache) -> Float[Tensor, "b t d"]:
        return state.stream

    def depth_state(self, state: DepthCache) -> Float[Tensor, "b t d"]:
        return state.stream

    def with_depth_state(self, state: DepthCache, z: Float[Tensor, "b t d"]) -> DepthCache:
        return replace(state, stream=z)

    def facts(self) -> list[Fact]:
        """Entries are counted on a state that all sites have written to."""
        layers, shape = self.shape.layers, self.shape
        h, y = (noise(1, 1, shape.width, seed=s, scale=1e3) for s in (0, 1))
        entry = Entry(*(noise(1, 1, shape.kv_heads, shape.head_dim, seed=s) for s in (2, 3)))
        state, seen, written = DepthCache(h), [], h
        for number in range(2 * layers):
            site = uniform(self.connection(Site(number, layers)), 1.0)
            route = site.read(state)[1]
            if route.depth is not None:
                seen.append(float(len(route.depth.entries)))
            state = site.write(replace(state, stream=h), y, route, entry)
            written = state.stream
        skip, branch = coefficients(written, h, y)
        expected = [2.0 * block for block in range(layers)]
        return [
            Fact("depth entries that all attentions see", sum(seen), sum(expected)),
            Fact("depth entries that the last attention sees", seen[-1], expected[-1]),
            Fact("depth entries at the end", float(len(state.entries)), 2.0 * layers - 1),
            Fact("skip over branch in the written state", skip / branch, 1.0),
        ]
