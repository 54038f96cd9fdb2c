"""Where the text of a prepared folder comes from, in units of work."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, final

from depthbench.data.config import PrepareConfig
from depthbench.data.own import OwnDomain, OwnFile, expand
from depthbench.data.sources import Source, UnreadableFile
from depthbench.data.tokenizer import HUB

MOST_SOURCES = 4096
"""Small files in one unit, at most."""


@dataclass(frozen=True)
class Drawn:
    """A unit of work: sources in input order."""

    sources: tuple[Source, ...]
    size: int
    """Bytes, in what `Input.size` counts."""
    state: Any = None
    """Where the input stands behind this unit, as JSON; None if the unit's number says it."""


class Input(ABC):
    """One domain; its documents always come in the same order."""

    name: str
    origin: str
    """In words."""
    size: int | None = None
    """Bytes to read in all, where that is known."""

    @abstractmethod
    def fingerprint(self) -> Any:
        """JSON that changes with what would be read."""

    @abstractmethod
    def units(self, size: int, first: int = 0, state: Any = None) -> Iterator[Drawn]:
        """Units of about ``size`` bytes from number ``first`` on; ``state`` is the one before's.

        Raises `DepthbenchError` for what cannot be read.
        """


@final
class Files(Input):
    """Files of the user's own."""

    def __init__(self, domain: OwnDomain) -> None:
        self.domain = domain
        self.name = domain.name
        self.origin = f"{domain.given} ({len(domain.files)} files)"
        self.size = sum(size for _, size, _ in domain.fingerprint)

    def fingerprint(self) -> Any:
        return self.domain.fingerprint

    def units(self, size: int, first: int = 0, state: Any = None) -> Iterator[Drawn]:
        return islice(self._units(size), first, None)

    def _units(self, size: int) -> Iterator[Drawn]:
        sources: list[Source] = []
        held = 0
        for file in self.domain.files:
            for source, weight in _pieces(file, size):
                if sources and (held + weight > size or len(sources) == MOST_SOURCES):
                    yield Drawn(tuple(sources), held)
                    sources, held = [], 0
                sources.append(source)
                held += weight
        if sources:
            yield Drawn(tuple(sources), held)


def _pieces(file: OwnFile, size: int) -> Iterator[tuple[Source, int]]:
    try:
        yield from file.pieces(size)
    except UnreadableFile:
        # whoever reads it says so, or leaves it out
        yield file.source(), 0


def find_inputs(config: PrepareConfig) -> list[Input]:
    """One input for each entry of ``paths``, in order.

    Raises `DepthbenchError` for what is not there.
    """
    # datasets takes a second to import
    from depthbench.data.huggingface import Streamed

    given = [path for path in config.paths if not path.startswith(HUB)]
    own = iter(expand(tuple(given), config.text_field))
    found: list[Input] = []
    for path in config.paths:
        one = Streamed(path, config.text_field) if path.startswith(HUB) else Files(next(own))
        taken = {other.name for other in found}
        name, count = one.name, 2
        while one.name in taken:
            one.name = f"{name}-{count}"
            count += 1
        found.append(one)
    return found
