"""Changes of RoPE's frequencies that let a model read longer contexts than it was trained on."""

import math
from abc import ABC, abstractmethod
from typing import Annotated, Any

import torch
from jaxtyping import Float
from pydantic import Field, SerializeAsAny, model_validator
from torch import Tensor

from depthbench.config import Named, by_name
from depthbench.errors import DepthbenchError, unknown


class RopeScaling(Named, ABC):
    """One of the kinds below."""

    factor: float = Field(ge=1)
    """How much longer."""

    @property
    def size(self) -> float:
        """What the turns multiply the length of queries and keys by."""
        return 1.0

    @abstractmethod
    def scaled(self, frequencies: Float[Tensor, "half"], base: float) -> Float[Tensor, "half"]:
        """Radians a position, from ``base^(-2i/head_dim)``."""


class LinearScaling(RopeScaling):
    """``f / factor``: positions are squeezed (arXiv 2306.15595)."""

    name: str = "linear"

    def scaled(self, frequencies: Float[Tensor, "half"], base: float) -> Float[Tensor, "half"]:
        return frequencies / self.factor


class Llama3Scaling(RopeScaling):
    """``f`` for features that turn ``high`` times and more in ``length`` positions, ``f / factor``
    for those that turn ``low`` times and less, and between them linear in the turns (LLaMA 3.1).
    """

    name: str = "llama3"
    length: int = Field(ge=1)
    """Positions of the first training."""
    low: float = Field(default=1.0, gt=0)
    """Turns in ``length`` positions up to which features are divided."""
    high: float = Field(default=4.0, gt=0)
    """Turns from which features stay as they are."""

    @model_validator(mode="after")
    def _in_order(self) -> "Llama3Scaling":
        if self.high <= self.low:
            raise ValueError(f"high = {self.high} must be above low = {self.low}")
        return self

    def scaled(self, frequencies: Float[Tensor, "half"], base: float) -> Float[Tensor, "half"]:
        waves = self.length * frequencies / (2 * math.pi)
        kept = ((waves - self.low) / (self.high - self.low)).clamp(0, 1)
        return frequencies * (kept + (1 - kept) / self.factor)


class YarnScaling(RopeScaling):
    """YaRN (arXiv 2309.00071): ``f`` for features that turn ``fast`` times and more in ``length``
    positions, ``f / factor`` for those that turn ``slow`` times and less, and between them linear
    in the feature's number; queries and keys become ``size`` times as long.
    """

    name: str = "yarn"
    length: int = Field(ge=1)
    """Positions of the first training."""
    fast: float = Field(default=32.0, gt=0)
    """Turns in ``length`` positions from which features stay as they are."""
    slow: float = Field(default=1.0, gt=0)
    """Turns up to which features are divided."""
    whole: bool = True
    """Both ends of the linear part are rounded to whole features, outwards."""
    attention: float | None = Field(default=None, gt=0)
    """``size``; None = ``0.1 ln(factor) + 1``."""

    @property
    def size(self) -> float:
        return 0.1 * math.log(self.factor) + 1 if self.attention is None else self.attention

    def scaled(self, frequencies: Float[Tensor, "half"], base: float) -> Float[Tensor, "half"]:
        half = len(frequencies)

        def feature(turns: float) -> float:
            return half * math.log(self.length / (turns * 2 * math.pi)) / math.log(base)

        first, last = feature(self.fast), feature(self.slow)
        if self.whole:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, 2 * half - 1)
        numbers = torch.arange(half, dtype=frequencies.dtype, device=frequencies.device)
        # as in transformers, where both ends fall together
        slow = ((numbers - first) / ((last - first) or 0.001)).clamp(0, 1)
        return frequencies * (1 - slow + slow / self.factor)


KINDS: dict[str, type[RopeScaling]] = {
    "linear": LinearScaling,
    "llama3": Llama3Scaling,
    "yarn": YarnScaling,
}


def parse_scaling(table: Any) -> RopeScaling:
    """From a table with ``name`` and its numbers."""
    if isinstance(table, RopeScaling):
        return table
    if not isinstance(table, dict) or "name" not in table:
        raise DepthbenchError(
            f'rope_scaling {table!r} has no name. Write {{ name = "linear", factor = 4.0 }}'
        )
    if table["name"] not in KINDS:
        raise unknown("rope_scaling", str(table["name"]), KINDS)
    return KINDS[table["name"]].parse(table, f"rope_scaling '{table['name']}'")


RopeScalingChoice = Annotated[SerializeAsAny[RopeScaling], by_name(parse_scaling)]
