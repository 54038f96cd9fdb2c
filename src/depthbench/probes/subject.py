"""What is probed: a decoder whose blocks carry a state from depth to depth."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import torch
import torch.nn.attention
from jaxtyping import Float
from torch import Tensor, nn

from depthbench.config import Frozen
from depthbench.probes.batch import Batch

S = TypeVar("S")
Part = Literal["block", "attention", "feedforward", "linear"]
"""What of a block runs: all of it, one of its branches alone, or a linear map in its place."""
BRANCHES: tuple[Part, ...] = ("attention", "feedforward")


@dataclass(frozen=True, order=True)
class Call:
    """One step of a program."""

    block: int
    place: int
    """Depth at which it runs: what designs that group neighbouring sites go by."""
    part: Part = "block"
    silent: tuple[str, ...] = ()
    """Of the `Subject.parts` of its branches, those that give nothing; of a whole block alone."""


class SubjectFacts(Frozen):
    """What every result says of the model that it is about."""

    label: str
    kind: Literal["depthbench", "huggingface", "olmo-core"]
    source: str
    """Where it came from: a folder, a file or a name."""
    model: str
    """Its design and backbone, or its class."""
    layers: int
    width: int
    streams: int
    """Residual streams side by side; 1 for most."""
    vocab: int
    parameters: int
    weights_hash: str
    """Of all parameters and buffers, by name."""
    notes: tuple[str, ...] = ()


class Session(ABC, Generic[S]):
    """A subject at work on one batch.

    States of several programs lie one after another in the batch axis: `join` and `take` put them
    together and apart.
    """

    def __init__(self, batch: Batch, layers: int, vocab: int) -> None:
        self.batch, self.layers, self.vocab = batch, layers, vocab
        self.maps: Mapping[int, Sequence[Tensor]] = {}
        """By block: maps ``(w, d)`` that stand in for what `outputs` returns."""

    @abstractmethod
    def open(self) -> S:
        """The state before block 0."""

    @abstractmethod
    def run(self, call: Call, state: S, copies: int) -> S:
        """The state behind ``call``; ``state`` holds that of ``copies`` programs.

        ``attention`` and ``feedforward`` run that branch alone, with its connection. ``linear``
        puts the maps of the block in place of its branches: output ``y = z M``, with the depth
        state ``z`` before the block.
        """

    @abstractmethod
    def outputs(self, call: Call, state: S) -> tuple[S, list[Float[Tensor, "b t d"]]]:
        """`run` of a whole block for one program, and what its branches gave.

        One output for a block that is seen from outside alone: ``z_{l+1} - z_l``.
        """

    def parts(self, call: Call, state: S) -> tuple[S, list[dict[str, Float[Tensor, "b t d"]]]]:
        """`run` of a whole block for one program, and what each part of its branches gave.

        Only of a subject that has `Subject.parts`.
        """
        raise NotImplementedError

    def loads(self) -> dict[int, Float[Tensor, "b experts"]]:
        """By block with a router: the share of each row's choices that went to each expert.

        Of tokens of text alone, in the model's own forward. Empty without routers.
        """
        return {}

    @abstractmethod
    def depth_state(self, state: S) -> Float[Tensor, "n t w"]:
        """``z``: all streams side by side."""

    @abstractmethod
    def with_depth_state(self, state: S, z: Float[Tensor, "n t w"]) -> S:
        """``state`` with ``z`` in place of its depth state.

        Raises `DepthbenchError` where the depth state is a mix of many tensors.
        """

    @contextmanager
    def differentiable(self) -> Iterator[None]:
        """Inside, blocks run on operations that have forward and batched derivatives."""
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            yield

    @abstractmethod
    def readout(self, state: S) -> Float[Tensor, "n t d"]:
        """What the final norm reads, if the model stopped here."""

    @abstractmethod
    def logits(self, hidden: Float[Tensor, "*n d"]) -> Float[Tensor, "*n v"]:
        """Final norm and head."""

    @abstractmethod
    def join(self, states: Sequence[S], copies: int) -> S:
        """States of ``copies`` programs in all as one."""

    @abstractmethod
    def take(self, state: S, start: int, stop: int, copies: int) -> S:
        """The states of programs ``start`` to ``stop`` of a joined one of ``copies``."""

    def form(self, state: S) -> Any:
        """What states must have in common to be joined; hashable."""
        return None

    @abstractmethod
    def size(self, state: S) -> int:
        """Bytes of ``state``."""

    @abstractmethod
    def own_logits(self) -> Float[Tensor, "b t v"]:
        """By the model's own forward: what the plain program is held against."""


class Decoder(ABC):
    """One row that grows, over a cache."""

    @abstractmethod
    def read(self, tokens: Sequence[int]) -> Float[Tensor, "v"]:
        """Logits behind ``tokens``, which stand behind all that was read before."""


class Subject(ABC):
    """A model that probes can look into. Nothing that it does changes the model."""

    facts: SubjectFacts
    device: torch.device
    dtype: torch.dtype
    whole: str | None = None
    """Why attention and feed-forward of its blocks cannot run apart; None where they can."""
    in_turn: bool = True
    """Whether one and then the other, each alone, are the block."""
    parts: tuple[str, ...] = ()
    """Names of what runs side by side in one branch and is summed, as far as it runs apart."""
    trial: Path | None = None
    """Folder of the trial that trained it as it is; None for others."""

    @property
    def layers(self) -> int:
        """Number of blocks."""
        return self.facts.layers

    @property
    def stream_names(self) -> tuple[str, ...]:
        """Of its residual streams: by number, unless they have names of their own."""
        return tuple(map(str, range(self.facts.streams)))

    def no_jacobian(self) -> str | None:
        """Why a block has no derivative by its depth state alone; None where it has."""
        return None

    def no_routers(self) -> str | None:
        """Why there is no router whose choices can be read; None where there is one."""
        return "the model has no router that can be read"

    def decoder(self, program: Sequence[Call]) -> Decoder | str:
        """What reads a new row under ``program``; in words why there is no cache for it."""
        return "its blocks are run one by one, without a cache"

    @property
    @abstractmethod
    def module(self) -> nn.Module:
        """The model itself, for those who train it."""

    @abstractmethod
    def smaller(self, kept: Sequence[int]) -> "Subject":
        """A model of its own with these blocks alone, in order.

        Raises `DepthbenchError` where a block is another function at another place.
        """

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Write the model to ``folder`` in the format that it came in, so that `load` reads it.

        Raises `DepthbenchError` if the folder cannot be written.
        """

    @abstractmethod
    def session(self, batch: Batch) -> Session[Any]:
        """The subject at work on ``batch``."""
