"""Interventions as programs: which blocks run, in which order."""

from collections.abc import Sequence
from dataclasses import replace

from depthbench.errors import DepthbenchError
from depthbench.nn.model import places
from depthbench.probes.subject import Call, Part

Program = tuple[Call, ...]


def program_of(order: Sequence[int], layers: int) -> Program:
    """The blocks of ``order``; raises `DepthbenchError` for one that is not there."""
    for number in order:
        if not 0 <= number < layers:
            raise DepthbenchError(
                f"program names block {number}, but the model has blocks 0 to {layers - 1}"
            )
    return tuple(Call(*pair) for pair in zip(order, places(order), strict=True))


def plain(layers: int) -> Program:
    """All blocks in order."""
    return program_of(range(layers), layers)


def skip(layers: int, *blocks: int) -> Program:
    """Without ``blocks``."""
    _within(layers, *blocks)
    return program_of([one for one in range(layers) if one not in blocks], layers)


def swap(layers: int, first: int, second: int) -> Program:
    """``first`` and ``second`` in each other's place."""
    _within(layers, first, second)
    _edits(first != second, f"swap of block {first} with itself")
    order = list(range(layers))
    order[first], order[second] = second, first
    return program_of(order, layers)


def repeat(layers: int, block: int, times: int = 2) -> Program:
    """``block`` ``times`` times in a row."""
    return span_again(layers, block, block + 1, times)


def span_again(layers: int, start: int, stop: int, times: int = 2) -> Program:
    """Blocks ``start`` to ``stop - 1`` run ``times`` times in a row."""
    _span(layers, start, stop, 1)
    _edits(times != 1, f"blocks {start} to {stop - 1} once")
    inside = list(range(start, stop))
    return program_of([*range(start), *inside * times, *range(stop, layers)], layers)


def leave(layers: int, depth: int) -> Program:
    """Stop behind ``depth`` blocks."""
    if not 0 <= depth <= layers:
        raise DepthbenchError(f"exit at depth {depth}: the model has depths 0 to {layers}")
    return program_of(range(depth), layers)


def move(layers: int, block: int, to: int) -> Program:
    """``block`` at place ``to``; those in between make room."""
    _within(layers, block, to)
    _edits(block != to, f"move of block {block} to its own place")
    order = [one for one in range(layers) if one != block]
    order.insert(to, block)
    return program_of(order, layers)


def reverse(layers: int, start: int, stop: int) -> Program:
    """Blocks ``start`` to ``stop - 1`` the other way round."""
    _span(layers, start, stop, 2)
    inside = range(start, stop)[::-1]
    return program_of([*range(start), *inside, *range(stop, layers)], layers)


def only(layers: int, block: int, part: Part) -> Program:
    """``part`` of ``block`` in place of the whole; all other blocks as they are."""
    _within(layers, block)
    _edits(part != "block", f"the whole of block {block} in its own place")
    calls = plain(layers)
    return (*calls[:block], Call(block, block, part), *calls[block + 1 :])


def silent(layers: int, blocks: Sequence[int], *parts: str) -> Program:
    """All blocks in order; these ``parts`` of the branches of ``blocks`` give nothing."""
    _within(layers, *blocks)
    _edits(bool(blocks) and bool(parts), "nothing that is silent")
    calls = plain(layers)
    return tuple(replace(one, silent=parts) if one.block in blocks else one for one in calls)


def _within(layers: int, *blocks: int) -> None:
    for number in blocks:
        if not 0 <= number < layers:
            raise DepthbenchError(
                f"block {number} is not there: the model has blocks 0 to {layers - 1}"
            )


def _span(layers: int, start: int, stop: int, least: int) -> None:
    if not 0 <= start <= stop - least or stop > layers:
        raise DepthbenchError(
            f"blocks {start} to {stop - 1} are no span of at least {least} within 0 to {layers - 1}"
        )


def _edits(changes: bool, what: str) -> None:
    if not changes:
        raise DepthbenchError(f"{what} changes nothing: name an edit that does")
