"""Multi-path cascade: streams of four granularities, from the token to the document."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, final

import torch
from jaxtyping import Float
from pydantic import Field, field_validator
from torch import Tensor, nn

from depthbench.designs.base import (
    Card,
    Connection,
    Design,
    DesignConfig,
    Entry,
    Fact,
    Fewer,
    Site,
)
from depthbench.designs.measure import filled
from depthbench.designs.pools import PoolMemory, Spans, StartMemory, spans_of
from depthbench.designs.streams import StreamRoute
from depthbench.nn.branch import Backbone, Context
from depthbench.nn.cache import Room
from depthbench.nn.norm import RMSNorm
from depthbench.nn.parameters import Start, constant, values
from depthbench.nn.work import Work
from depthbench.shapes import Shape

STREAMS = ("token", "chunk", "sentence", "task")
POOLING = 2
"""Operations of a pool for each entry: one sum and one division."""


class CascadeConfig(DesignConfig):
    """Spans of the pools, in tokens."""

    name: str = "cascade"
    chunk: int = Field(default=8, ge=1)
    """Of the pool that is a mean over the last positions."""
    sentence_window: int = Field(default=64, ge=1)
    """Instead of sentences, where the tokenizer names none of their ends."""
    streams: tuple[Literal["token", "chunk", "sentence", "task"], ...] = Field(
        default=STREAMS, min_length=1, examples=[("token", "task"), ("chunk",)]
    )
    """Those that there are; fewer after a merge."""

    @field_validator("streams")
    @classmethod
    def _in_order(cls, streams: tuple[str, ...]) -> tuple[str, ...]:
        known = tuple(name for name in STREAMS if name in streams)
        if known != streams:
            raise ValueError(f"streams = {streams} must each be named once, in the order {STREAMS}")
        return streams

    @property
    def kept(self) -> tuple[int, ...]:
        """Their places among all four."""
        return tuple(STREAMS.index(name) for name in self.streams)

    @property
    def pools(self) -> int:
        """Those that are means of several tokens."""
        return sum(name != STREAMS[0] for name in self.streams)


@dataclass(frozen=True)
class Granular:
    """The streams, and what their pools need to know of the text."""

    streams: Float[Tensor, "b t s d"]
    spans: Spans
    context: Context


def pool_memory(config: CascadeConfig, shape: Shape, room: Room) -> PoolMemory:
    """Last vectors of the chunk and of a sentence without marks; else one sum each."""
    sentence = 1 if room.marks.sentence_ends else config.sentence_window - 1
    sizes = (0, config.chunk - 1, sentence, 1)
    return PoolMemory(room, shape.width, [sizes[place] for place in config.kept])


def gated(gates: Float[Tensor, "s"], streams: Float[Tensor, "b t s d"]) -> Float[Tensor, "b t d"]:
    """``Σ_g gate_g H_g``."""
    return (gates.unsqueeze(-1) * streams).sum(2)


def first_of(config: CascadeConfig) -> Start:
    """Gates that let the first stream through alone: the token's, where there is one."""
    return values([1.0] + [0.0] * (len(config.streams) - 1))


@final
class CascadeConnection(Connection[Granular]):
    """``x = N(Σ_g a_g H_g)``, ``H_g ← H_g + β_g pool_g(y)``."""

    def __init__(self, config: CascadeConfig, site: Site, shape: Shape, backbone: Backbone) -> None:
        super().__init__()
        self.config = config
        self.shape = shape
        self.number = site.number
        self.norm = RMSNorm(shape.width, backbone.norm_eps)
        self.read_gates = nn.Parameter(torch.empty(len(config.streams)))
        self.write_gates = nn.Parameter(torch.empty(len(config.streams)))

    def starts(self) -> dict[str, Start]:
        return {"read_gates": first_of(self.config), "write_gates": constant(1.0)}

    def read(self, state: Granular) -> tuple[Float[Tensor, "b t d"], StreamRoute]:
        route = StreamRoute(read=self.read_gates, write=self.write_gates)
        return self.norm(self.mixed(state, route)), route

    def input_norm(self) -> RMSNorm:
        return self.norm

    def mixed(self, state: Granular, route: StreamRoute) -> Float[Tensor, "b t d"]:
        return gated(self.read_gates, state.streams)

    def write(
        self, state: Granular, y: Float[Tensor, "b t d"], route: StreamRoute, entry: Entry | None
    ) -> Granular:
        assert route.write is not None
        cache = state.context.cache
        memory = None if cache is None else cache.connections[self.number]
        assert memory is None or isinstance(memory, PoolMemory)
        pooled = state.spans.pool(y, memory)
        streams = state.streams + route.write.unsqueeze(-1) * pooled
        return replace(state, streams=streams.to(state.streams.dtype))

    @torch.no_grad()
    def fewer_into(
        self, new: Any, expand: Float[Tensor, "m s"], collect: Float[Tensor, "m s"]
    ) -> None:
        new.norm.gain.copy_(self.norm.gain)
        new.read_gates.copy_(self.read_gates.to(expand) @ expand)
        new.write_gates.copy_(self.write_gates.to(collect) @ collect)

    def new_memory(self, room: Room) -> PoolMemory:
        return pool_memory(self.config, self.shape, room)

    def work(self, length: int) -> Work:
        """Pools, one gated sum, and one weighted write for each stream."""
        sums = POOLING * self.config.pools + 4 * len(self.config.streams)
        return Work(sums=length * self.shape.width * sums)


