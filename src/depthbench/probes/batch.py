"""Text as probes read it: rows of tokens, which of them are text, and what they are bytes of."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Rows of one text each, padded on either side."""

    tokens: Int[Tensor, "b t"]
    valid: Bool[Tensor, "b t"]
    """Which tokens are text or the token that starts it; in one piece in every row."""
    sizes: Int[Tensor, "b t"]
    """Bytes of text of each token; 0 for padding and for the token that starts a text."""
    documents: tuple[int, ...]
    """Number of the document that each row is of."""

    @classmethod
    def of_rows(
        cls,
        rows: Sequence[Sequence[int]],
        sizes: Sequence[Sequence[int]] | None = None,
        documents: Sequence[int] | None = None,
        left: bool = False,
    ) -> "Batch":
        """Rows of different lengths, padded on the right (or ``left``) with token 0."""
        length = max(map(len, rows))
        shape = (len(rows), length)
        tokens, valid = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.bool)
        known = torch.zeros(shape, dtype=torch.long)
        for number, row in enumerate(rows):
            start = length - len(row) if left else 0
            place = slice(start, start + len(row))
            tokens[number, place] = torch.tensor(list(row))
            valid[number, place] = True
            if sizes is not None:
                known[number, place] = torch.tensor(list(sizes[number]))
        return cls(tokens, valid, known, tuple(documents or range(len(rows))))

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.tokens)

    @cached_property
    def padding(self) -> Int[Tensor, "b"] | None:
        """Tokens on the left of each row that are no text; None where there are none.

        Padding on the right needs no care: no token looks ahead.
        """
        left = self.valid.int().argmax(dim=1)
        return left if bool(left.any()) else None

    @cached_property
    def predicted(self) -> Bool[Tensor, "b u"]:
        """Positions, but the last, whose next token is text: those with a loss."""
        return self.valid[:, :-1] & self.valid[:, 1:]

    def to(self, device: torch.device | str) -> "Batch":
        """On another device."""
        moved = (self.tokens.to(device), self.valid.to(device), self.sizes.to(device))
        return Batch(*moved, self.documents)

    def text(self, x: Float[Tensor, "b t w"]) -> Float[Tensor, "n w"]:
        """The valid tokens of ``x`` alone, row by row."""
        return x[self.valid]


def repeated(x: Tensor | None, copies: int) -> Tensor | None:
    """``x`` with its rows repeated ``copies`` times, all rows one after another."""
    return x if x is None or copies == 1 else x.repeat(copies, *(1,) * (x.ndim - 1))
