"""mHC-lite: the mixing matrix is a weighted mean of permutations, so exactly doubly stochastic."""

import itertools
import math
from typing import Any, ClassVar, Literal, final

import torch
from jaxtyping import Float
from pydantic import Field, field_validator
from torch import Tensor

from depthbench.designs.base import Card, Fact, Site
from depthbench.designs.manifold import ManifoldConnection
from depthbench.designs.measure import farthest, filled, noise
from depthbench.designs.measure_streams import mixing
from depthbench.designs.mergeable import MergeableConfig, MergeableDesign, joined_facts
from depthbench.nn.branch import Backbone
from depthbench.nn.parameters import Start, constant, values
from depthbench.nn.precision import full_precision
from depthbench.nn.work import Work
from depthbench.shapes import Shape

MOST_STREAMS = 5


class MHCLiteConfig(MergeableConfig):
    """``start``: `identity` starts as `prenorm`, up to the norms' eps; `paper` as published."""

    name: str = "mhc_lite"
    streams: int = Field(default=4, ge=1, le=MOST_STREAMS)
    """`m`, the number of streams."""
    merged_from: int | None = Field(default=None, ge=2, le=MOST_STREAMS, examples=[5])
    """As in `hc`."""
    start: Literal["identity", "paper"] = "identity"
    gate: float = Field(default=0.01, gt=0)
    """Start of the three gates on the dynamic part."""

    @field_validator("streams", mode="before")
    @classmethod
    def _few(cls, value: Any) -> Any:
        if isinstance(value, int) and value > MOST_STREAMS:
            raise ValueError(
                f"each site weighs all permutations of the streams, {math.factorial(value):,} of "
                f"{value}. Set streams = {MOST_STREAMS} or fewer, or choose design 'mhc'"
            )
        return value


@final
class MHCLiteConnection(ManifoldConnection):
    """``x = N(Σ_i σ(α̃_i) H_i)``, new ``H_j = Σ_i A[i, j] H_i + 2σ(β̃_j) y`` with
    ``A = Σ_k softmax(ã)_k P_k``.

    ``P_k`` are all ``m!`` permutation matrices in lexicographic order, the identity first: old
    stream ``i`` goes to new stream ``k(i)``.
    """

    def __init__(self, config: MHCLiteConfig, site: Site, shape: Shape, backbone: Backbone) -> None:
        m = config.made
        super().__init__(config, (math.factorial(m),), shape, backbone)
        self.first = site.number % m

    def bias_starts(self) -> dict[str, Start]:
        m, of_prenorm = self.made, self.config.start == "identity"
        high = 8.0 if of_prenorm else 1.0
        chosen = values([high if i == self.first else -high for i in range(m)])
        return {
            "bias_read": chosen,
            "bias_write": constant(0.0) if of_prenorm else chosen,
            "bias_mix": values([0.0] + [-8.0] * (math.factorial(m) - 1)),
        }

    def mix(self, logits: Float[Tensor, "b t k"]) -> Float[Tensor, "b t s s"]:
        m = self.made
        weights = torch.softmax(logits, dim=-1)
        matrices = torch.tensor(
            [
                [float(j == to) for to in order for j in range(m)]
                for order in itertools.permutations(range(m))
            ],
            dtype=weights.dtype,
            device=weights.device,
        )
        with full_precision(weights):
            return (weights @ matrices).unflatten(-1, (m, m))

    def work(self, length: int) -> Work:
        combined = 2 * length * self.bias_mix.numel() * self.made**2
        return super().work(length) + Work(products=combined)


@final
class MHCLite(MergeableDesign):
    """mHC-lite (arXiv 2601.05732): `mhc` with convex combinations of permutations for Sinkhorn.

    By Birkhoff and von Neumann these are all doubly stochastic matrices. `paper` starts with
    ``α̃ = β̃ = 1`` on one stream and -1 on the others, and -8 on all permutations but the identity;
    which stream that is (``ℓ mod m``) and the start `identity`, as `mhc`'s, are ours.
    """

    Config = MHCLiteConfig
    start_distance: ClassVar[float | None] = 5e-12
    sums_branches: ClassVar[bool] = True
    card: ClassVar[Card] = Card(
        family="streams",
        sources="m streams",
        weights="dynamic",
        own="2 L (m d + 1)(m! + 2 m) + 6 L",
        equation="x = N(Σ σ(α̃_i) H_i); H_j ← Σ_i A_ij H_i + 2σ(β̃_j) y, "
        "A = Σ_k softmax(ã)_k P_k over all permutations",
        paper="arXiv 2601.05732",
    )

    def distance_at_start(self) -> float | None:
        return self.start_distance if self.config.start == "identity" else None

    def mixing_error(self) -> float | None:
        """Of rounding alone."""
        return None if self.merged else 1e-12

    def connection(self, site: Site) -> MHCLiteConnection:
        return MHCLiteConnection(self.config, site, self.shape, self.backbone)

    @torch.no_grad()
    def facts(self) -> list[Fact]:
        """Sums of a mixing matrix of widely spread logits, and its entries at equal logits."""
        connection = filled(self.connection(Site(0, self.shape.layers)))
        if self.merged:
            connection.gates.zero_()
            matrix = connection.mix(connection.bias_mix.expand(1, 1, *connection.bias_mix.shape))
            return joined_facts(connection, matrix[0, 0], 2 * connection.bias_write.sigmoid())
        state = noise(1, 1, self.streams, self.shape.width)
        matrix = mixing(connection, state)
        connection.gates.zero_()
        connection.bias_mix.zero_()
        equal = mixing(connection, state)
        ones = torch.ones(self.streams, dtype=matrix.dtype)
        return [
            Fact("column sums from 1, at most", farthest(matrix.sum(0), ones), 0.0),
            Fact("row sums from 1, at most", farthest(matrix.sum(1), ones), 0.0),
            Fact("entries from 1/m at equal logits", farthest(equal, ones / self.streams), 0.0),
        ]
