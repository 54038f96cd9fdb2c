"""Many programs on one batch: shared prefixes run once, equal calls run together.

All programs go on side by side, one call at a time. Those that have run the same calls so far have
one state; those whose next call is the same run it as one batch, up to a number of tokens. A few
states are alive at a time, whatever the number of programs.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from depthbench.config import Frozen
from depthbench.probes.program import Program, plain
from depthbench.probes.subject import Call, Session


class Limits(Frozen):
    """How much runs together."""

    tokens: int = 2048
    """Of one call, over all programs that it serves; one program's batch may be more."""
    megabytes: float = 64.0
    """Of the states that are alive at a time, but for those of the plain program."""
    held_megabytes: float = 512.0
    """Of the plain program's states that are kept for the next probe, over all batches."""


@dataclass
class _Group:
    """States that one call made."""

    state: Any
    size: int
    form: Any


@dataclass
class _Node:
    """A state, and the programs that have it."""

    group: _Group
    place: int
    programs: list[int]


@dataclass(frozen=True)
class Step:
    """One call for some programs, as those see it who watch."""

    call: Call
    position: int
    programs: tuple[tuple[int, ...], ...]
    """By state of the group: numbers of the programs that share it."""
    before: Any
    after: Any


Watch = Callable[[Step], None]


class Walker:
    """Programs of one subject on one batch, without gradients."""

    def __init__(self, session: Session[Any], limits: Limits | None = None) -> None:
        self.session, self.layers = session, session.layers
        self.limits = limits or Limits()
        self.calls = 0
        """Calls of one program's batch each that were computed, so far."""
        self._plain: list[Any] = []

    @property
    @torch.no_grad()
    def states(self) -> list[Any]:
        """Of the plain program: before block 0, and behind every block."""
        if not self._plain:
            state = self.session.open()
            found = [state]
            for call in plain(self.layers):
                state = self.session.run(call, state, 1)
                self.calls += 1
                found.append(state)
            self._plain = found
        return self._plain

    @property
    def held(self) -> int:
        """Bytes of the plain program's states, or more where they share tensors."""
        return sum(self.session.size(state) for state in self._plain)

    def ends(
        self, programs: Sequence[Program], watch: Watch | None = None
    ) -> Iterator[tuple[int, Any]]:
        """Number and last state of every program, in any order.

        ``watch`` sees every call behind the place where its programs leave the plain one.
        """
        order = sorted(range(len(programs)), key=lambda number: programs[number])
        size = max(1, self.session.size(self.states[-1]))
        most = max(1, int(self.limits.megabytes * 2**20 / size / 2))
        for start in range(0, len(order), most):
            yield from self._together(order[start : start + most], programs, watch)

    @torch.no_grad()
    def _together(
        self, numbers: list[int], programs: Sequence[Program], watch: Watch | None
    ) -> Iterator[tuple[int, Any]]:
        shared = {number: _common(programs[number], plain(self.layers)) for number in numbers}
        live: list[_Node] = []
        for position in range(max(len(programs[number]) for number in numbers) + 1):
            beginning = [number for number in numbers if shared[number] == position]
            if beginning:
                live.append(_Node(self._group(self.states[position], 1), 0, beginning))
            over = [
                _Node(node.group, node.place, ended)
                for node in live
                if (ended := [n for n in node.programs if len(programs[n]) == position])
            ]
            for node in over:
                for number in node.programs:
                    yield number, self._state(node)
            wanted: dict[Call, list[_Node]] = {}
            for node in live:
                for call, going in _by_call(node.programs, programs, position).items():
                    wanted.setdefault(call, []).append(_Node(node.group, node.place, going))
            live = []
            for call in sorted(wanted):
                for nodes in self._fitting(wanted[call]):
                    live += self._run(call, position, nodes, watch)

    def _run(
        self, call: Call, position: int, nodes: list[_Node], watch: Watch | None
    ) -> list[_Node]:
        before = self._joined(nodes)
        group = self._group(self.session.run(call, before, len(nodes)), len(nodes))
        self.calls += len(nodes)
        if watch is not None:
            programs = tuple(tuple(node.programs) for node in nodes)
            watch(Step(call, position, programs, before, group.state))
        return [_Node(group, place, node.programs) for place, node in enumerate(nodes)]

    def _group(self, state: Any, size: int) -> _Group:
        return _Group(state, size, self.session.form(state))

    def _fitting(self, nodes: list[_Node]) -> Iterator[list[_Node]]:
        """Parts of one form whose batches fit into one call."""
        rows = self.session.batch.tokens.numel()
        most = max(1, self.limits.tokens // rows)
        forms: dict[Any, list[_Node]] = {}
        for node in nodes:
            forms.setdefault(node.group.form, []).append(node)
        for alike in forms.values():
            for start in range(0, len(alike), most):
                yield alike[start : start + most]

    def _state(self, node: _Node) -> Any:
        if node.group.size == 1:
            return node.group.state
        return self.session.take(node.group.state, node.place, node.place + 1, node.group.size)

    def _joined(self, nodes: list[_Node]) -> Any:
        pieces: list[Any] = []
        start = 0
        while start < len(nodes):
            stop, first = start + 1, nodes[start]
            while stop < len(nodes) and _follows(nodes[stop - 1], nodes[stop]):
                stop += 1
            if stop - start == first.group.size:
                pieces.append(first.group.state)
            else:
                end = first.place + stop - start
                size = first.group.size
                pieces.append(self.session.take(first.group.state, first.place, end, size))
            start = stop
        return pieces[0] if len(pieces) == 1 else self.session.join(pieces, len(nodes))


def _common(one: Program, other: Program) -> int:
    """Number of first calls that are the same."""
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return place
    return min(len(one), len(other))


def _by_call(
    numbers: list[int], programs: Sequence[Program], position: int
) -> dict[Call, list[int]]:
    found: dict[Call, list[int]] = {}
    for number in numbers:
        if position < len(programs[number]):
            found.setdefault(programs[number][position], []).append(number)
    return found


def _follows(node: _Node, after: _Node) -> bool:
    return after.group is node.group and after.place == node.place + 1
