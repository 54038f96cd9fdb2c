"""A model run with something done to its streams in front of every site."""

import base64
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Literal, Self

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor

from depthbench.config import Frozen
from depthbench.probes.subject import BRANCHES, Call, Part, Session, Subject


def parts_of(subject: Subject) -> tuple[Part, ...]:
    """Pieces that a block runs in: its two sites, or all of it where they cannot run apart."""
    return BRANCHES if subject.in_turn else ("block",)


def places_of(subject: Subject) -> int:
    """Places at which streams can be seen: in front of every piece, and behind the last."""
    return subject.layers * len(parts_of(subject)) + 1


class Change(ABC):
    """What is done to the streams on their way."""

    @abstractmethod
    def before(self, z: Float[Tensor, "n t s d"], place: int) -> Float[Tensor, "n t s d"]:
        """The streams as the piece at ``place`` (or the readout) finds them."""

    def after(
        self, z: Float[Tensor, "n t s d"], seen: Float[Tensor, "n t s d"], place: int
    ) -> Float[Tensor, "n t s d"]:
        """The streams behind that piece; ``seen`` are those in front of it, before the change."""
        return z


def travel(
    session: Session[Any],
    subject: Subject,
    change: Change,
    state: Any | None = None,
    first: int = 0,
    copies: int = 1,
) -> Any:
    """The last state of the model under ``change``.

    It starts from ``state``, the one of ``copies`` programs in front of block ``first``, where one
    is given.
    """
    parts, streams = parts_of(subject), subject.facts.streams
    state = session.open() if state is None else state
    for block in range(first, subject.layers):
        for side, part in enumerate(parts):
            place = block * len(parts) + side
            seen = streams_in(session, state, streams)
            state = put(session, state, change.before(seen, place))
            state = session.run(Call(block, block, part), state, copies)
            behind = streams_in(session, state, streams)
            state = put(session, state, change.after(behind, seen, place))
    last = streams_in(session, state, streams)
    return put(session, state, change.before(last, subject.layers * len(parts)))


def streams_in(session: Session[Any], state: Any, streams: int) -> Float[Tensor, "n t s d"]:
    """All streams of a state."""
    return session.depth_state(state).unflatten(-1, (streams, -1))


def put(session: Session[Any], state: Any, z: Float[Tensor, "n t s d"]) -> Any:
    """``state`` with other streams."""
    return session.with_depth_state(state, z.flatten(2))


def states_at(session: Session[Any], subject: Subject) -> Iterator[Float[Tensor, "n t s d"]]:
    """The streams at every place of the model as it is."""
    parts, streams = parts_of(subject), subject.facts.streams
    state = session.open()
    for block in range(subject.layers):
        for part in parts:
            yield streams_in(session, state, streams)
            state = session.run(Call(block, block, part), state, 1)
    yield streams_in(session, state, streams)


class Removal(Frozen):
    """Streams that are taken away in front of blocks ``start`` to ``stop - 1``.

    Behind the last block too, where ``stop`` is the number of blocks. What branches write into
    them outside that range stays.
    """

    streams: tuple[int, ...]
    start: int = Field(default=0, ge=0)
    stop: int = Field(ge=1)
    by: Literal["zero", "mean"] = "zero"
    """What stands in for them: nothing, or their mean over tokens at that place."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.start >= self.stop:
            raise ValueError(f"start = {self.start} must be less than stop = {self.stop}")
        return self

    @property
    def name(self) -> str:
        """In words."""
        which = " and ".join(map(str, self.streams))
        return f"{which} at {span_words((self.start, self.stop))}"


class Removing(Change):
    """Some removals at work side by side, one for each program of a joined state."""

    def __init__(
        self,
        removals: Sequence[Removal],
        subject: Subject,
        means: Float[Tensor, "places s d"] | None = None,
    ) -> None:
        """``means`` of all streams at all places, for removals that put them there."""
        pieces, layers = len(parts_of(subject)), subject.layers
        self.keep = torch.ones(
            len(removals), places_of(subject), subject.facts.streams, device=subject.device
        )
        for number, one in enumerate(removals):
            stop = one.stop * pieces + (one.stop == layers)
            for stream in one.streams:
                self.keep[number, one.start * pieces : stop, stream] = 0
        self.means = means
        self.by_mean = torch.tensor([float(one.by == "mean") for one in removals])

    def before(self, z: Float[Tensor, "n t s d"], place: int) -> Float[Tensor, "n t s d"]:
        programs = len(self.keep)
        keep = self.keep[:, place].to(z.dtype)[:, None, None, :, None]
        changed = z.unflatten(0, (programs, -1)) * keep
        if self.means is not None:
            share = self.by_mean.to(z)[:, None, None, None, None] * (1 - keep)
            changed = changed + self.means[place].to(z) * share
        return changed.flatten(0, 1)


class Fading(Change):
    """Streams that all others see at a share of their size, while they go on as they were.

    What a stream carries on by itself is kept whole, so the share does not add up over depth:
    exact where a stream goes on with a weight of 1. At a share of 0 the others do without it.
    """

    def __init__(self, streams: Sequence[int], share: float, subject: Subject) -> None:
        self.shares = torch.ones(subject.facts.streams, 1, device=subject.device)
        self.shares[list(streams)] = share

    def before(self, z: Float[Tensor, "n t s d"], place: int) -> Float[Tensor, "n t s d"]:
        return z * self.shares.to(z.dtype)

    def after(
        self, z: Float[Tensor, "n t s d"], seen: Float[Tensor, "n t s d"], place: int
    ) -> Float[Tensor, "n t s d"]:
        return z + (1 - self.shares.to(z.dtype)) * seen


def packed(means: NDArray[np.float64]) -> str:
    """Means of all streams at all places, as a field of a task holds them."""
    return base64.b64encode(means.astype(np.float32).tobytes()).decode()


def unpacked(means: str, streams: int, places: int) -> Float[Tensor, "places s d"] | None:
    """The way back; None where there are none."""
    if not means:
        return None
    flat = np.frombuffer(base64.b64decode(means), np.float32)
    return torch.from_numpy(flat.reshape(places, streams, -1).copy())


def span_words(span: tuple[int, int]) -> str:
    """``block 3``, ``blocks 1 to 4``: from the first to the one in front of the last."""
    start, stop = span
    return f"block {start}" if stop == start + 1 else f"blocks {start} to {stop - 1}"


def ranges(layers: int, count: int) -> Sequence[tuple[int, int]]:
    """``count`` ranges of blocks that are about as long, or as many as there are blocks."""
    count = min(count, layers)
    ends = [round(layers * number / count) for number in range(count + 1)]
    return list(itertools.pairwise(ends))
