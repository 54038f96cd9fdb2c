"""Merging by a low-rank projection: what a stream carried goes to the others through rank d/2."""

from typing import ClassVar, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from depthbench.nn.block import Block
from depthbench.nn.model import Model
from depthbench.probes.batch import Batch
from depthbench.probes.loss import mean_loss
from depthbench.streams.merge.plan import fewer_of, with_fewer
from depthbench.streams.merge.way import Merging, Way
from depthbench.streams.tune import Pupil, TuneConfig


class Projections(nn.Module):
    """``y + γ_ℓ U V y`` behind every branch: one pair of matrices, a factor for each site."""

    def __init__(self, sites: int, width: int, rank: int, like: Tensor, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        down = torch.randn(rank, width, generator=generator) * width**-0.5
        place = {"dtype": like.dtype, "device": like.device}
        self.down = nn.Parameter(down.to(**place))
        self.up = nn.Parameter(torch.zeros(width, rank, **place))
        self.factors = nn.Parameter(torch.ones(sites, **place))

    def forward(self, site: int, y: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        """What stands behind the branch of ``site``."""
        moved = nn.functional.linear(nn.functional.linear(y, self.down), self.up)
        return y + self.factors[site].to(y.dtype) * moved

    @torch.no_grad()
    def fold(self, model: Model) -> None:
        """Into the last matrices of every branch: ``W ← W + γ_ℓ U V W``."""
        change = self.up @ self.down
        for number, block in enumerate(model.blocks):
            assert isinstance(block, Block)
            for side, (branch, _) in enumerate(block.pairs()):
                factor = self.factors[2 * number + side]
                for matrix in branch.last():
                    matrix.weight.add_(factor * (change @ matrix.weight))


@final
class Projection(Way):
    """The kept streams go on; a projection of rank ``d/2`` behind each branch, shared by all sites,
    puts into them what the merged ones carried. 10 % of the peak rate: the projection alone for
    the first half of 800 steps, then everything; at the end it is folded into the branches' last
    matrices, so that the model is no larger.
    """

    name: ClassVar[str] = "projection"
    title: ClassVar[str] = "low-rank projection"
    definition: ClassVar[str] = (
        "a projection of rank d/2 behind each branch makes up for the merged streams: trained "
        "first alone, then with everything, then folded into the branches"
    )
    tune: TuneConfig | None = TuneConfig(steps=800, rate=0.1, warmup=40)
    rank_share: float = Field(default=0.5, gt=0, le=1)
    """Rank of the projection over the width."""
    alone: float = Field(default=0.5, ge=0, le=1)
    """Share of the steps in which nothing else moves."""

    def merge(self, merging: Merging) -> tuple[Model, list[float]]:
        assert self.tune is not None
        model = with_fewer(merging.model, fewer_of(merging.alike, merging.into, exact=False))
        shape = model.config.shape
        rank = max(1, round(self.rank_share * shape.width))
        weight = model.embed.weight
        beside = Projections(2 * shape.layers, shape.width, rank, weight, self.seed)
        first = round(self.alone * self.tune.steps)

        def loss(batch: Batch, step: int) -> Tensor:
            return mean_loss(batch, model(batch.tokens, tap=lambda site, x, y: beside(site, y)))

        def trained(step: int, name: str) -> bool:
            return step >= first or name.startswith("extra.")

        losses = self.train(merging, Pupil(model, beside), loss, trained)
        beside.fold(model)
        return model, losses
