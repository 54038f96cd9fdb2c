"""What a branch is, and what it is told besides its input."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from depthbench.config import Named
from depthbench.errors import DepthbenchError
from depthbench.marks import NO_MARKS, Marks
from depthbench.nn.cache import Cache, Memory, Room
from depthbench.nn.parameters import Parametrised, Projection
from depthbench.nn.rope import PairTurns, pair_turns
from depthbench.nn.rope_scaling import RopeScalingChoice
from depthbench.nn.work import Work

Role = Literal["qk", "v", "o", "gate_up", "down"]
"""Matrices of the branches, as far as designs start them at different scales."""
WHOLE = "whole"
"""Name of the output of a branch without parts."""


class Backbone(Named):
    """Constants of the LLaMA-style backbone that are no sizes; other backbones add their own."""

    name: str = "dense"
    """Kind of backbone."""
    rope_base: float = Field(default=10000.0, gt=0)
    """Base of the rotary frequencies."""
    norm_eps: float = Field(default=1e-6, gt=0)
    """Added to the mean square in every RMSNorm."""
    init_std: float = Field(default=0.02, gt=0)
    """Standard deviation of matrices and embeddings at the start, cut off at three of them."""
    depth_scaled_init: bool = False
    """Multiply the start of `o` and `down` by ``1/sqrt(2L)``, as GPT-2 does."""
    tied_head: bool = False
    """The head multiplies by the embedding's matrix instead of one of its own."""
    later: ClassVar[frozenset[str]] = frozenset({"qk_norm", "qkv_bias", "rope_scaling"})
    qk_norm: Literal["head", "all"] | None = None
    """RMSNorm of queries and keys, in front of RoPE: of each head with one gain for all of them, as
    in Qwen 3, or of all heads as one vector, as in OLMo 2."""
    qkv_bias: bool = False
    """Queries, keys and values have biases, as in Qwen 2; they start at 0."""
    rope_scaling: RopeScalingChoice | None = None
    """For contexts longer than those trained at first."""

    @property
    def plain_attention(self) -> bool:
        """Whether attention is that of LLaMA, with RoPE as it is."""
        return not (self.qk_norm or self.qkv_bias or self.rope_scaling)


@dataclass(frozen=True)
class Load:
    """What the router of one site did with the tokens."""

    share: Float[Tensor, "experts"]
    """Of the choices that went to each expert; adds up to 1."""
    probability: Float[Tensor, "experts"]
    """Mean probability of each expert."""
    z: Float[Tensor, ""]
    """Mean of the squared logarithm of the softmax's denominator."""


@dataclass(frozen=True)
class Context:
    """What all branches and the design share in one forward."""

    cos: Float[Tensor, "*rows t half"]
    """RoPE's cosines; with a batch axis where sequences start at different positions."""
    sin: Float[Tensor, "*rows t half"]
    tokens: Int[Tensor, "b t"] | None = None
    """None where a design runs outside a language model."""
    marks: Marks = NO_MARKS
    padding: Int[Tensor, "b"] | None = None
    """Number of tokens on the left of each sequence that are no text."""
    past: int = 0
    """Positions before these tokens, in the cache."""
    cache: Cache | None = None
    turn: int = 0
    """Runs of the same block that came before in the cache's program."""
    mask: Bool[Tensor, "*rows t n"] | None = None
    """Which of the past and present positions a token sees; None where causality says it all."""
    starts: Int[Tensor, "b t"] | None = None
    """Position at which each token's document starts; None where documents are not kept apart."""
    loads: list[Load] | None = None
    """Collects what routers did, where someone asks."""
    recompute: Literal["block", "branch"] | None = None
    """What is computed again in the backward pass instead of kept."""
    compiled: Callable[..., Any] | None = None
    """Runs a function compiled; see `depthbench.nn.compiled.Compiler`."""
    pair_turns: dict[tuple[int, int], PairTurns] = field(default_factory=dict, repr=False)
    """Made at first use: see `turns_for`."""

    def turns_for(self, heads: int, tail: int) -> PairTurns:
        """`pair_turns` of this forward, made once."""
        if (heads, tail) not in self.pair_turns:
            self.pair_turns[heads, tail] = pair_turns(self.cos, self.sin, heads, tail)
        return self.pair_turns[heads, tail]

    def valid(self, length: int) -> Bool[Tensor, "b t"] | None:
        """Which of the ``length`` present tokens are text; None for all."""
        if self.padding is None:
            return None
        positions = torch.arange(self.past, self.past + length, device=self.padding.device)
        return positions >= self.padding[:, None]


