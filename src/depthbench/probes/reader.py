"""How a model reads text: its tokenizer, what it puts in front, and how much fits."""

from collections.abc import Callable
from dataclasses import dataclass

from depthbench.data.dataset import Dataset
from depthbench.data.tokenizer import Tokenizer


@dataclass(frozen=True)
class Reader:
    """Of one model."""

    coder: Tokenizer
    start: Callable[[str], int | None]
    """The token in front of a text under ``always``, ``never`` or ``model``; None for none."""
    longest: int | None
    """Tokens of a row at most; None = any number."""
    words: int
    """Rows of the model's embedding."""
    end: int | None = None
    """The token that ends a text."""
    known: int | None = None
    """Tokens that the tokenizer has: rows of the head behind them only pad it; None = all."""
    trained: int | None = None
    """Tokens of the rows that it was trained on; None = not known."""
    dataset: Dataset | None = None
    """What the model was trained on, where that is known."""