@final
class Cascade(Design[Granular]):
    """Four named streams: token, chunk, sentence and task, each fed with its own pool of outputs.

    A design of this project: no paper has this form. Streams beside each other that are combined
    by learned weights are those of multi-stream Transformers (arXiv 2107.10342).

    ``token`` is not pooled. The others are causal means: over the last `chunk` positions; since
    the last token that ends a sentence (the sentence starts behind it), or over the last
    `sentence_window` positions where the tokenizer names none; since the start of the document.
    None reaches before the document's first token or into padding. It starts as `prenorm` on the
    token stream: ``a = (1, 0, 0, 0)``, ``β = 1``, ``r = (1, 0, 0, 0)``.
    """

    Config = CascadeConfig
    reads_marks: ClassVar[bool] = True
    start_distance: ClassVar[float | None] = 1e-14
    sums_branches: ClassVar[bool] = True
    card: ClassVar[Card] = Card(
        family="streams",
        sources="4 streams",
        weights="learned",
        own="16 L + 4",
        equation="x = N(Σ a_g H_g); H_g ← H_g + β_g pool_g(y); readout Σ r_g H_g",
        paper="none",
    )

    def __init__(self, config: CascadeConfig, shape: Shape, backbone: Backbone) -> None:
        super().__init__(config, shape, backbone)
        self.readout_gates = nn.Parameter(torch.empty(len(config.streams)))

    def starts(self) -> dict[str, Start]:
        return {"readout_gates": first_of(self.config)}

    @property
    def stream_names(self) -> tuple[str, ...]:
        return self.config.streams

    def distance_at_start(self) -> float | None:
        return self.start_distance if self.config.kept[0] == 0 else None

    def connection(self, site: Site) -> CascadeConnection:
        return CascadeConnection(self.config, site, self.shape, self.backbone)

    def open(self, embedding: Float[Tensor, "b t d"], context: Context) -> Granular:
        config, length = self.config, embedding.shape[1]
        window, device = config.sentence_window, embedding.device
        spans = spans_of(context, length, device, config.chunk, window, config.kept)
        memory = None if context.cache is None else context.cache.design
        assert memory is None or isinstance(memory, StartMemory)
        pooled = spans.pool(embedding, None if memory is None else memory.pools)
        return Granular(pooled.to(embedding.dtype), spans, context)

    def new_memory(self, room: Room) -> StartMemory:
        return StartMemory(room, pool_memory(self.config, self.shape, room))

    def readout(self, state: Granular) -> Float[Tensor, "b t d"]:
        return gated(self.readout_gates, state.streams)

    def fewer(self, kept: Sequence[int], exact: bool) -> CascadeConfig:
        names = tuple(self.config.streams[place] for place in kept)
        return self.config.model_copy(update={"streams": names})

    @torch.no_grad()
    def fewer_into(self, new: Any, fewer: Fewer) -> None:
        new.readout_gates.copy_(self.readout_gates.to(fewer.readout) @ fewer.readout)

    def depth_state(self, state: Granular) -> Float[Tensor, "b t width"]:
        return state.streams.flatten(2)

    def with_depth_state(self, state: Granular, z: Float[Tensor, "b t width"]) -> Granular:
        return replace(state, streams=z.unflatten(2, state.streams.shape[2:]))

    def work(self, length: int) -> Work:
        """Pools of the embedding, and the gated sum of the readout."""
        sums = POOLING * self.config.pools + 2 * len(self.config.streams)
        return Work(sums=length * self.shape.width * sums)

    @torch.no_grad()
    def facts(self) -> list[Fact]:
        """What an output of 1 at the first token leaves in a later one's streams, over ``β``."""
        chunk, width = self.config.chunk, self.shape.width
        connection = filled(self.connection(Site(0, self.shape.layers)))
        zero = torch.zeros(1, chunk + 1, width, dtype=torch.float64, device="cpu")
        empty = torch.empty(chunk + 1, 0, device="cpu")
        state = self.open(zero, Context(empty, empty))
        y = zero.clone()
        y[:, 0] = 1
        _, route = connection.read(state)
        left = connection.write(state, y, route, None).streams[0, :, :, 0] / connection.write_gates
        found = []
        for name, each in zip(self.config.streams, left.mT, strict=True):
            if name == "chunk":
                found += [
                    Fact("share in the chunk of its last token", each[chunk - 1].item(), 1 / chunk),
                    Fact("share in the next token's chunk", each[chunk].item(), 0.0),
                ]
            if name == "task":
                share = each[chunk].item()
                found.append(Fact("share in the document so far", share, 1 / (chunk + 1)))
        return found
