"""Hyper-Connections: several streams, read, mixed and written with static and dynamic weights."""

from dataclasses import replace
from typing import ClassVar, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from depthbench.designs.base import Card, DesignConfig, Fact, Site
from depthbench.designs.fast_streams import normed_projection_fast
from depthbench.designs.measure import filled, noise
from depthbench.designs.measure_streams import mixing, tanh_of_normed, writing
from depthbench.designs.stream_connection import StreamConnection
from depthbench.designs.streams import MixedStreamDesign, StreamRoute
from depthbench.nn.branch import Backbone
from depthbench.nn.kernels import fast
from depthbench.nn.norm import RMSNorm
from depthbench.nn.parameters import Start, constant, values, zeros
from depthbench.nn.precision import at_least_float32, full_precision
from depthbench.nn.work import Work
from depthbench.shapes import Shape


class HyperConnectionConfig(DesignConfig):
    """``mix = false`` leaves ``A`` out of the write, ``dynamic = false`` the input's influence."""

    name: str = "hc"
    streams: int = Field(default=4, ge=1)
    """`m`, the number of streams."""
    mix: bool = True
    dynamic: bool = True
    scale: float = Field(default=0.01, gt=0)
    """Start of the factors on the dynamic part."""


@final
class HyperConnection(StreamConnection):
    """``x = N(Σ_i α_i H_i)``, new ``H_j = Σ_i A[i, j] H_i + β_j y``.

    Each of ``α``, ``A``, ``β`` is a static part plus ``scale · tanh(norm(H) W)``, with one norm
    for each stream and ``W`` of ``d × (1 [+ m] + 1)``: columns for ``α``, for ``A``, for ``β``.
    """

    def __init__(
        self, config: HyperConnectionConfig, site: Site, shape: Shape, backbone: Backbone
    ) -> None:
        super().__init__(config.streams, shape, backbone)
        self.config = config
        self.first = site.number % config.streams
        m, d = config.streams, shape.width
        self.static_read = nn.Parameter(torch.empty(m))
        self.static_write = nn.Parameter(torch.empty(m))
        if config.mix:
            self.static_mix = nn.Parameter(torch.empty(m, m))
        if config.dynamic:
            self.norm_streams = RMSNorm(d, backbone.norm_eps)
            self.dynamic = nn.Parameter(torch.empty(2 + m * config.mix, d))
            self.scale_read = nn.Parameter(torch.empty(()))
            self.scale_write = nn.Parameter(torch.empty(()))

    def starts(self) -> dict[str, Start]:
        m = self.config.streams
        starts = {
            "static_read": values([float(i == self.first) for i in range(m)]),
            "static_write": constant(1.0),
        }
        if self.config.mix:
            identity = values([[float(i == j) for j in range(m)] for i in range(m)])
            starts["static_mix"] = replace(identity, carried=True)
        if self.config.dynamic:
            dynamic = zeros(decay=True, over_width=True)
            starts["dynamic"] = replace(dynamic, carried=self.config.mix)
            starts["scale_write"] = constant(self.config.scale)
            starts["scale_read"] = replace(starts["scale_write"], carried=self.config.mix)
        return starts

    def route(self, streams: Float[Tensor, "b t s d"]) -> StreamRoute:
        """``α``, ``A`` and ``β`` for these streams, in float32 or better."""
        mix = self.static_mix if self.config.mix else None
        read, write = self.static_read, self.static_write
        if self.config.dynamic:
            change = self.change(streams)
            read = torch.addcmul(read, self.scale_read, change[0][..., 0])
            write = torch.addcmul(write, self.scale_write, change[2][..., 0])
            if mix is not None:
                mix = torch.addcmul(mix, self.scale_read, change[1])
        return StreamRoute(read=read, mix=mix, write=write)

    def change(self, streams: Float[Tensor, "b t s d"]) -> tuple[Tensor, ...]:
        """``tanh(norm(H) W)``, its columns for ``α``, for ``A`` and for ``β``."""
        if fast(streams):
            weight = at_least_float32(self.dynamic) * self.norm_streams.gain
            all_columns = torch.tanh(normed_projection_fast(streams, weight, self.norm_streams.eps))
        else:
            with full_precision(streams):
                normed = self.norm_streams(at_least_float32(streams))
                all_columns = torch.tanh(nn.functional.linear(normed, self.dynamic))
        return all_columns.split([1, len(self.dynamic) - 2, 1], dim=-1)

    def work(self, length: int) -> Work:
        """One projection of every stream, the read, the mix and the write."""
        joined = self.joining_work(length, mixed=self.config.mix)
        if not self.config.dynamic:
            return joined
        return joined + Work(products=2 * length * self.streams * self.dynamic.numel())


@final
class HyperConnections(MixedStreamDesign):
    """Hyper-Connections (arXiv 2409.19606), static and dynamic part.

    Starts as `prenorm`: ``α = e_(ℓ mod m)``, ``A = I``, ``β = 1``, ``W = 0``.
    """

    Config = HyperConnectionConfig
    start_distance: ClassVar[float | None] = 1e-14
    sums_branches: ClassVar[bool] = True
    card: ClassVar[Card] = Card(
        family="streams",
        sources="m streams",
        weights="dynamic",
        own="2 L (d (m + 3) + m² + 2 m + 2)",
        equation="x = N(Σ α_i H_i); H_j ← Σ_i A_ij H_i + β_j y; "
        "each coefficient static + scale·tanh(norm(H) W)",
        paper="arXiv 2409.19606",
    )

    def connection(self, site: Site) -> HyperConnection:
        return HyperConnection(self.config, site, self.shape, self.backbone)

    @torch.no_grad()
    def facts(self) -> list[Fact]:
        """One entry of ``A`` and one of ``β``, as their equations say for a made-up state."""
        connection = filled(self.connection(Site(0, self.shape.layers)))
        state = noise(1, 1, self.streams, self.shape.width)
        mix = connection.static_mix[0, -1] if self.config.mix else torch.eye(self.streams)[0, -1]
        write = connection.static_write[-1]
        if self.config.dynamic:
            connection.dynamic.mul_(self.shape.width**-0.5)
            gain, eps = connection.norm_streams.gain, self.backbone.norm_eps
            columns = connection.dynamic
            if self.config.mix:
                first = tanh_of_normed(columns[-2], state[0, 0, 0], gain, eps)
                mix = mix + connection.scale_read * first
            last = tanh_of_normed(columns[-1], state[0, 0, -1], gain, eps)
            write = write + connection.scale_write * last
        mixed, written = mixing(connection, state)[0, -1], writing(connection, state)[-1]
        return [
            Fact("first old stream in last new", mixed.item(), mix.item()),
            Fact("output in last new stream", written.item(), write.item()),
        ]
