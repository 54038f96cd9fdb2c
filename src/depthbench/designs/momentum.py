"""Momentum: the state, or what is added to it, is an exponential average."""

from abc import ABC
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, final

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from depthbench.designs.base import (
    Card,
    Connection,
    Design,
    DesignConfig,
    Entry,
    Fact,
    Route,
    Site,
)
from depthbench.designs.measure import coefficients, filled, noise
from depthbench.errors import DepthbenchError
from depthbench.nn.branch import Backbone, Context
from depthbench.nn.cache import Memory, Room
from depthbench.nn.kernels import stopped
from depthbench.nn.norm import RMSNorm
from depthbench.nn.precision import at_least_float32
from depthbench.nn.work import Work
from depthbench.shapes import Shape


class MomentumConfig(DesignConfig):
    """``over`` says what is averaged over: depth, or successive segments of the sequence."""

    name: str = "momentum"
    mu: float = Field(default=0.9, ge=0, lt=1, examples=[0.5, 0.3])
    """Weight of the history; 0.5 and 0.3 are usual too."""
    stop_gradient: bool = True
    """No gradient goes through the history."""
    window: int | None = Field(default=None, ge=1)
    """Over depth: the history is the mean of this many last states; none = 1, the newest."""
    over: Literal["depth", "segments"] = "depth"
    segment: int = Field(default=64, ge=1)
    """Over segments: tokens in each."""

    @classmethod
    def notable(cls) -> tuple[dict[str, Any], ...]:
        return (
            {"over": "segments", "segment": 4},
            {"over": "segments", "segment": 4, "stop_gradient": False},
        )


@dataclass(frozen=True)
class Averaged:
    """The stream in float32 or better, and what an average needs besides it."""

    stream: Float[Tensor, "b t d"]
    dtype: torch.dtype
    """Of the parameters: what branches and the readout are given."""
    context: Context
    earlier: tuple[Float[Tensor, "b t d"], ...] = ()
    """States before the stream, newest first, as many as the window looks back."""


class MomentumConnection(Connection[Averaged], ABC):
    """``x = N(h)``, in the branch's own kind of number; what is written differs."""

    def __init__(self, config: MomentumConfig, shape: Shape, backbone: Backbone) -> None:
        super().__init__()
        self.config = config
        self.width = shape.width
        self.norm = RMSNorm(shape.width, backbone.norm_eps)

    def read(self, state: Averaged) -> tuple[Float[Tensor, "b t d"], Route]:
        return self.norm(state.stream).to(state.dtype), Route()

    def mixed(self, state: Averaged, route: Route) -> Float[Tensor, "b t d"]:
        return state.stream


@final
class DepthMomentum(MomentumConnection):
    """``x = N(h)``, ``h ← μ·sg(mean of the last K states) + (1 - μ)·y``."""

    def __init__(self, config: MomentumConfig, shape: Shape, backbone: Backbone) -> None:
        super().__init__(config, shape, backbone)
        self.window = config.window or 1

    def write(
        self, state: Averaged, y: Float[Tensor, "b t d"], route: Route, entry: Entry | None
    ) -> Averaged:
        states = (state.stream, *state.earlier)
        mean = sum(states[1:], states[0]) / len(states)
        history = stopped(mean) if self.config.stop_gradient else mean
        mu = self.config.mu
        stream = mu * history + (1 - mu) * y.to(mean.dtype)
        return replace(state, stream=stream, earlier=states[: self.window - 1])

    def work(self, length: int) -> Work:
        """The states of the window and the output."""
        return Work(sums=2 * length * self.width * (self.window + 1))


@dataclass(frozen=True)
class Segments:
    """Where the tokens of a piece stand in the segments of their sequences.

    Slots are the positions of all segments that the piece may touch, in order, from the start of
    the segment in which it begins.
    """

    size: int
    first: Int[Tensor, "rows 1"]
    """Segment of the piece's first token (of the first text, if that is padding)."""
    place: Int[Tensor, "rows t"]
    """Segment of each token, less `first`; 0 for padding."""
    next: Int[Tensor, "rows 1"]
    """Segment of the token behind the piece, less `first`."""
    source: Int[Tensor, "rows slots"]
    """Token of the piece that stands in each slot."""
    filled: Bool[Tensor, "rows slots"]
    """Which slots hold a token of the piece."""

    @classmethod
    def of(cls, context: Context, length: int, size: int, device: torch.device) -> "Segments":
        """For ``length`` tokens behind the context's past."""
        padding = context.padding
        edge = torch.zeros(1, 1, dtype=torch.long, device=device)
        edge = edge if padding is None else padding[:, None].long()
        own = context.past + torch.arange(length, device=device) - edge
        first = own[:, :1].clamp(min=0) // size
        most = (length + size - 1) // size + 1
        source = first * size + torch.arange(most * size, device=device) - own[:, :1]
        return cls(
            size=size,
            first=first,
            place=own.clamp(min=0) // size - first,
            next=(own[:, -1:] + 1).clamp(min=0) // size - first,
            source=source.clamp(0, length - 1),
            filled=(source >= 0) & (source < length),
        )

    def sums(self, y: Float[Tensor, "b t d"]) -> Float[Tensor, "b r d"]:
        """Sum of ``y`` over the tokens of each segment."""
        index = self.source.unsqueeze(-1).expand(len(y), -1, y.shape[-1])
        slots = torch.where(self.filled.unsqueeze(-1), y.gather(1, index), 0.0)
        return slots.unflatten(1, (-1, self.size)).sum(2)


