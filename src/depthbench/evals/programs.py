"""Which blocks run, as asked for on the command line."""

from dataclasses import dataclass
from typing import Literal

from depthbench.config import Frozen
from depthbench.errors import DepthbenchError
from depthbench.probes.program import Program, plain, program_of, repeat, skip, swap

SWEEPS = ("skip", "swap", "repeat")
PLAIN = "plain"


class Asked(Frozen):
    """At most one intervention, or a sweep of one kind."""

    skip: str | None = None
    """Blocks to leave out, with commas."""
    swap: str | None = None
    """Two blocks that run in each other's place."""
    repeat: str | None = None
    """A block that runs twice in a row."""
    program: str | None = None
    """All blocks that run, in order: ``0-9,12-23``."""
    sweep: Literal["skip", "swap", "repeat"] | None = None
    """Each block in turn: left out, swapped with the next, or repeated."""


@dataclass(frozen=True)
class Edit:
    """A program with its name."""

    label: str
    program: Program

    @property
    def blocks(self) -> tuple[int, ...]:
        """Those that run, in order."""
        return tuple(call.block for call in self.program)


def edits_of(asked: Asked, layers: int) -> list[Edit]:
    """The programs that are asked for; a sweep begins with the plain one.

    Raises `DepthbenchError` for more than one intervention, blocks that are not there, and edits
    that change nothing.
    """
    given = {name: value for name, value in asked if value is not None}
    if len(given) > 1:
        raise DepthbenchError(
            f"--{' and --'.join(given)} are given together: ask for one intervention at a time, or "
            "write the blocks that run with --program"
        )
    if not given:
        return [Edit(PLAIN, plain(layers))]
    [(kind, text)] = given.items()
    if kind == "sweep":
        return [Edit(PLAIN, plain(layers)), *_sweep(text, layers)]
    numbers = _blocks(text, kind)
    label = f"{kind} {text}"
    if kind == "skip":
        return [Edit(label, skip(layers, *numbers))]
    if kind == "program":
        return [Edit(label, program_of(numbers, layers))]
    wanted = 2 if kind == "swap" else 1
    if len(numbers) != wanted:
        many = "two blocks, such as --swap 3,9" if wanted == 2 else "one block, such as --repeat 5"
        raise DepthbenchError(f"{kind} = '{text}' names {len(numbers)} blocks. Name {many}")
    made = swap(layers, *numbers[:2]) if kind == "swap" else repeat(layers, numbers[0])
    return [Edit(label, made)]


def _sweep(kind: str, layers: int) -> list[Edit]:
    if kind == "swap":
        if layers < 2:
            raise DepthbenchError("sweep = swap: the model has one block. Use --sweep skip")
        pairs = [(first, first + 1) for first in range(layers - 1)]
        return [Edit(f"swap {a},{b}", swap(layers, a, b)) for a, b in pairs]
    make = skip if kind == "skip" else repeat
    return [Edit(f"{kind} {block}", make(layers, block)) for block in range(layers)]


def _blocks(text: str, kind: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = (one.strip() for one in part.partition("-"))
        ends = (first, last if dash else first)
        # isdecimal alone takes digits of other scripts, which int reads too
        if not all(one.isascii() and one.isdecimal() and len(one) < 7 for one in ends):
            raise DepthbenchError(
                f"{kind} = '{text}': '{part}' is no block. Write numbers and spans, such as "
                "0-9,12-23"
            )
        low, high = map(int, ends)
        if low > high:
            raise DepthbenchError(
                f"{kind} = '{text}': {part} runs backwards. Name its blocks one by one"
            )
        found += range(low, high + 1)
    return found
