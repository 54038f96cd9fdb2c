"""MoDA: attention looks over the sequence and, for the same token, over depth."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, final

from jaxtyping import Float
from torch import Tensor

from depthbench.designs.base import Card, Connection, Design, DesignConfig, Route, Site
from depthbench.nn.branch import Backbone, Context, Depth, Entry
from depthbench.nn.fast_depth import channels_first
from depthbench.nn.kernels import fast
from depthbench.nn.norm import RMSNorm
from depthbench.nn.parameters import Projection
from depthbench.nn.work import Work
from depthbench.shapes import Shape


class MoDAConfig(DesignConfig):
    """``rotate_depth_keys``: turn depth keys as the query is, so position drops out of the logit.

    Off by default, as in the published code: the query meets the stored keys after its own
    rotation.
    """

    name: str = "moda"
    rotate_depth_keys: bool = False


@dataclass(frozen=True)
class DepthCache:
    """The residual stream and what earlier sites stored of each token."""

    stream: Float[Tensor, "b t d"]
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True)
class StoreRoute(Route):
    """What a feed-forward site stores of its input."""

    stored: Entry | None = None


@final
class MoDAAttentionConnection(Connection[DepthCache]):
    """``x = N(h)``, attention also over the depth cache; stores its K before RoPE and its V."""

    def __init__(self, config: MoDAConfig, site: Site, shape: Shape, backbone: Backbone) -> None:
        super().__init__()
        self.entries = 2 * site.block
        self.width = shape.width
        self.rotated = config.rotate_depth_keys
        self.norm = RMSNorm(shape.width, backbone.norm_eps)

    def read(self, state: DepthCache) -> tuple[Float[Tensor, "b t d"], Route]:
        return self.norm(state.stream), Route(depth=Depth(state.entries, self.rotated))

    def write(
        self, state: DepthCache, y: Float[Tensor, "b t d"], route: Route, entry: Entry | None
    ) -> DepthCache:
        assert entry is not None
        return DepthCache(state.stream + y, (*state.entries, entry))

    def work(self, length: int) -> Work:
        """Scores and values over the depth cache."""
        return Work(products=4 * length * self.width * self.entries)


@final
class MoDAFeedForwardConnection(Connection[DepthCache]):
    """``x = N(h)``, ``h ← h + y``; stores ``W_kv x``, but for the last site, which none reads."""

    def __init__(self, site: Site, shape: Shape, backbone: Backbone) -> None:
        super().__init__()
        self.head_dim = shape.head_dim
        self.norm = RMSNorm(shape.width, backbone.norm_eps)
        keys = shape.kv_heads * shape.head_dim
        rows = [(2 * keys, backbone.init_std)]
        self.kv = None if site.block == site.layers - 1 else Projection(shape.width, rows)

    def read(self, state: DepthCache) -> tuple[Float[Tensor, "b t d"], StoreRoute]:
        x = self.norm(state.stream)
        if self.kv is None:
            return x, StoreRoute()
        key, value = self.kv(x).unflatten(-1, (-1, self.head_dim)).chunk(2, dim=2)
        if fast(x):
            return x, StoreRoute(stored=Entry(channels_first(key), channels_first(value)))
        return x, StoreRoute(stored=Entry(key, value))

    def write(
        self, state: DepthCache, y: Float[Tensor, "b t d"], route: StoreRoute, entry: Entry | None
    ) -> DepthCache:
        written = replace(state, stream=state.stream + y)
        if route.stored is None:
            return written
        return replace(written, entries=(*state.entries, route.stored))


@final
class MoDA(Design[DepthCache]):
    """Mixture-of-Depths Attention (arXiv 2603.15619), pre-norm.

    The softmax of every attention runs over the causal sequence and, for the same token, over the
    keys and values that earlier sites stored for it. The first attention site has none.
    """

    Config = MoDAConfig
    checkpoint_unit: ClassVar[Literal["block", "branch"]] = "branch"
    card: ClassVar[Card] = Card(
        family="depth attention",
        sources="state; keys and values of all earlier sites",
        weights="dynamic",
        own="2 d·kv_heads·head_dim (L - 1)",
        equation="x = N(h), softmax over [sequence, depth]; h ← h + y",
        paper="arXiv 2603.15619",
    )

    def connection(self, site: Site) -> Connection[DepthCache]:
        if site.attention:
            return MoDAAttentionConnection(self.config, site, self.shape, self.backbone)
        return MoDAFeedForwardConnection(site, self.shape, self.backbone)

    def open(self, embedding: Float[Tensor, "b t d"], context: Context) -> DepthCache:
        return DepthCache(embedding)

    def readout(self, state: DepthCache) -> Float[Tensor, "b t d"]:
        return state.stream

    def depth_state(self, state: DepthCache) -> Float[Tensor, "b t d"]:
        return state.stream