def check_padding(padding: Tensor | None, batch: int, length: int) -> None:
    """Raise `DepthbenchError` unless every sequence of ``length`` keeps a token of text."""
    if padding is None:
        return
    if padding.shape != (batch,) or padding.min() < 0 or padding.max() >= length:
        raise DepthbenchError(
            f"padding = {padding.tolist()} must name, for each of {batch} sequences, 0 to "
            f"{length - 1} tokens on the left that are no text"
        )


def document_starts(
    tokens: Int[Tensor, "b t"], document: int | None, padding: Int[Tensor, "b"] | None
) -> Int[Tensor, "b t"]:
    """Position at which the document of each token starts.

    0 up to the first token ``document``; padding and the text behind it are documents too.
    """
    positions = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    opens = tokens == document
    if padding is not None:
        opens = opens & (positions > padding[:, None]) | (positions == padding[:, None])
    return torch.where(opens, positions, 0).cummax(1).values


def visible(
    length: int,
    past: int,
    padding: Int[Tensor, "b"] | None,
    device: torch.device,
    starts: Int[Tensor, "b t"] | None = None,
) -> Bool[Tensor, "*rows t n"] | None:
    """Which positions each of ``length`` tokens behind ``past`` others sees.

    None where that is all of the past, or what a causal kernel does. Padding sees the padding
    before it, so that no softmax is empty; nothing reads what comes of it. With ``starts``
    (`document_starts`) a token sees its own document, and padding is one.
    """
    if starts is not None:
        keys = torch.arange(length, device=device)
        return (keys <= keys[:, None]) & (keys >= starts.unsqueeze(-1))
    if padding is None and (past == 0 or length == 1):
        return None
    keys = torch.arange(past + length, device=device)
    queries = keys[past:, None]
    causal = keys <= queries
    if padding is None:
        return causal
    edge = padding[:, None, None]
    return causal & ((keys >= edge) | (queries < edge))


@dataclass(frozen=True)
class Entry:
    """Key (before RoPE) and value of one site, for later sites to look at over depth."""

    key: Float[Tensor, "b t kv hd"]
    value: Float[Tensor, "b t kv hd"]


@dataclass(frozen=True)
class ValueMix:
    """``own · V + first · V_first``: what stands for an attention's own values."""

    value: Float[Tensor, "b t kv hd"]
    """``V_first``: values of an earlier attention."""
    first: Float[Tensor, ""] | float
    own: Float[Tensor, ""] | float


@dataclass(frozen=True)
class Depth:
    """What earlier sites stored, for an attention that also looks there, token by token.

    With any, even an empty one, an attention returns its own `Entry`.
    """

    entries: tuple[Entry, ...] = ()
    """Oldest first; they join the softmax."""
    rotated: bool = False
    """The entries are to be read as if rotated to the token's own position."""
    values: ValueMix | None = None


class Branch(Parametrised, ABC):
    """The function ``F`` of a site, without norm and without residual."""

    parts: ClassVar[tuple[str, ...]] = ()
    """Names of what runs side by side in it and is summed; none where it is one whole."""

    @abstractmethod
    def forward(
        self,
        x: Float[Tensor, "b t d"],
        context: Context,
        depth: Depth | None = None,
        memory: Memory | None = None,
    ) -> tuple[Float[Tensor, "b t d"], Entry | None]:
        """The branch's output, and what it offers to depth-wise attention.

        Only attention offers something, and only to a design that asks with a ``depth``.
        ``memory`` is what `new_memory` made: the branch reads earlier tokens there and adds these.
        """

    def last(self) -> tuple[Projection, ...]:
        """The matrices whose products, added up, are its output.

        Raises `DepthbenchError` for a branch that ends otherwise.
        """
        raise DepthbenchError(
            f"{type(self).__name__} does not say which matrices its output comes from, so that no "
            "linear map behind it can be folded into them"
        )

    def apart(
        self,
        x: Float[Tensor, "b t d"],
        context: Context,
        depth: Depth | None = None,
        memory: Memory | None = None,
    ) -> tuple[dict[str, Float[Tensor, "b t d"]], Entry | None]:
        """What adds up to the output, by the names of `parts`; a whole under `WHOLE`."""
        y, entry = self(x, context, depth, memory)
        return {WHOLE: y}, entry

    def new_memory(self, room: Room) -> Memory | None:
        """Room for what the branch keeps of earlier tokens; None if it looks at none."""
        return None

    def work(self, length: int) -> Work:
        """Operations on ``length`` tokens: ``2 T`` times the entries of its matrices."""
        return projections_of(self, length)

    def active(self) -> int:
        """Number of parameters that one token uses: all, unless a router chooses."""
        return sum(parameter.numel() for parameter in self.parameters())


def projections_of(module: Parametrised, length: int) -> Work:
    """``2 T`` times the entries of all `Projection`s inside ``module``."""
    matrices = (m.weight.numel() for m in module.modules() if isinstance(m, Projection))
    return Work(products=2 * length * sum(matrices))
