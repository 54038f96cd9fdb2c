"""What the written pages share: tables, and text that Markdown leaves as it is."""

import re
from collections.abc import Iterable, Sequence

COMMAND = "python -m depthbench.docs docs"


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
