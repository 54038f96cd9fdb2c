"""Attention Residuals: every site attends over the outputs of all earlier branches."""

from typing import Any, ClassVar, Literal, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from depthbench.designs.base import Card, Connection, Design, DesignConfig, Entry, Site
from depthbench.designs.sources import SourceRoute, Sources
from depthbench.nn.branch import Backbone, Context
from depthbench.nn.norm import RMSNorm
from depthbench.nn.parameters import Start, constant, zeros
from depthbench.shapes import Shape


class AttnResConfig(DesignConfig):
    """No options."""

    name: str = "attnres"


@final
class SourceConnection(Connection[Sources]):
    """``x = N(Σ_i a_i v_i)``; the output joins the running sum, which is frozen at a run's end.

    The mix behind a site belongs to that site, so a program that moves a block takes along its
    inner mix and the one at its right boundary; the one on its left stays.
    """

    def __init__(self, site: Site, shape: Shape, backbone: Backbone) -> None:
        super().__init__()
        self.number = site.number
        self.norm = RMSNorm(shape.width, backbone.norm_eps)

    def read(self, state: Sources) -> tuple[Float[Tensor, "b t d"], SourceRoute]:
        mixed, route = state.mix()
        return self.norm(mixed), route

    def write(
        self, state: Sources, y: Float[Tensor, "b t d"], route: SourceRoute, entry: Entry | None
    ) -> Sources:
        return state.after(route).add(y, mix=self.number)


class SourceDesign(Design[Sources]):
    """Queries and norm gains of all mixes, in one table at the root.

    Mix ``k`` stands before site ``k + 1``; the last, ``k = 2L - 1``, is the readout.
    """

    checkpoint_unit: ClassVar[Literal["block", "branch"]] = "branch"

    def __init__(self, config: Any, shape: Shape, backbone: Backbone) -> None:
        super().__init__(config, shape, backbone)
        self.query = nn.Parameter(torch.empty(shape.sites, shape.width))
        self.gain = nn.Parameter(torch.empty(shape.sites, shape.width))

    def starts(self) -> dict[str, Start]:
        return {"query": zeros(decay=False), "gain": constant(1.0)}

    @property
    def run(self) -> int:
        """Number of sites whose outputs add up to one source."""
        return 1

    def connection(self, site: Site) -> SourceConnection:
        return SourceConnection(site, self.shape, self.backbone)

    def open(self, embedding: Float[Tensor, "b t d"], context: Context) -> Sources:
        queries = self.query * self.gain
        return Sources.opened(embedding, queries, self.backbone.norm_eps, self.run)

    def enter(self, state: Sources, place: int) -> Sources:
        return state.at(2 * place)

    def readout(self, state: Sources) -> Float[Tensor, "b t d"]:
        return state.mix()[0]

    def depth_state(self, state: Sources) -> Float[Tensor, "b t d"]:
        return state.mix()[0]


@final
class AttnRes(SourceDesign):
    """Full Attention Residuals (arXiv 2603.15031): ``x = N(Σ_i softmax_i(w·RMSNorm(v_i)) v_i)``.

    ``w = 0`` at the start: the uniform mean, which is `prenorm`'s state over ``ℓ + 1``.
    """

    Config = AttnResConfig
    start_distance: ClassVar[float | None] = 5e-7
    card: ClassVar[Card] = Card(
        family="depth attention",
        sources="all branch outputs",
        weights="dynamic",
        own="4 d L",
        equation="x = N(Σ_i a_i v_i), a = softmax_i(w·RMSNorm(v_i)); append y",
        paper="arXiv 2603.15031",
    )
