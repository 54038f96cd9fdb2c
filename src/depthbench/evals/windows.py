"""Documents cut into rows, so that every token is scored once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field, model_validator

from depthbench.config import Frozen

USUAL = 512
"""Tokens of a row, where nothing tells."""
Bos = Literal["always", "never", "document"]


class WindowConfig(Frozen):
    """How long texts are cut.

    Row ``k`` begins at token ``k · stride`` and holds ``length`` tokens; it scores those that no
    earlier row holds, so each has at least ``length - stride`` tokens of context where its
    document has them.
    """

    length: int | None = Field(default=None, ge=2)
    """Tokens of a row, its first one included; None = as many as the model was trained on or
    reads, 512 at most."""
    stride: int | None = Field(default=None, ge=1)
    """Tokens between the beginnings of two rows; None = half of ``length``."""
    bos: Bos = "document"
    """Where the token that begins a text stands: ``always`` in front of every row, ``document`` in
    front of a document's first row alone, ``never``. Without it a document's first token is not
    scored, and neither are its bytes."""

    @property
    def row(self) -> int:
        """The length that is used."""
        return self.length or USUAL

    @property
    def step(self) -> int:
        """The stride that is used."""
        return self.stride or max(1, self.row // 2)

    def fitted(self, most: int | None) -> Self:
        """With a length for a model of ``most`` tokens, where none was asked for."""
        if self.length is not None or most is None:
            return self
        return self.parse(self.model_dump() | {"length": min(USUAL, most)}, "eval")

    @model_validator(mode="after")
    def _every_token_once(self) -> Self:
        if self.step >= self.row:
            raise ValueError(
                f"stride = {self.step} leaves tokens of a row of {self.row} without context. "
                f"Use at most {self.row - 1}"
            )
        return self


@dataclass(frozen=True)
class Window:
    """One row, and which of its tokens count."""

    ids: tuple[int, ...]
    first: int
    """The first token that is scored; all behind it are, too."""
    document: int
    bytes: int
    """Of the tokens that are scored."""

    @property
    def scored(self) -> int:
        """Number of tokens that are scored."""
        return len(self.ids) - self.first


def windows_of(
    ids: Sequence[int], sizes: Sequence[int], config: WindowConfig, bos: int | None, document: int
) -> Iterator[Window]:
    """Rows of one document; none where it has no token to score.

    ``bos`` is the token that ``config.bos`` puts in front, None for ``never``.
    """
    front = () if bos is None or config.bos == "document" else (bos,)
    if bos is not None and config.bos == "document":
        ids, sizes = (bos, *ids), (0, *sizes)
    body, begin = config.row - len(front), 0
    done = 1 - len(front)
    while done < len(ids):
        end = min(begin + body, len(ids))
        row = (*front, *ids[begin:end])
        yield Window(row, len(front) + done - begin, document, int(sum(sizes[done:end])))
        done = end
        begin += config.step
