"""Token ids with a meaning for the text itself, as the tokenizer names them."""

from pydantic import field_validator

from depthbench.config import Frozen


class Marks(Frozen):
    """What a design that looks at the text is told of it; nothing by default."""

    document: int | None = None
    """Token that starts every document; None where there is none."""
    sentence_ends: tuple[int, ...] = ()
    """Tokens that end a sentence, rising; none where the tokenizer names none."""

    @field_validator("sentence_ends")
    @classmethod
    def _in_order(cls, ends: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(set(ends)))


NO_MARKS = Marks()
