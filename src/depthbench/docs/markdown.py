"""What the written pages share: tables, and text that Markdown leaves as it is."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

COMMAND = "python -m depthbench.docs docs"
READABLE = 2**32
"""Whole numbers above it are shown as powers of two where they are."""


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table; cells are Markdown already."""
    rule = "|" + "---|" * len(headings)
    return [_row(headings), rule, *map(_row, rows)]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def cell(text: str) -> str:
    """Text for a cell: a bar divides no cells, and no letter begins an element or emphasis."""
    parts = re.split(r"(`+[^`]*`+)", text)
    shown = [part if i % 2 else _plain(part) for i, part in enumerate(parts)]
    return "".join(shown).replace("|", "\\|")


def _plain(text: str) -> str:
    return re.sub(r"([*_<>\[\]])", r"\\\1", text)


def paragraph(text: str) -> str:
    """A docstring's text as Markdown: double backquotes are code, as in reStructuredText."""
    return text.replace("``", "`")


def bound(sign: str, value: Any) -> str:
    """A limit, ``≥ 1``; powers of two that nobody reads in digits become ``< 2^63``."""
    end = int(value) + (sign == "≤")
    if end > READABLE and end.bit_count() == 1 and sign in "<≤":
        return f"< 2^{end.bit_length() - 1}"
    return f"{sign} {value:g}"
