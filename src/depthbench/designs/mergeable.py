"""Mixed streams of which some have been merged: fewer are carried than coefficients are made for.

``m`` streams ``H`` are stood for by ``s < m`` carried ones: ``H ≈ E H'`` at a site, and
``H' = Cᵀ H``. What a site reads, mixes and writes of ``H`` then follows for ``H'``:
``α' = Eᵀ α``, ``A' = Eᵀ A C``, ``β' = Cᵀ β``. Where ``H = E H'`` holds, nothing is lost.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, final

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from depthbench.designs.base import DesignConfig, Fact, Fewer
from depthbench.designs.measure import noise
from depthbench.designs.measure_streams import mixing, writing
from depthbench.designs.stream_connection import StreamConnection
from depthbench.designs.streams import MixedStreamDesign, StreamRoute
from depthbench.nn.branch import Backbone, Context
from depthbench.nn.parameters import Parametrised, Start, values
from depthbench.nn.precision import at_least_float32, full_precision
from depthbench.nn.work import Work
from depthbench.shapes import Shape


class MergeableConfig(DesignConfig):
    """Number of streams, also after a merge."""

    streams: int = Field(default=4, ge=1)
    """`m`, the number of streams."""
    merged_from: int | None = Field(default=None, ge=2, examples=[6])
    """Streams before some were merged into others: coefficients are made for so many and then
    added up, and readout and embedding weigh each stream. None = as many as `streams`."""

    @model_validator(mode="after")
    def _fewer(self) -> "MergeableConfig":
        if self.merged_from is not None and self.merged_from <= self.streams:
            raise ValueError(
                f"merged_from = {self.merged_from} is not more than streams = {self.streams}. "
                "Leave it out for a model whose streams were never merged"
            )
        return self

    @property
    def made(self) -> int:
        """Streams that coefficients are made for."""
        return self.merged_from or self.streams


def standing_for(made: int, streams: int) -> list[list[float]]:
    """``E`` of a new model: stream ``i`` is stood for by ``i mod s``."""
    return [[float(i % streams == k) for k in range(streams)] for i in range(made)]


def sizes(made: int, streams: int) -> list[int]:
    """How many streams each carried one of a new model stands for."""
    return [len(range(k, made, streams)) for k in range(streams)]


@final
class Joining(Parametrised):
    """``E`` and ``C`` of one site. It starts with equal streams in each group, and their mean."""

    def __init__(self, made: int, streams: int) -> None:
        super().__init__()
        self.expand = nn.Parameter(torch.empty(made, streams))
        self.collect = nn.Parameter(torch.empty(made, streams))

    def starts(self) -> dict[str, Start]:
        made, streams = self.expand.shape
        one = standing_for(made, streams)
        counts = sizes(made, streams)
        means = [[entry / count for entry, count in zip(row, counts, strict=True)] for row in one]
        return {"expand": values(one), "collect": values(means)}

    def forward(self, route: StreamRoute) -> StreamRoute:
        """The carried streams' ``α'``, ``A'`` and ``β'`` from all streams' ``α``, ``A``, ``β``."""
        assert route.read is not None
        assert route.write is not None
        with full_precision(self.expand):
            expand, collect = at_least_float32(self.expand), at_least_float32(self.collect)
            if route.mix is None:
                # H_j ← H_j + β_j y
                mix = expand.mT @ collect
            else:
                # one skinny product over all tokens instead of two small ones for each
                both = torch.kron(expand.mT.contiguous(), collect.mT.contiguous())
                mix = nn.functional.linear(at_least_float32(route.mix).flatten(-2), both)
                mix = mix.unflatten(-1, (self.expand.shape[1],) * 2)
            read, write = at_least_float32(route.read), at_least_float32(route.write)
            return StreamRoute(read=read @ expand, mix=mix, write=write @ collect)

    def work(self, routes: int, mixes: int) -> Work:
        """Of `forward` on so many ``α`` and ``β``, and so many ``A``."""
        size = self.expand.numel()
        return Work(products=2 * size * (2 * routes + size * mixes))

    @torch.no_grad()
    def follow(self, old: "Joining | None", expand: Tensor, collect: Tensor) -> None:
        """Stand for what ``old`` does on streams that are in terms of these ones."""
        self.expand.copy_(expand if old is None else old.expand @ expand)
        self.collect.copy_(collect if old is None else old.collect @ collect)


