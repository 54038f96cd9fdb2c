"""Documents and where they come from."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from depthbench.errors import DepthbenchError


class UnreadableFile(DepthbenchError):
    """A file that is no readable text: an error if it was named, left out if found in a folder."""


@dataclass(frozen=True)
class Document:
    """One text with the name that decides its side of the split."""

    name: str
    data: bytes


@dataclass(frozen=True)
class Source:
    """A file that holds documents."""

    name: str
    read: Callable[[], Iterable[Document]]
    lenient: bool = False
    """Leave it out, with a note, when `read` raises `UnreadableFile`."""