def at_place(
    segments: Float[Tensor, "b r d"], place: Int[Tensor, "rows t"]
) -> Float[Tensor, "b t d"]:
    """The segment of each token."""
    shape = (len(segments), -1, segments.shape[-1])
    return segments.gather(1, place.unsqueeze(-1).expand(*shape))


@final
class SegmentMemory(Memory):
    """History of the segment that comes next, and the sum of the outputs that it has so far."""

    def __init__(self, room: Room, width: int) -> None:
        shape = (room.batch, width)
        dtype = torch.promote_types(room.dtype, torch.float32)
        self.history = torch.zeros(shape, device=room.device, dtype=dtype)
        self.begun = torch.zeros(shape, device=room.device, dtype=dtype)

    def tensors(self) -> tuple[Tensor, ...]:
        return self.history, self.begun


@final
class SegmentMomentum(MomentumConnection):
    """``x = N(h)``, ``h ← h + m_t``, ``m_t = μ·sg(c_{s-1}) + (1 - μ)·y_t`` in segment ``s``.

    ``c_s`` is the mean of ``m`` over the tokens of segment ``s``; the first has no history:
    ``m_t = y_t``. So ``c_0 = ȳ_0`` and ``c_s = μ c_{s-1} + (1 - μ) ȳ_s``.
    """

    def __init__(
        self, config: MomentumConfig, site: Site, shape: Shape, backbone: Backbone
    ) -> None:
        super().__init__(config, shape, backbone)
        self.number = site.number

    def write(
        self, state: Averaged, y: Float[Tensor, "b t d"], route: Route, entry: Entry | None
    ) -> Averaged:
        y, mu = at_least_float32(y), self.config.mu
        segments = Segments.of(state.context, y.shape[1], self.config.segment, y.device)
        history = self.history(state.context, y, segments)
        past = at_place(history, segments.place)
        first = (segments.first + segments.place == 0).unsqueeze(-1)
        moved = torch.where(first, y, mu * past + (1 - mu) * y)
        return replace(state, stream=state.stream + moved)

    def history(
        self, context: Context, y: Float[Tensor, "b t d"], segments: Segments
    ) -> Float[Tensor, "b r d"]:
        """``c_{s-1}`` for every segment that the piece may touch; the cache is moved on."""
        memory, mu = None, self.config.mu
        if context.cache is not None:
            memory = context.cache.connections[self.number]
            assert isinstance(memory, SegmentMemory)
        sums = segments.sums(stopped(y) if self.config.stop_gradient else y)
        if memory is not None:
            sums = torch.cat([sums[:, :1] + memory.begun.to(y.dtype).unsqueeze(1), sums[:, 1:]], 1)
        means = sums / self.config.segment
        before = torch.zeros_like(means[:, 0]) if memory is None else memory.history.to(y.dtype)
        after = mu * before + (1 - mu) * means[:, 0]
        histories = [before, torch.where(segments.first == 0, means[:, 0], after)]
        for mean in means.unbind(1)[1:-1]:
            histories.append(mu * histories[-1] + (1 - mu) * mean)
        history = torch.stack(histories, 1)
        if memory is not None:
            memory.history.copy_(at_place(history, segments.next)[:, 0])
            memory.begun.copy_(at_place(sums, segments.next)[:, 0])
        return history

    def new_memory(self, room: Room) -> SegmentMemory | None:
        return SegmentMemory(room, self.width)

    def work(self, length: int) -> Work:
        """History and output of each token, and the mean of each segment."""
        return Work(sums=2 * length * self.width * 3)