@torch.no_grad()
def joined_facts(
    connection: "MergeableConnection", mix: Float[Tensor, "m m"], write: Float[Tensor, "m"]
) -> list[Fact]:
    """What a site with these ``A`` and ``β`` of all streams does to those that are carried."""
    joining = connection.joining
    assert joining is not None
    state = noise(1, 1, connection.streams, connection.width)
    mixed = joining.expand.mT @ mix @ joining.collect
    return [
        Fact(
            "first carried stream in the last new one",
            mixing(connection, state)[0, -1].item(),
            mixed[0, -1].item(),
        ),
        Fact(
            "output in the last new carried stream",
            writing(connection, state)[-1].item(),
            (write @ joining.collect)[-1].item(),
        ),
    ]


class MergeableConnection(StreamConnection, ABC):
    """A stream connection that makes coefficients for ``made`` streams."""

    def __init__(self, config: Any, shape: Shape, backbone: Backbone) -> None:
        super().__init__(config.streams, shape, backbone)
        self.made: int = config.made
        merged = config.merged_from is not None
        self.joining = Joining(self.made, self.streams) if merged else None

    def joined(self, route: StreamRoute) -> StreamRoute:
        """The coefficients of the streams that are carried."""
        return route if self.joining is None else self.joining(route)

    @abstractmethod
    def coefficients_into(self, new: Any, expand: Float[Tensor, "m s"], collect: Any) -> None:
        """Give ``new`` the coefficients of this one, for streams ``H = E H'`` and ``H' = Cᵀ H``."""

    @torch.no_grad()
    def fewer_into(
        self, new: Any, expand: Float[Tensor, "m s"], collect: Float[Tensor, "m s"]
    ) -> None:
        """Give ``new``, which carries fewer streams, what makes it do the same as this one.

        With a `Joining` it is exact where ``H = E H'`` with one entry in each row of ``E``, up to
        the norms' eps.
        """
        new.norm.gain.copy_(self.norm.gain)
        if new.joining is not None:
            new.joining.follow(self.joining, expand, collect)
        self.coefficients_into(new, expand, collect)


class MergeableDesign(MixedStreamDesign, ABC):
    """Mixed streams, some of which may have been merged.

    Then ``H'_k`` starts as ``opening_k`` times the embedding, and the readout is
    ``Σ_k ending_k H'_k``. What holds of the coefficients of all streams (that they are doubly
    stochastic, say) does not hold of the carried ones'.
    """

    averages_streams: ClassVar[bool] = True

    def __init__(self, config: Any, shape: Shape, backbone: Backbone) -> None:
        super().__init__(config, shape, backbone)
        self.merged = config.merged_from is not None
        if self.merged:
            self.opening = nn.Parameter(torch.empty(config.streams))
            self.ending = nn.Parameter(torch.empty(config.streams))

    def starts(self) -> dict[str, Start]:
        if not self.merged:
            return {}
        made, streams = self.config.made, self.config.streams
        shares = [count / made for count in sizes(made, streams)]
        return {"opening": values([1.0] * streams), "ending": values(shares)}

    def open(self, embedding: Float[Tensor, "b t d"], context: Context) -> Float[Tensor, "b t s d"]:
        if not self.merged:
            return super().open(embedding, context)
        return self.opening.to(embedding.dtype).unsqueeze(-1) * embedding.unsqueeze(2)

    def readout(self, state: Float[Tensor, "b t s d"]) -> Float[Tensor, "b t d"]:
        if not self.merged:
            return super().readout(state)
        return (self.ending.unsqueeze(-1) * state).sum(2).to(state.dtype)

    def reads_out_mean(self) -> bool:
        return not self.merged

    def fewer(self, kept: Sequence[int], exact: bool) -> DesignConfig:
        return self.config.model_copy(
            update={"streams": len(kept), "merged_from": self.config.made}
        )

    @torch.no_grad()
    def fewer_into(self, new: Any, fewer: Fewer) -> None:
        if not new.merged:
            return
        ones = torch.ones(self.streams)
        opening = self.opening if self.merged else ones
        ending = self.ending if self.merged else ones / self.streams
        new.opening.copy_(opening.to(fewer.collect) @ fewer.collect)
        new.ending.copy_(ending.to(fewer.readout) @ fewer.readout)
