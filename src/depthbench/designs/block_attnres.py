"""Block Attention Residuals: depth attention over sums of neighbouring branch outputs."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from depthbench.designs.attnres import SourceDesign, softmax_mean
from depthbench.designs.base import Card, DesignConfig
from depthbench.designs.sources import SourceRoute, Sources, SumSources
from depthbench.nn.branch import Backbone, Context
from depthbench.nn.parameters import Start, constant
from depthbench.shapes import Shape

Base = tuple[Float[Tensor, "b t d"], Float[Tensor, "complete b t"]]
"""The mix that a run reads, and its weights."""


class BlockAttnResConfig(DesignConfig):
    """Runs of sites, and which public definition reads them; see `BlockAttnRes`."""

    name: str = "block_attnres"
    blocks: int = Field(default=8, ge=1)
    """Runs that the sites are grouped in; the last run may be shorter."""
    definition: Literal["paper", "boundary", "recency"] = "paper"
    """The paper's, mixes at run boundaries alone, or a bias on the stream as it is."""
    recency: float = 3.0
    """Start of the biases of ``definition = "recency"``."""

    @classmethod
    def notable(cls) -> tuple[dict[str, Any], ...]:
        return (
            {"blocks": 3, "definition": "boundary"},
            {"blocks": 3, "definition": "recency"},
            {"blocks": 4, "definition": "recency", "recency": 0.5},
        )

    @classmethod
    def drawn(cls) -> dict[str, Any]:
        return {"blocks": 3}


@dataclass(frozen=True)
class BoundaryRoute(SourceRoute):
    """``weights``: of the complete sums in the run's mix and, inside a run, 1 for its sum."""

    base: Base | None = None


