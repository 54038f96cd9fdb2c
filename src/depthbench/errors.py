"""Errors that a user can act on."""

import difflib
import re
from collections.abc import Iterable


class DepthbenchError(Exception):
    """A mistake in what the user gave: one line that names it and the remedy.

    The command line prints the message without a traceback and exits with code 2.
    """


def printable(text: str) -> str:
    """``text`` without control characters: a terminal obeys some, and no XML holds them."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "\N{REPLACEMENT CHARACTER}", text)


def nearest(word: str, allowed: Iterable[str]) -> str:
    """``", did you mean 'x'?"`` for the closest allowed word, or an empty string."""
    match = difflib.get_close_matches(word, list(allowed), n=1, cutoff=0.5)
    return f", did you mean '{match[0]}'?" if match else ""


def unknown(kind: str, word: str, allowed: Iterable[str]) -> DepthbenchError:
    """The error for a name outside a closed list, with the nearest match."""
    names = sorted(allowed)
    return DepthbenchError(
        f"unknown {kind} '{word}'{nearest(word, names) or '.'} Allowed: {', '.join(names)}"
    )
