"""ResiDual: a post-norm stream that the branches read, and a pre-norm stream beside it."""

from collections.abc import Sequence
from typing import Any, ClassVar, final

import torch
from jaxtyping import Float
from torch import Tensor

from depthbench.designs.base import (
    Card,
    Connection,
    DesignConfig,
    Entry,
    Fact,
    Fewer,
    Route,
    Site,
)
from depthbench.designs.measure import farthest, filled, noise, rms
from depthbench.designs.postnorm import PostNormConfig
from depthbench.designs.streams import StreamDesign
from depthbench.errors import DepthbenchError
from depthbench.nn.branch import Backbone
from depthbench.nn.norm import RMSNorm
from depthbench.shapes import Shape


class ResiDualConfig(DesignConfig):
    """No options."""

    name: str = "resi_dual"


@final
class ResiDualConnection(Connection[Tensor]):
    """``x = p``; ``p ← N(p + y)``, ``q ← q + y`` for the streams ``(p, q)``."""

    def __init__(self, shape: Shape, backbone: Backbone) -> None:
        super().__init__()
        self.norm = RMSNorm(shape.width, backbone.norm_eps)

    def read(self, state: Float[Tensor, "b t 2 d"]) -> tuple[Float[Tensor, "b t d"], Route]:
        return state[:, :, 0], Route()

    def mixed(self, state: Float[Tensor, "b t 2 d"], route: Route) -> Float[Tensor, "b t d"]:
        return state[:, :, 0]

    def write(
        self,
        state: Float[Tensor, "b t 2 d"],
        y: Float[Tensor, "b t d"],
        route: Route,
        entry: Entry | None,
    ) -> Float[Tensor, "b t 2 d"]:
        post, pre = (state + y.unsqueeze(2)).unbind(2)
        return torch.stack([self.norm(post), pre], dim=2)

    @torch.no_grad()
    def fewer_into(self, new: Any, expand: Any, collect: Any) -> None:
        new.norm.gain.copy_(self.norm.gain)


@final
class ResiDual(StreamDesign):
    """ResiDual (arXiv 2304.14802): two streams that start as the embedding, readout ``p + N(q)``.

    The backbone's final norm, which every design has, comes after; the published model has none.
    """

    Config = ResiDualConfig
    card: ClassVar[Card] = Card(
        family="streams",
        sources="post-norm stream",
        weights="fixed",
        own="d",
        equation="x = p; p ← N(p + y), q ← q + y; read out p + N(q)",
        paper="arXiv 2304.14802",
    )

    def __init__(self, config: ResiDualConfig, shape: Shape, backbone: Backbone) -> None:
        super().__init__(config, shape, backbone)
        self.norm = RMSNorm(shape.width, backbone.norm_eps)

    @property
    def streams(self) -> int:
        return 2

    @property
    def stream_names(self) -> tuple[str, ...]:
        return "post-norm", "pre-norm"

    def connection(self, site: Site) -> ResiDualConnection:
        return ResiDualConnection(self.shape, self.backbone)

    def readout(self, state: Float[Tensor, "b t 2 d"]) -> Float[Tensor, "b t d"]:
        post, pre = state.unbind(2)
        return post + self.norm(pre)

    def fewer(self, kept: Sequence[int], exact: bool) -> DesignConfig:
        """Without ``q`` it is `postnorm`, whose readout is ``p``."""
        if tuple(kept) != (0,):
            raise DepthbenchError(
                "design 'resi_dual' can lose its pre-norm stream alone: branches read the "
                "post-norm one. Merge stream 1 into 0"
            )
        return PostNormConfig()

    def fewer_into(self, new: Any, fewer: Fewer) -> None:
        """Nothing is left at the root."""

    @torch.no_grad()
    def facts(self) -> list[Fact]:
        """What a write makes of the two streams, at a gain of 1."""
        connection = filled(self.connection(Site(0, self.shape.layers)))
        connection.norm.gain.fill_(1.0)
        state, y = noise(1, 1, 2, self.shape.width), noise(1, 1, self.shape.width, seed=1)
        _, route = connection.read(state)
        post, pre = connection.write(state, y, route, None).unbind(2)
        before = state + y.unsqueeze(2)
        cosine = torch.nn.functional.cosine_similarity(post, before[:, :, 0], dim=-1)
        return [
            Fact("cosine of new p and old p + y", cosine.item(), 1.0),
            Fact("root mean square of new p", rms(post), 1.0, tolerance=1e-3),
            Fact("new q from old q + y, at most", farthest(pre, before[:, :, 1]), 0.0),
        ]
