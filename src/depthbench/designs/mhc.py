"""Manifold-constrained Hyper-Connections: the mixing matrix is doubly stochastic."""

from typing import ClassVar, Literal, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from depthbench.designs.base import Card, Fact, Site
from depthbench.designs.fast_sinkhorn import sinkhorn_fast
from depthbench.designs.manifold import ManifoldConnection
from depthbench.designs.measure import farthest, filled, noise
from depthbench.designs.measure_streams import mixing, writing
from depthbench.designs.mergeable import MergeableConfig, MergeableDesign, joined_facts
from depthbench.designs.sinkhorn import sinkhorn_plain
from depthbench.nn.branch import Backbone
from depthbench.nn.kernels import fast
from depthbench.nn.parameters import Start, constant, values
from depthbench.shapes import Shape


class MHCConfig(MergeableConfig):
    """``start``: `identity` starts as `prenorm`, up to the norms' eps; `paper` as published."""

    name: str = "mhc"
    start: Literal["identity", "paper"] = "identity"
    rounds: int = Field(default=20, ge=1)
    """Of Sinkhorn's normalisation of rows and columns."""
    gate: float = Field(default=0.01, gt=0)
    """Start of the three gates on the dynamic part."""


@final
class MHCConnection(ManifoldConnection):
    """``x = N(Σ_i σ(α̃_i) H_i)``, new ``H_j = Σ_i Sinkhorn(Ã)[i, j] H_i + 2σ(β̃_j) y``."""

    def __init__(self, config: MHCConfig, site: Site, shape: Shape, backbone: Backbone) -> None:
        m = config.made
        super().__init__(config, (m, m), shape, backbone)
        self.first = site.number % m

    def bias_starts(self) -> dict[str, Start]:
        m = self.made
        high, on, off = {"identity": (8.0, 0.0, -8.0), "paper": (3.0, 3.0, -3.0)}[self.config.start]
        return {
            "bias_read": values([high if i == self.first else -high for i in range(m)]),
            "bias_write": constant(0.0),
            "bias_mix": values([[on if i == j else off for j in range(m)] for i in range(m)]),
        }

    def mix(self, logits: Float[Tensor, "b t s s"]) -> Float[Tensor, "b t s s"]:
        if fast(logits):
            return sinkhorn_fast(logits, rounds=self.config.rounds)
        return sinkhorn_plain(logits, self.config.rounds)


@final
class MHC(MergeableDesign):
    """Manifold-constrained Hyper-Connections (arXiv 2512.24880)."""

    Config = MHCConfig
    start_distance: ClassVar[float | None] = 5e-10
    sums_branches: ClassVar[bool] = True
    card: ClassVar[Card] = Card(
        family="streams",
        sources="m streams",
        weights="dynamic",
        own="2 L (m d + 1)(m² + 2 m) + 6 L",
        equation="x = N(Σ σ(α̃_i) H_i); H_j ← Σ_i Sinkhorn(Ã)_ij H_i + 2σ(β̃_j) y",
        paper="arXiv 2512.24880",
    )

    def mixing_error(self) -> float | None:
        """Sinkhorn's error falls with its rounds; how far it is off depends on the logits."""
        return None if self.merged else 2 / self.config.rounds

    def connection(self, site: Site) -> MHCConnection:
        return MHCConnection(self.config, site, self.shape, self.backbone)

    @torch.no_grad()
    def facts(self) -> list[Fact]:
        """Sums of the mixing matrix, and what a write does where its logit is 0.

        Few rounds make only the columns exact, so logits are small here, for the rows.
        """
        connection = filled(self.connection(Site(0, self.shape.layers)))
        if self.merged:
            connection.gates.zero_()
            matrix = connection.mix(connection.bias_mix.expand(1, 1, *connection.bias_mix.shape))
            return joined_facts(connection, matrix[0, 0], 2 * connection.bias_write.sigmoid())
        for parameter in connection.parameters():
            parameter.mul_(0.02)
        state = noise(1, 1, self.streams, self.shape.width)
        matrix = mixing(connection, state)
        connection.gates.zero_()
        connection.bias_write.zero_()
        ones = torch.ones(self.streams, dtype=matrix.dtype)
        return [
            Fact("column sums from 1, at most", farthest(matrix.sum(0), ones), 0.0),
            Fact("row sums from 1, at most", farthest(matrix.sum(1), ones), 0.0, tolerance=1e-3),
            Fact("output in a stream at logit 0", writing(connection, state)[0].item(), 1.0),
        ]
