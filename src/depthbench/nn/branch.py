"""What a branch is, and what it is told besides its input."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Literal

from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from depthbench.config import Frozen
from depthbench.nn.parameters import Parametrised
from depthbench.nn.rope import PairTurns, pair_turns

Role = Literal["qk", "v", "o", "gate_up", "down"]
"""Matrices of the branches, as far as designs start them at different scales."""


class Backbone(Frozen):
    """Constants of the LLaMA-style backbone that are no sizes."""

    rope_base: float = Field(default=10000.0, gt=0)
    norm_eps: float = Field(default=1e-6, gt=0)
    init_std: float = Field(default=0.02, gt=0)
    depth_scaled_init: bool = False
    """Multiply the start of `o` and `down` by ``1/sqrt(2L)``, as GPT-2 does."""


@dataclass(frozen=True)
class Context:
    """What all branches of one forward share: RoPE's cosines and sines, ``(t, head_dim / 2)``."""

    cos: Float[Tensor, "t half"]
    sin: Float[Tensor, "t half"]
    pair_turns: dict[tuple[int, int], PairTurns] = field(default_factory=dict, repr=False)
    """Made at first use: see `turns_for`."""

    def turns_for(self, heads: int, tail: int) -> PairTurns:
        """`pair_turns` of this forward, made once."""
        if (heads, tail) not in self.pair_turns:
            self.pair_turns[heads, tail] = pair_turns(self.cos, self.sin, heads, tail)
        return self.pair_turns[heads, tail]


@dataclass(frozen=True)
class Entry:
    """Key (before RoPE) and value of one site, for later sites to look at over depth."""

    key: Float[Tensor, "b t kv hd"]
    value: Float[Tensor, "b t kv hd"]


@dataclass(frozen=True)
class Depth:
    """Entries of earlier sites, oldest first, that an attention also attends to, token by token.

    ``rotated`` says that they are to be read as if rotated to the token's own position.
    """

    entries: tuple[Entry, ...]
    rotated: bool


class Branch(Parametrised, ABC):
    """The function ``F`` of a site, without norm and without residual."""

    @abstractmethod
    def forward(
        self, x: Float[Tensor, "b t d"], context: Context, depth: Depth | None = None
    ) -> tuple[Float[Tensor, "b t d"], Entry | None]:
        """The branch's output, and what it offers to depth-wise attention.

        Only attention offers something, and only to a design that asks with a ``depth``.
        """
