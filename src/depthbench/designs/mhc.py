"""Manifold-constrained Hyper-Connections: the mixing matrix is doubly stochastic."""

from typing import ClassVar, Literal, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from depthbench.designs.base import Card, Connection, DesignConfig, Entry, Site
from depthbench.designs.fast_sinkhorn import sinkhorn_fast
from depthbench.designs.fast_streams import mix_and_write, normed_projection, read_streams
from depthbench.designs.sinkhorn import sinkhorn_plain
from depthbench.designs.streams import StreamDesign, StreamRoute
from depthbench.nn.branch import Backbone
from depthbench.nn.kernels import fast
from depthbench.nn.norm import RMSNorm
from depthbench.nn.parameters import Start, constant, values, zeros
from depthbench.nn.precision import full_precision
from depthbench.shapes import Shape


class MHCConfig(DesignConfig):
    """``start``: `identity` starts as `prenorm` (to about 1e-3 a site), `paper` as published."""

    name: str = "mhc"
    streams: int = Field(default=4, ge=1)
    start: Literal["identity", "paper"] = "identity"
    rounds: int = Field(default=20, ge=1)
    gate: float = Field(default=0.01, gt=0)
    """Start of the three gates on the dynamic part."""


@final
class MHCConnection(Connection[Tensor]):
    """``x = N(Σ_i σ(α̃_i) H_i)``, new ``H_j = Σ_i Sinkhorn(Ã)[i, j] H_i + 2σ(β̃_j) y``.

    Logits: the RMS-normed concatenation of all streams (no gain) times one projection to
    ``m + m + m²`` (α̃, β̃, Ã row by row), times a gate for each of the three, plus a bias.
    """

    def __init__(self, config: MHCConfig, site: Site, shape: Shape, backbone: Backbone) -> None:
        super().__init__()
        self.config = config
        self.eps = backbone.norm_eps
        self.first = site.number % config.streams
        m, d = config.streams, shape.width
        self.norm = RMSNorm(d, backbone.norm_eps)
        self.projection = nn.Parameter(torch.empty(m * m + 2 * m, m * d))
        self.gates = nn.Parameter(torch.empty(3))
        self.bias_read = nn.Parameter(torch.empty(m))
        self.bias_write = nn.Parameter(torch.empty(m))
        self.bias_mix = nn.Parameter(torch.empty(m, m))

    def starts(self) -> dict[str, Start]:
        m = self.config.streams
        high, on, off = {"identity": (8.0, 0.0, -8.0), "paper": (3.0, 3.0, -3.0)}[self.config.start]
        return {
            "projection": zeros(decay=True),
            "gates": constant(self.config.gate),
            "bias_read": values([high if i == self.first else -high for i in range(m)]),
            "bias_write": constant(0.0),
            "bias_mix": values([[on if i == j else off for j in range(m)] for i in range(m)]),
        }

    def logits(
        self, streams: Float[Tensor, "b t s d"]
    ) -> tuple[Float[Tensor, "b t s"], Float[Tensor, "b t s"], Float[Tensor, "b t s s"]]:
        """``α̃``, ``β̃`` and ``Ã``, in float32 or better."""
        m = self.config.streams
        product = normed_projection(streams.flatten(2), self.projection, self.eps)
        read, write, mix = product.split([m, m, m * m], dim=-1)
        return (
            self.gates[0] * read + self.bias_read,
            self.gates[1] * write + self.bias_write,
            self.gates[2] * mix.unflatten(-1, (m, m)) + self.bias_mix,
        )

    def read(self, state: Float[Tensor, "b t s d"]) -> tuple[Float[Tensor, "b t d"], StreamRoute]:
        read, write, mix = self.logits(state)
        route = StreamRoute(
            read=torch.sigmoid(read),
            mix=sinkhorn_fast(mix, rounds=self.config.rounds)
            if fast(state)
            else sinkhorn_plain(mix, self.config.rounds),
            write=2 * torch.sigmoid(write),
        )
        assert route.read is not None
        return self.norm(read_streams(state, route.read)), route

    def write(
        self,
        state: Float[Tensor, "b t s d"],
        y: Float[Tensor, "b t d"],
        route: StreamRoute,
        entry: Entry | None,
    ) -> Float[Tensor, "b t s d"]:
        assert route.write is not None
        with full_precision(state):
            return mix_and_write(state, route.mix, y, route.write)


@final
class MHC(StreamDesign):
    """Manifold-constrained Hyper-Connections (arXiv 2512.24880)."""

    Config = MHCConfig
    start_distance: ClassVar[float | None] = 5e-10
    card: ClassVar[Card] = Card(
        family="streams",
        sources="m streams",
        weights="dynamic",
        own="2 L (m d + 1)(m² + 2 m) + 6 L",
        equation="x = N(Σ σ(α̃_i) H_i); H_j ← Σ_i Sinkhorn(Ã)_ij H_i + 2σ(β̃_j) y",
        paper="arXiv 2512.24880",
    )

    def connection(self, site: Site) -> MHCConnection:
        return MHCConnection(self.config, site, self.shape, self.backbone)
