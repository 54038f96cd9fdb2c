"""What a sweep says: each number against what the model gives as it is."""

from collections.abc import Sequence
from typing import NamedTuple

from depthbench.evals.programs import PLAIN
from depthbench.evals.result import Measured

SCORES = ("accuracy", "acc", "exact_match", "nats_per_token", "word_perplexity")
"""What a sweep is read by; the first that is measured."""


class Change(NamedTuple):
    """One intervention."""

    label: str
    value: float | None
    change: float | None
    """Against the plain program."""


class Sweep(NamedTuple):
    """One text, set or task."""

    name: str
    score: str
    plain: float | None
    changes: tuple[Change, ...]


def sweeps_of(found: Sequence[Measured]) -> list[Sweep]:
    """Every name that was measured plain and under other programs, in order."""
    sweeps: list[Sweep] = []
    for kind, name in dict.fromkeys((one.kind, one.name) for one in found):
        own = [one for one in found if (one.kind, one.name) == (kind, name)]
        base = next((one for one in own if one.program == PLAIN), None)
        others = [one for one in own if one.program != PLAIN]
        if base is None or not others:
            continue
        score = next((one for one in SCORES if base.number(one) is not None), None)
        if score is None:
            continue
        plain = _value(base, score)
        changes = tuple(_change(one, score, plain) for one in others)
        sweeps.append(Sweep(name, score, plain, changes))
    return sweeps


def _value(one: Measured, score: str) -> float | None:
    number = one.number(score)
    return None if number is None else number.value


def _change(one: Measured, score: str, plain: float | None) -> Change:
    value = _value(one, score)
    if value is None or plain is None:
        return Change(one.program, value, None)
    return Change(one.program, value, value - plain)