@final
class Momentum(Design[Averaged]):
    """``h ← μ·sg(h) + (1 - μ)·y``: an exponential average over depth, with options.

    A design of this project: no paper has this form. Momentum residual networks
    (arXiv 2102.07870) keep a velocity besides the state and no stop-gradient; the carried history
    of ``over = segments`` stops gradients as the memory of Transformer-XL does (arXiv 1901.02860).

    ``window = K`` replaces ``h`` in the average by the mean of the last ``K`` states (of those
    there are, at the start). ``over = segments`` adds to a plain residual stream an average over
    the segments of one sequence, see `SegmentMomentum`; a new cache is a new sequence.
    """

    Config = MomentumConfig
    card: ClassVar[Card] = Card(
        family="residual scale",
        sources="state",
        weights="fixed",
        own="0",
        equation="x = N(h); h ← μ·sg(h) + (1-μ)·y",
        paper="none",
    )

    def check(self) -> None:
        if self.config.over == "segments" and self.config.window is not None:
            raise DepthbenchError(
                f"momentum: window = {self.config.window} averages over depth, but over = "
                '"segments" does not. Leave window out, or set over = "depth"'
            )

    def check_documents_apart(self) -> None:
        if self.config.over == "segments":
            raise DepthbenchError(
                'document_mask = true, but momentum with over = "segments" carries its average '
                'from one document to the next. Use over = "depth", or leave document_mask out'
            )

    def connection(self, site: Site) -> Connection[Averaged]:
        if self.config.over == "segments":
            return SegmentMomentum(self.config, site, self.shape, self.backbone)
        return DepthMomentum(self.config, self.shape, self.backbone)

    def open(self, embedding: Float[Tensor, "b t d"], context: Context) -> Averaged:
        return Averaged(at_least_float32(embedding), embedding.dtype, context)

    def readout(self, state: Averaged) -> Float[Tensor, "b t d"]:
        return state.stream.to(state.dtype)

    def depth_state(self, state: Averaged) -> Float[Tensor, "b t d"]:
        return state.stream

    def with_depth_state(self, state: Averaged, z: Float[Tensor, "b t d"]) -> Averaged:
        return replace(state, stream=z)

    def facts(self) -> list[Fact]:
        return facts_over_segments(self) if self.config.over == "segments" else facts_of(self)


@torch.no_grad()
def facts_of(design: Momentum) -> list[Fact]:
    """Weights of the states and of the output in a write, by least squares over many tokens."""
    config, window = design.config, design.config.window or 1
    connection = filled(design.connection(Site(0, design.shape.layers)))
    tokens = 16 * (window + 1)
    state = design.open(noise(1, tokens, design.shape.width), text_of(tokens))
    streams = [state.stream]
    outputs = [noise(*state.stream.shape, seed=2 + site) for site in range(window + 1)]
    for y in outputs:
        state = connection.write(state, y, Route(), None)
        streams.append(state.stream)
    weights = coefficients(streams[-1], *streams[-1 - window : -1], outputs[-1])
    with torch.enable_grad():
        leaf = state.stream.clone().requires_grad_()
        moved = connection.write(replace(state, stream=leaf), leaf.detach(), Route(), None)
        gradient = torch.zeros(())
        if moved.stream.requires_grad:
            (gradient,) = torch.autograd.grad(moved.stream.sum(), leaf)
    through = 0.0 if config.stop_gradient else config.mu / window
    return [
        Fact("weight of the oldest state", weights[0], config.mu / window),
        Fact("weight of the output", weights[-1], 1 - config.mu),
        Fact("gradient through the history", gradient.flatten()[0].item(), through),
    ]


@torch.no_grad()
def facts_over_segments(design: Momentum) -> list[Fact]:
    """What an output of 1 in one segment leaves in the third, and the gradient back to it."""
    config = design.config
    connection = filled(design.connection(Site(0, design.shape.layers)))
    tokens, size = 3 * config.segment, config.segment
    zero = torch.zeros(1, tokens, design.shape.width, dtype=torch.float64, device="cpu")
    state = design.open(zero, text_of(tokens))

    def last(y: Tensor) -> Tensor:
        return connection.write(state, y, Route(), None).stream[0, -1, 0]

    first, second = zero.clone(), zero.clone()
    first[:, :size], second[:, size : 2 * size] = 1, 1
    with torch.enable_grad():
        leaf = zero.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(last(leaf), leaf)
    through = 0.0 if config.stop_gradient else config.mu**2 / size
    return [
        Fact("weight of the first segment in the third", last(first).item(), config.mu**2),
        Fact("weight of the second", last(second).item(), config.mu * (1 - config.mu)),
        Fact("gradient to the first token", gradient[0, 0, 0].item(), through),
    ]


def text_of(tokens: int) -> Context:
    """A context of one sequence without padding."""
    empty = torch.empty(tokens, 0, device="cpu")
    return Context(empty, empty)
