"""Shapes of the backbone."""

import math
import re
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar, Self

from pydantic import Field, model_validator

from depthbench.config import Frozen
from depthbench.errors import DepthbenchError


class Shape(Frozen):
    """Sizes of a LLaMA-style decoder; ``width / layers`` is its aspect ratio.

    ``kv_heads`` below ``heads`` is grouped-query attention; each must divide as usual and the head
    width must be even, because RoPE rotates pairs.
    """

    later: ClassVar[frozenset[str]] = frozenset({"head_width"})

    layers: int = Field(ge=1)
    """Blocks."""
    width: int = Field(ge=2)
    """Entries of one stream's state."""
    heads: int = Field(ge=1)
    """Query heads."""
    kv_heads: int = Field(ge=1)
    """Key and value heads."""
    ffn: int = Field(ge=1)
    """Entries of the feed-forward between its matrices."""
    vocab: int = Field(ge=2)
    """Tokens of embedding and head."""
    head_width: int | None = Field(default=None, ge=2)
    """Of one attention head, where it is not ``width / heads``."""

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.head_width is None and self.width % self.heads:
            raise ValueError(
                f"width {self.width} is not divisible by heads {self.heads}. "
                f"Use a width that is a multiple of {2 * self.heads}"
            )
        if self.head_width is not None and self.head_width % 2:
            raise ValueError(
                f"head_width = {self.head_width} is odd and RoPE needs pairs. "
                f"Use {self.head_width + 1}"
            )
        if self.head_dim % 2:
            raise ValueError(
                f"head width {self.head_dim} (width {self.width} / heads {self.heads}) is odd and "
                f"RoPE needs pairs. Use a width that is a multiple of {2 * self.heads}"
            )
        if self.heads % self.kv_heads:
            raise ValueError(
                f"heads {self.heads} is not divisible by kv_heads {self.kv_heads}. "
                "Use a divisor of heads"
            )
        return self

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.head_width or self.width // self.heads

    @property
    def queries(self) -> int:
        """Features of all queries, and of what attention gives before its output matrix."""
        return self.heads * self.head_dim

    @property
    def keys(self) -> int:
        """Features of all keys, and of all values."""
        return self.kv_heads * self.head_dim

    @property
    def aspect_ratio(self) -> float:
        """``width / layers``."""
        return self.width / self.layers

    @property
    def sites(self) -> int:
        """Number of places where a branch is called: two for each block."""
        return 2 * self.layers


COUNT = re.compile(r"(?P<digits>\d[\d_]*(\.\d+)?) ?(?P<unit>[kmb]?)", re.IGNORECASE)
UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}


def parse_count(text: str, field: str = "params") -> int:
    """A whole number such as ``400M``, ``1.5B``, ``500k`` or ``1_000_000``; units are decimal.

    Raises `DepthbenchError` naming ``field`` for anything else, and for zero or less.
    """
    match = COUNT.fullmatch(text.strip())
    if match is None:
        raise DepthbenchError(
            f"{field} = '{text}' is no positive count. Write it like 400M, 1.5B, 500k or 1_000_000"
        )
    number = Decimal(match["digits"].replace("_", "")) * UNITS[match["unit"].lower()]
    if number < 1 or number != int(number):
        raise DepthbenchError(
            f"{field} = '{text}' is no positive whole number. Write it like 400M or 1_000_000"
        )
    return int(number)


def rule_ffn(width: int, ratio: Fraction = Fraction(8, 3), multiple: int = 16) -> int:
    """``ratio · width``, rounded up to a ``multiple``: the published size of the feed-forward."""
    return math.ceil(ratio * width / multiple) * multiple
