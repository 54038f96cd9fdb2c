"""One alteration of the package, and the tests that must see it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """Text that stands exactly once in a file, what replaces it, and the tests that must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: str
