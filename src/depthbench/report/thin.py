"""Fewer points than there are records, for a page that is read by eye."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def stretches(items: Sequence[T], most: int) -> list[Sequence[T]]:
    """``items`` cut into at most so many stretches of equal length, the last one shorter."""
    size = -(-len(items) // most)
    return [items[start : start + size] for start in range(0, len(items), size)]


def evenly(items: Sequence[T], most: int) -> list[T]:
    """At most so many of ``items``, evenly spread, the last among them."""
    size = -(-len(items) // most)
    return list(items[::-1][::size][::-1])