@final
@dataclass(frozen=True)
class BoundarySources(Sources):
    """The first site of a run mixes the complete sums; those inside add the running sum to that.

    Mix ``k`` belongs to the boundary behind run ``k``, not to a site: a program that moves blocks
    leaves it there. The first site of a run is the first that a program runs there. Beyond the
    model's depth all boundaries share the readout's mix.
    """

    base: Base | None = None
    """Mix of the run that has begun, and its weights."""

    def mix(self) -> tuple[Float[Tensor, "b t d"], BoundaryRoute]:
        if self.running is not None and self.base is not None:
            mixed, weights = self.base
            weights = torch.cat([weights, torch.ones_like(weights[:1])])
            return mixed + self.running, BoundaryRoute(weights=weights, base=self.base)
        if self.position < self.run:
            mixed, route = self.alone()
            weights, chain = route.weights, None
        else:
            mixed, weights, chain = self.bank.mix(self.boundary(self.position), None, None)
        assert weights is not None
        return mixed, BoundaryRoute(weights=weights, chain=chain, base=(mixed, weights))

    def boundary(self, position: int) -> int:
        """Mix of the last boundary at or before ``position``."""
        return min(position // self.run, len(self.bank.queries)) - 1

    def after(self, route: SourceRoute) -> Sources:
        assert isinstance(route, BoundaryRoute)
        state = super().after(route)
        assert isinstance(state, BoundarySources)
        return replace(state, base=route.base)

    def readout(self) -> Float[Tensor, "b t d"]:
        """The mix behind the last run, complete or not."""
        if self.running is None:
            return self.mix()[0]
        mix = self.boundary(self.position + self.run)
        return self.bank.mix(mix, self.running, self.running_logit(mix))[0]


@final
@dataclass(frozen=True)
class RecencySources(Sources):
    """The running sum goes on through all runs; at each run's end it stands as a source, too.

    A site mixes these and the running sum itself, whose logit has a bias of its own in each mix.
    """

    bias: Float[Tensor, "mixes"] | None = None
    inside: bool = False
    """Whether outputs have joined the sum since it last became a source."""
    plain_logits: ClassVar[bool] = False

    @property
    def begun(self) -> bool:
        return self.inside

    def frozen(self) -> Sources:
        assert self.running is not None
        return replace(self, bank=self.bank.append(self.running), inside=False)

    def add(self, y: Float[Tensor, "b t d"], mix: int) -> Sources:
        total = (self.first if self.running is None else self.running) + y
        position = self.position + 1
        added = replace(self, running=total, next_mix=mix, position=position, inside=True)
        return added.at(position)

    def mix(self) -> tuple[Float[Tensor, "b t d"], SourceRoute]:
        if self.next_mix is None:
            return self.alone()
        logit = self.running_logit(self.next_mix)
        assert logit is not None
        assert self.bias is not None
        logit = logit + self.bias[self.next_mix]
        mixed, weights, chain = self.bank.mix(self.next_mix, self.running, logit)
        return mixed, SourceRoute(weights=weights, running=True, chain=chain)


@final
class BlockAttnRes(SourceDesign):
    """Block Attention Residuals (arXiv 2603.15031).

    Sites are grouped in runs of ``S = ceil(2L / blocks)``. Where S does not divide 2L, the last
    run is shorter and there may be fewer runs than ``blocks``. With ``b_0`` the embedding, ``b_n``
    the sum of the outputs of run ``n``, ``p`` that of the outputs so far of the run that a site
    stands in, ``mix_k(V) = Σ_V a_v v`` and ``a = softmax_V(w_k · RMSNorm_k(v))``:

    - ``paper``: ``x = N(mix_k(b_0 … b_n, p))``, without ``p`` where the run has not begun; one
      mix before each site and one for the readout. ``S = 1`` is `attnres`.
    - ``boundary``: ``x = N(mix_n(b_0 … b_n) + p)``: depth is attended over at run boundaries alone,
      and inside a run outputs add up on that mix; one mix for each run, the last one the readout.
      ``S = 1`` is `attnres`. Public packages have it so after the paper's summary ("accumulates
      within each block via standard residuals").
    - ``recency``: ``x = N(mix_k(c_0 … c_n, c))`` with ``c = b_0 + … + b_n + p`` the residual
      stream, ``c_i`` what it was at the end of run ``i``, and a learned bias ``r_k`` on the logit
      of ``c``, 3 at the start: the public code wdlctc/open-attention-residuals, made so that
      pre-trained weights can go on. Ours: the readout is a mix as well, where that code reads
      ``c`` out, and runs count sites, not blocks.
    """

    Config = BlockAttnResConfig
    start_distance: ClassVar[float | None] = 2e-7
    card: ClassVar[Card] = Card(
        family="depth attention",
        sources="sums of runs of branch outputs",
        weights="dynamic",
        own="4 d L",
        equation="x = N(Σ_i a_i v_i) over sums v of S = ceil(2L / blocks) neighbouring outputs",
        paper="arXiv 2603.15031",
    )

    def __init__(self, config: BlockAttnResConfig, shape: Shape, backbone: Backbone) -> None:
        super().__init__(config, shape, backbone)
        if config.definition == "recency":
            self.bias = nn.Parameter(torch.empty(self.mixes))

    def starts(self) -> dict[str, Start]:
        biased = self.config.definition == "recency"
        return super().starts() | ({"bias": constant(self.config.recency)} if biased else {})

    def distance_at_start(self) -> float | None:
        """None but for the paper's definition: the others weigh the running sum more."""
        return self.start_distance if self.config.definition == "paper" else None

    @property
    def run(self) -> int:
        return math.ceil(self.shape.sites / self.config.blocks)

    @property
    def mixes(self) -> int:
        if self.config.definition == "boundary":
            return math.ceil(self.shape.sites / self.run)
        return self.shape.sites

    def mixed(self, place: int) -> tuple[int, int]:
        inner = place % self.run > 0
        if self.config.definition == "paper" or place == 0:
            return super().mixed(place)
        if self.config.definition == "recency":
            return place // self.run + 2, 1
        if inner and place < self.shape.sites:
            return 0, 0
        return place // self.run + 1 + inner, int(inner)

    def open(self, embedding: Float[Tensor, "b t d"], context: Context) -> Sources:
        kinds: dict[str, type[Sources]] = {
            "paper": SumSources,
            "boundary": BoundarySources,
            "recency": RecencySources,
        }
        kind, queries = kinds[self.config.definition], self.query * self.gain
        opened = kind.opened(embedding, queries, self.backbone.norm_eps, self.run, self.kernels)
        return replace(opened, bias=self.bias) if isinstance(opened, RecencySources) else opened

    def expected_sources(self) -> int:
        sites = self.shape.sites
        size = -(-sites // self.config.blocks)
        counts = {
            "paper": lambda site: site // size + 1 + (site % size > 0),
            "boundary": lambda site: site // size + 1 + (site % size > 0),
            "recency": lambda site: 1 if site == 0 else site // size + 2,
        }
        return max(counts[self.config.definition](site) for site in range(sites))

    def expected_readout(self, outputs: list[Float[Tensor, "b t d"]]) -> Float[Tensor, "b t d"]:
        first, *rest = outputs
        size = -(-len(rest) // self.config.blocks)
        sums = [
            sum(rest[at : at + size], torch.zeros_like(first)) for at in range(0, len(rest), size)
        ]
        query, eps = self.query[-1] * self.gain[-1], self.backbone.norm_eps
        if self.config.definition != "recency":
            return softmax_mean([first, *sums], query, eps)
        whole = [first, *sums[: len(rest) // size]]
        states = [sum(whole[1 : n + 1], first) for n in range(len(whole))]
        return softmax_mean([*states, sum(rest, first)], query, eps, self.bias[-1].item())
