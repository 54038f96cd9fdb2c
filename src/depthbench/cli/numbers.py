"""Several numbers in one option."""

from typing import TypeVar

from depthbench.errors import DepthbenchError

N = TypeVar("N", int, float)


def numbers(option: str, text: str, kind: type[N]) -> list[N]:
    """The numbers of a comma-separated list; an error that names the first that is none."""
    found: list[N] = []
    for part in text.split(","):
        try:
            found.append(kind(part))
        except ValueError:
            example, word = ("2,4,8,16", "whole number") if kind is int else ("76,28,9", "number")
            raise DepthbenchError(
                f"--{option} = '{text}': '{part.strip()}' is no {word}. Write it like {example}"
            ) from None
    return found
