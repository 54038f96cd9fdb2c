"""Causal means over the chunk, the sentence and the document of each token."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from depthbench.nn.branch import Context
from depthbench.nn.cache import Memory, Room
from depthbench.nn.precision import at_least_float32


@dataclass(frozen=True)
class Span:
    """Which tokens the mean of each token is over: from `start` up to itself."""

    start: Int[Tensor, "rows t"]
    """Counted from the first token of the piece; negative before it."""
    window: int | None
    """Most tokens that it can be; None where it starts at a mark."""

    @property
    def kept(self) -> int:
        """Vectors that the next piece needs: those of a window, or one sum since the mark."""
        return 1 if self.window is None else self.window - 1

    def mean(
        self, y: Float[Tensor, "b t d"], memory: Float[Tensor, "b kept d"] | None
    ) -> Float[Tensor, "b t d"]:
        """Differences of running sums; ``memory`` stands before the piece, and is moved on."""
        length = y.shape[1]
        kept = 0 if memory is None else self.kept
        known = y if memory is None else torch.cat([memory.to(y.dtype), y], 1)
        running = torch.nn.functional.pad(known.cumsum(1), (0, 0, 1, 0))
        index = (self.start.clamp(min=-kept) + kept).unsqueeze(-1)
        sums = running[:, kept + 1 :] - running.gather(1, index.expand_as(y))
        if memory is not None:
            memory.copy_(sums[:, -1:] if self.window is None else known[:, length:])
        counts = torch.arange(1, length + 1, device=y.device) - self.start
        return sums / counts.unsqueeze(-1)


@dataclass(frozen=True)
class Spans:
    """Of every stream's granularity; None is the token itself."""

    spans: tuple[Span | None, ...]
    valid: Tensor | None
    """Which tokens are text, (b, t); None for all."""

    def pool(
        self, y: Float[Tensor, "b t d"], memory: "PoolMemory | None"
    ) -> Float[Tensor, "b t s d"]:
        """Means of ``y`` over the spans, in float32 or better."""
        y = at_least_float32(y)
        if self.valid is not None:
            y = torch.where(self.valid.unsqueeze(-1), y, 0.0)
        kept = (None,) * len(self.spans) if memory is None else memory.kept
        means = [
            y if span is None else span.mean(y, own)
            for span, own in zip(self.spans, kept, strict=True)
        ]
        return torch.stack(means, 2)


class PoolMemory(Memory):
    """What the pools of one site keep: last vectors of a window, or a sum since the last mark."""

    def __init__(self, room: Room, width: int, kept: Sequence[int]) -> None:
        dtype = torch.promote_types(room.dtype, torch.float32)
        self.kept = tuple(
            torch.zeros(room.batch, size, width, device=room.device, dtype=dtype) for size in kept
        )

    def tensors(self) -> tuple[Tensor, ...]:
        return self.kept


class StartMemory(Memory):
    """Positions at which the document and the sentence of the next token start, if it is no mark;
    and the pools of the embedding.
    """

    def __init__(self, room: Room, pools: PoolMemory) -> None:
        self.document = torch.zeros(room.batch, 1, device=room.device, dtype=torch.long)
        self.sentence = torch.zeros_like(self.document)
        self.pools = pools

    def tensors(self) -> tuple[Tensor, ...]:
        return self.document, self.sentence, *self.pools.tensors()


def names_sentences(context: Context) -> bool:
    """Whether the ends of sentences can be seen in these tokens."""
    return context.tokens is not None and bool(context.marks.sentence_ends)


def spans_of(
    context: Context,
    length: int,
    device: torch.device,
    chunk: int,
    sentence_window: int,
    kept: Sequence[int] = range(4),
) -> Spans:
    """Spans of ``length`` tokens: none starts before its document or in padding.

    ``kept`` are places among token, chunk, sentence and document.

    A document starts at its token; a sentence behind the last sentence-ending token, or at most
    ``sentence_window`` tokens back where the tokenizer names none. The cache is moved on.
    """
    memory = None if context.cache is None else context.cache.design
    assert memory is None or isinstance(memory, StartMemory)
    rows = 1 if context.tokens is None else len(context.tokens)
    # one row each, also where all are the same: states of several programs are joined by rows
    positions = context.past + torch.arange(length, device=device).expand(rows, -1)
    document = _documents(context, positions, memory)
    if context.padding is not None:
        document = document.maximum(context.padding.unsqueeze(1))
    if names_sentences(context):
        sentence, window = _sentences(context, positions, memory).maximum(document), None
    else:
        sentence, window = document.maximum(positions - sentence_window + 1), sentence_window
    starts = (document.maximum(positions - chunk + 1), sentence, document)
    first, second, third = (start.minimum(positions) - context.past for start in starts)
    every = (None, Span(first, chunk), Span(second, window), Span(third, None))
    return Spans(tuple(every[place] for place in kept), context.valid(length))


def _documents(
    context: Context, positions: Int[Tensor, "rows t"], memory: StartMemory | None
) -> Int[Tensor, "rows t"]:
    """Position of the last document token up to each token; 0 where there is none."""
    token = context.marks.document
    if context.tokens is None or token is None:
        return torch.zeros_like(positions)
    starts = torch.where(context.tokens == token, positions, 0).cummax(1).values
    if memory is not None:
        starts = starts.maximum(memory.document)
        memory.document.copy_(starts[:, -1:])
    return starts


def _sentences(
    context: Context, positions: Int[Tensor, "rows t"], memory: StartMemory | None
) -> Int[Tensor, "rows t"]:
    """Position behind the last sentence-ending token before each token; 0 where there is none."""
    assert context.tokens is not None
    ends = torch.tensor(context.marks.sentence_ends, device=positions.device)
    behind = torch.where(torch.isin(context.tokens, ends), positions + 1, 0)
    before = torch.zeros_like(behind[:, :1]) if memory is None else memory.sentence
    starts = torch.cat([before, behind], 1).cummax(1).values
    if memory is not None:
        memory.sentence.copy_(starts[:, -1:])
    return starts[:, :-1]
