"""Hyper-Connections: several streams, read, mixed and written with static and dynamic weights."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from depthbench.designs.base import Card, DesignConfig, Fact, Site
from depthbench.designs.fast_streams import normed_projection_fast
from depthbench.designs.measure import filled, noise
from depthbench.designs.measure_streams import mixing, tanh_of_normed, writing
from depthbench.designs.mergeable import (
    Joining,
    MergeableConfig,
    MergeableConnection,
    MergeableDesign,
    joined_facts,
    standing_for,
)
from depthbench.designs.streams import StreamRoute
from depthbench.nn.branch import Backbone
from depthbench.nn.kernels import fast
from depthbench.nn.norm import RMSNorm
from depthbench.nn.parameters import Start, constant, values, zeros
from depthbench.nn.precision import at_least_float32, full_precision
from depthbench.nn.work import Work
from depthbench.shapes import Shape


class HyperConnectionConfig(MergeableConfig):
    """``mix = false`` leaves ``A`` out of the write, ``dynamic = false`` the input's influence."""

    name: str = "hc"
    mix: bool = True
    dynamic: bool = True
    scale: float = Field(default=0.01, gt=0)
    """Start of the factors on the dynamic part."""


@final
class HyperConnection(MergeableConnection):
    """``x = N(Σ_i α_i H_i)``, new ``H_j = Σ_i A[i, j] H_i + β_j y``.

    Each of ``α``, ``A``, ``β`` is a static part plus ``scale · tanh(norm(H) W)``, with one norm
    for each stream and ``W`` of ``d × (1 [+ m] + 1)``: columns for ``α``, for ``A``, for ``β``.
    After a merge, ``tanh(norm(H') W)`` of a carried stream is that of those it stands for.
    """

    def __init__(
        self, config: HyperConnectionConfig, site: Site, shape: Shape, backbone: Backbone
    ) -> None:
        super().__init__(config, shape, backbone)
        self.config = config
        self.first = site.number % config.made
        m, d = config.made, shape.width
        self.static_read = nn.Parameter(torch.empty(m))
        self.static_write = nn.Parameter(torch.empty(m))
        if config.mix:
            self.static_mix = nn.Parameter(torch.empty(m, m))
        if config.dynamic:
            self.norm_streams = RMSNorm(d, backbone.norm_eps)
            self.dynamic = nn.Parameter(torch.empty(2 + m * config.mix, d))
            self.scale_read = nn.Parameter(torch.empty(()))
            self.scale_write = nn.Parameter(torch.empty(()))
            if self.joining is not None:
                self.lookup = nn.Parameter(torch.empty(m, config.streams))

    def starts(self) -> dict[str, Start]:
        m = self.config.made
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
            if self.joining is not None:
                starts["lookup"] = values(standing_for(m, self.config.streams))
        return starts

    def route(self, streams: Float[Tensor, "b t s d"]) -> StreamRoute:
        """``α``, ``A`` and ``β`` for these streams, in float32 or better."""
        if self.joining is not None:
            return self.joined_route(streams, self.joining)
        mix = self.static_mix if self.config.mix else None
        read, write = self.static_read, self.static_write
        if self.config.dynamic:
            change = self.change(streams)
            read = torch.addcmul(read, self.scale_read, change[0][..., 0])
            write = torch.addcmul(write, self.scale_write, change[2][..., 0])
            if mix is not None:
                mix = torch.addcmul(mix, self.scale_read, change[1])
        return StreamRoute(read=read, mix=mix, write=write)

    def joined_route(self, streams: Float[Tensor, "b t s d"], joining: Joining) -> StreamRoute:
        """After a merge: what is made for ``m`` streams, added up for the carried ones.

        The dynamic part of stream ``i`` is that of the streams that stand for it, ``lookup[i, k]``
        of each: ``α' = Eᵀ (α + scale · lookup · tanh(…))``, and so on.
        """
        mix = self.static_mix if self.config.mix else None
        static = joining(StreamRoute(read=self.static_read, mix=mix, write=self.static_write))
        if not self.config.dynamic:
            return static
        assert static.mix is not None
        change, linear = self.change(streams), nn.functional.linear
        with full_precision(streams):
            expand, collect, lookup, by_read, by_write = map(
                at_least_float32,
                (joining.expand, joining.collect, self.lookup, self.scale_read, self.scale_write),
            )
            of_read, of_write = expand.mT @ lookup, collect.mT @ lookup
            if mix is not None:
                both = torch.kron(of_read, collect.mT.contiguous())
                mix = linear(change[1].flatten(-2), by_read * both, static.mix.flatten())
                mix = mix.unflatten(-1, static.mix.shape)
            return StreamRoute(
                read=linear(change[0][..., 0], by_read * of_read, static.read),
                mix=static.mix if mix is None else mix,
                write=linear(change[2][..., 0], by_write * of_write, static.write),
            )

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

    def coefficients_into(
        self, new: Any, expand: Float[Tensor, "m s"], collect: Float[Tensor, "m s"]
    ) -> None:
        if self.config.dynamic:
            new.norm_streams.gain.copy_(self.norm_streams.gain)
        if new.joining is None:
            self.plain_into(new, expand, collect)
            return
        kept = dict(self.named_parameters(recurse=False))
        lookup = kept.pop("lookup", None)
        for name, parameter in kept.items():
            new.get_parameter(name).copy_(parameter)
        if self.config.dynamic:
            # tanh is odd and the norm blind to scale: a stream's sign is all that is left of it
            signs = expand / expand.abs().sum(1, keepdim=True).clamp(min=torch.finfo().tiny)
            new.lookup.copy_(signs if lookup is None else lookup.to(signs) @ signs)

    def plain_into(
        self, new: Any, expand: Float[Tensor, "m s"], collect: Float[Tensor, "m s"]
    ) -> None:
        """Without a `Joining`: the static part added up, the dynamic one as near as it goes.

        ``W`` of a mean of streams is the mean of theirs, and all streams share one scale.
        """
        if self.joining is not None:
            expand = self.joining.expand.to(expand) @ expand
            collect = self.joining.collect.to(collect) @ collect
        new.static_read.copy_(self.static_read.to(expand) @ expand)
        new.static_write.copy_(self.static_write.to(collect) @ collect)
        if self.config.mix:
            new.static_mix.copy_(expand.mT @ self.static_mix.to(expand) @ collect)
        if self.config.dynamic:
            rows = self.dynamic.to(collect)
            read, mix, write = rows.split([1, len(rows) - 2, 1])
            size = collect.sum(0)
            mixed = (collect / size).mT @ mix if self.config.mix else mix
            new.dynamic.copy_(torch.cat([read, mixed, write]))
            new.scale_read.copy_(self.scale_read * expand.sum(0).mean())
            new.scale_write.copy_(self.scale_write * size.mean())

    def work(self, length: int) -> Work:
        """One projection of every stream, the read, the mix and the write."""
        joined = self.joining_work(length, mixed=self.config.mix or self.joining is not None)
        if self.joining is not None:
            joined += self.joining.work(1, int(self.config.mix))
        if not self.config.dynamic:
            return joined
        size, looked = self.streams**2, 0
        if self.joining is not None:
            looked = 2 * size + size * self.streams * self.made * self.config.mix
            joined += Work(products=2 * 2 * self.made * size)
        projected = self.streams * self.dynamic.numel()
        return joined + Work(products=2 * length * (projected + looked))


@final
class HyperConnections(MergeableDesign):
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

    def fewer(self, kept: Sequence[int], exact: bool) -> DesignConfig:
        if exact:
            return super().fewer(kept, exact)
        return self.config.model_copy(update={"streams": len(kept), "merged_from": None})

    def connection(self, site: Site) -> HyperConnection:
        return HyperConnection(self.config, site, self.shape, self.backbone)

    @torch.no_grad()
    def facts(self) -> list[Fact]:
        """One entry of ``A`` and one of ``β``, as their equations say for a made-up state."""
        connection = filled(self.connection(Site(0, self.shape.layers)))
        if self.merged:
            for name, parameter in connection.named_parameters():
                if name.startswith("scale_"):
                    parameter.zero_()
            mix = connection.static_mix if self.config.mix else torch.eye(self.config.made).double()
            return joined_facts(connection, mix, connection.static_write)
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
