"""Attention Residuals: every site attends over the outputs of all earlier branches."""

from abc import ABC
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from depthbench.designs.base import Card, Connection, Design, DesignConfig, Entry, Fact, Site
from depthbench.designs.measure import farthest, filled, noise
from depthbench.designs.sources import SourceRoute, Sources, SumSources
from depthbench.nn.branch import Backbone, Context
from depthbench.nn.norm import RMSNorm
from depthbench.nn.parameters import Start, constant, zeros
from depthbench.nn.work import Work
from depthbench.shapes import Shape

NO_CONTEXT = Context(torch.empty(0, 1), torch.empty(0, 1))


class AttnResConfig(DesignConfig):
    """No options."""

    name: str = "attnres"


@final
class SourceConnection(Connection[Sources]):
    """``x = N(Σ_i a_i v_i)``; the output joins the running sum, which is frozen at a run's end.

    The mix behind a site belongs to that site, so a program that moves a block takes along its
    inner mix and the one at its right boundary; the one on its left stays.
    """

    def __init__(self, site: Site, shape: Shape, backbone: Backbone, work: Work) -> None:
        super().__init__()
        self.number = site.number
        self.work_of_token = work
        self.norm = RMSNorm(shape.width, backbone.norm_eps)

    def read(self, state: Sources) -> tuple[Float[Tensor, "b t d"], SourceRoute]:
        mixed, route = state.mix()
        return self.norm(mixed), route

    def mixed(self, state: Sources, route: SourceRoute) -> Float[Tensor, "b t d"]:
        return state.mix()[0]

    def write(
        self, state: Sources, y: Float[Tensor, "b t d"], route: SourceRoute, entry: Entry | None
    ) -> Sources:
        return state.after(route).add(y, mix=self.number)

    def work(self, length: int) -> Work:
        """The mix and, where a source is made, its products with all queries."""
        return self.work_of_token.times(length)


class SourceDesign(Design[Sources], ABC):
    """Queries and norm gains of all mixes, in one table at the root.

    Mix ``k`` stands before site ``k + 1``; the last, ``k = 2L - 1``, is the readout.
    """

    checkpoint_unit: ClassVar[Literal["block", "branch"]] = "branch"

    def __init__(self, config: Any, shape: Shape, backbone: Backbone) -> None:
        super().__init__(config, shape, backbone)
        self.query = nn.Parameter(torch.empty(self.mixes, shape.width))
        self.gain = nn.Parameter(torch.empty(self.mixes, shape.width))

    def starts(self) -> dict[str, Start]:
        return {"query": zeros(decay=False, over_width=True), "gain": constant(1.0)}

    @property
    def run(self) -> int:
        """Number of sites whose outputs add up to one source."""
        return 1

    @property
    def mixes(self) -> int:
        """Number of mixes that have a query."""
        return self.shape.sites

    def mixed(self, place: int) -> tuple[int, int]:
        """Number of sources mixed before site ``place`` (``2L``: the readout), and how many of
        them are running sums, whose logit is made there and then.
        """
        if place == 0:
            return 0, 0
        running = int(place % self.run > 0)
        return place // self.run + 1 + running, running

    def connection(self, site: Site) -> SourceConnection:
        return SourceConnection(site, self.shape, self.backbone, self.site_work(site.number))

    def site_work(self, number: int) -> Work:
        """Operations of a site's mix and of the source that its output completes, a token."""
        made = self.mixes if (number + 1) % self.run == 0 else 0
        return self.mix_work(number) + Work(products=2 * self.shape.width * made)

    def mix_work(self, place: int) -> Work:
        """Operations of the mix before site ``place``, a token."""
        sources, running = self.mixed(place)
        double = 2 * self.shape.width
        return Work(products=double * running, sums=double * sources)

    def work(self, length: int) -> Work:
        """The embedding's products with all queries, and the readout's mix."""
        opened = Work(products=2 * self.shape.width * self.mixes)
        return (opened + self.mix_work(self.shape.sites)).times(length)

    def open(self, embedding: Float[Tensor, "b t d"], context: Context) -> Sources:
        queries = self.query * self.gain
        return SumSources.opened(embedding, queries, self.backbone.norm_eps, self.run, self.kernels)

    def enter(self, state: Sources, place: int) -> Sources:
        return state.at(2 * place)

    def tables_without(self, tables: dict[str, Tensor], kept: Sequence[int]) -> dict[str, Tensor]:
        """A site's mix goes with it."""
        if self.mixes != self.shape.sites:
            return tables
        sites = [2 * block + side for block in kept for side in (0, 1)]
        return {name: table[sites] for name, table in tables.items()}

    def readout(self, state: Sources) -> Float[Tensor, "b t d"]:
        return state.readout()

    def depth_state(self, state: Sources) -> Float[Tensor, "b t d"]:
        return state.mix()[0]

    @torch.no_grad()
    def facts(self) -> list[Fact]:
        """Of the equation with random queries, gains and branch outputs."""
        kind, config, sites = type(self), self.config, self.shape.sites
        design = filled(kind(config, self.shape, self.backbone))
        outputs = [noise(1, 3, self.shape.width, seed=seed) for seed in range(sites + 1)]
        state, most = design.open(outputs[0], NO_CONTEXT), 0
        for number in range(sites):
            connection = filled(design.connection(Site(number, self.shape.layers)))
            state = design.enter(state, number // 2) if number % 2 == 0 else state
            _, route = connection.read(state)
            assert route.weights is not None
            most = max(most, len(route.weights))
            state = connection.write(state, outputs[number + 1], route, None)
        read, expected = design.readout(state), design.expected_readout(outputs)
        size = expected.abs().max().item()
        return [
            Fact("most sources that a site reads", float(most), float(self.expected_sources())),
            Fact("readout from its equation", farthest(read, expected) / size, 0.0),
        ]

    def expected_sources(self) -> int:
        """Most sources that a site reads, from the paper's text."""
        return self.shape.sites

    def expected_readout(self, outputs: list[Float[Tensor, "b t d"]]) -> Float[Tensor, "b t d"]:
        """The last mix over the embedding and all outputs, from the equation."""
        return softmax_mean(outputs, self.query[-1] * self.gain[-1], self.backbone.norm_eps)


def softmax_mean(
    sources: list[Float[Tensor, "b t d"]], query: Float[Tensor, "d"], eps: float, last: float = 0.0
) -> Float[Tensor, "b t d"]:
    """``Σ_i a_i v_i``, ``a = softmax_i(q · v_i / rms(v_i))``, with ``last`` on the last logit."""
    stack = torch.stack(sources)
    keys = stack / stack.square().mean(-1, keepdim=True).add(eps).sqrt()
    logits = (keys * query).sum(-1, keepdim=True)
    logits[-1] += last
    weights = torch.exp(logits - logits.amax(0))
    return (weights * stack).sum(0) / weights.sum(0)


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
