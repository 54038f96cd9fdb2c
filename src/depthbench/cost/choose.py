"""The least measured loss under limits, what each limit costs, and the Pareto front."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field

from depthbench.config import Frozen
from depthbench.cost.candidates import Candidate, Conditions
from depthbench.quantities import bytes_text, seconds_text
from depthbench.study.findings import Comparison, Entry
from depthbench.study.verdict import CLAIM_SEEDS, CLAIM_STANDARD_ERRORS, ranked, standard_error


@dataclass(frozen=True)
class Measure:
    """Something that can be limited."""

    words: str
    of: Callable[[Candidate], float]
    text: Callable[[float], str]


def _count(value: float) -> str:
    return f"{value:,.0f}"


MEASURES: Mapping[str, Measure] = {
    "params": Measure("parameters", lambda c: c.parameters, _count),
    "kv": Measure("KV cache", lambda c: c.kv_bytes, bytes_text),
    "tpot": Measure("time per output token", lambda c: c.tpot_seconds, seconds_text),
    "memory": Measure("memory", lambda c: c.memory_bytes, bytes_text),
    "ttft": Measure("time to first token", lambda c: c.ttft_seconds, seconds_text),
}
"""By the field of `Limits`."""
BUDGETS: Mapping[str, Measure] = {
    "parameters": Measure("parameters", lambda c: c.parameters, _count),
    "training FLOPs": Measure("training FLOPs", lambda c: c.training_flops, "{:.3g}".format),
    "training time": Measure("training time", lambda c: c.training_seconds, seconds_text),
}


class Limits(Frozen):
    """What a choice may cost at most; None = anything."""

    params: int | None = Field(default=None, gt=0)
    """Most parameters, embedding and head included."""
    kv: int | None = Field(default=None, gt=0)
    """Bytes of the KV cache of the whole batch."""
    tpot: float | None = Field(default=None, gt=0)
    """Seconds."""
    memory: int | None = Field(default=None, gt=0)
    """Bytes of weights, caches, state and what a step needs."""
    ttft: float | None = Field(default=None, gt=0)
    """Seconds."""

    def given(self) -> dict[str, float]:
        """Those that are set."""
        return self.model_dump(exclude_none=True)

    def broken_by(self, one: Candidate) -> dict[str, float]:
        """Each limit that ``one`` exceeds, and by what factor."""
        values = {name: MEASURES[name].of(one) / limit for name, limit in self.given().items()}
        return {name: factor for name, factor in values.items() if factor > 1}


class ChooseConfig(Frozen):
    """Constants of a choice."""

    tolerance: float = Field(default=0.05, ge=0)
    """Parameters, training FLOPs or training time within this share of the chosen one's are
    equal."""


class Price(Frozen):
    """What one limit costs in loss while the others hold."""

    limit: str
    allowed: float
    without: str
    """The best candidate if this limit did not hold."""
    needs: float
    """What that one needs of what is limited."""
    bits_per_byte: float
    """The chosen one's mean loss minus that one's: 0 where the limit changes nothing."""


class Conflict(Frozen):
    """Limits that no candidate meets together, while it meets any fewer of them."""

    limits: tuple[str, ...]
    least: float | None
    """Of a single impossible limit: the smallest value in the study."""
    candidate: str | None
    """Which has it."""
    factor: float | None
    """``least`` over the limit."""


class Relaxation(Frozen):
    """Limits that would have to be raised, and to what, for ``candidate`` to meet them all."""

    to: dict[str, float]
    factor: float
    """The greatest of the raises."""
    candidate: str
    bits_per_byte: float


class Equal(Frozen):
    """The least loss among all candidates that cost the same as the chosen one in one respect.

    Limits do not hold here.
    """

    budget: str
    value: float
    """The chosen one's."""
    compared: int
    """Candidates within the tolerance of it, itself included."""
    winner: str
    winners_value: float
    bits_per_byte: float


class Choice(Frozen):
    """A choice among candidates, with all that it rests on."""

    conditions: Conditions
    limits: Limits
    config: ChooseConfig
    candidates: tuple[Candidate, ...]
    """Those that meet all limits first, each part by loss."""
    feasible: tuple[str, ...]
    chosen: str | None
    """The first of them; None when there is none."""
    comparison: Comparison | None
    """Of the chosen one and the next that meets the limits."""
    few: tuple[str, ...]
    """Of all that meet them, those with fewer than three seeds."""
    ties: tuple[str, ...]
    """Of those, the ones that the chosen leads by no more than two standard errors."""
    winner: str | None
    """The chosen one, only if it wins that comparison and nobody is in ``few`` or ``ties``."""
    front: tuple[str, ...]
    """Names on the Pareto front of loss, time per output token and KV cache, by loss; limits do
    not hold here."""
    prices: tuple[Price, ...]
    unlimited: str
    """The choice without any limit: limits that exclude the same candidates cost nothing alone."""
    conflicts: tuple[Conflict, ...]
    relaxations: tuple[Relaxation, ...]
    """Where nothing meets the limits: fewest limits first, then the smallest raise."""
    equals: tuple[Equal, ...]
    left_out: tuple[str, ...]
    """Without any finished trial."""

    def named(self, name: str) -> Candidate:
        """The candidate of this name."""
        return next(one for one in self.candidates if one.name == name)


def choose(
    candidates: Sequence[Candidate],
    limits: Limits,
    conditions: Conditions,
    *,
    config: ChooseConfig | None = None,
    left_out: Sequence[str] = (),
) -> Choice:
    """The candidate with the least mean loss among those that meet all ``limits``.

    Of equal losses the one with fewer parameters. A winner is claimed by the rule of
    `depthbench.study.verdict`: three seeds of all that are compared, and a lead beyond two
    standard errors, here over each of them. Raises `ValueError` without any candidate.
    """
    config = config or ChooseConfig()
    if not candidates:
        raise ValueError("no candidates")
    ordered = sorted(candidates, key=_order)
    feasible = [one for one in ordered if not limits.broken_by(one)]
    best = feasible[0] if feasible else None
    comparison = ranked([_entry(one) for one in feasible[:2]], "best") if feasible else None
    few = [one.name for one in feasible if one.finished < CLAIM_SEEDS]
    ties = [one.name for one in feasible[1:] if best and _tie(best, one)]
    return Choice(
        conditions=conditions,
        limits=limits,
        config=config,
        candidates=(*feasible, *(one for one in ordered if limits.broken_by(one))),
        feasible=tuple(one.name for one in feasible),
        chosen=best.name if best else None,
        comparison=comparison,
        few=tuple(few),
        ties=tuple(ties),
        winner=comparison.winner if comparison and not few and not ties else None,
        front=tuple(one.name for one in pareto_front(ordered)),
        prices=_prices(ordered, limits, best) if best else (),
        unlimited=ordered[0].name,
        conflicts=() if best else _conflicts(ordered, limits),
        relaxations=() if best else _relaxations(ordered, limits),
        equals=_equals(ordered, best, config.tolerance) if best else (),
        left_out=tuple(left_out),
    )


def pareto_front(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those that no other is at least as good as in loss, time per output token and KV cache, and
    better in one of them."""
    ordered = sorted(candidates, key=_order)
    return [one for one in ordered if not any(_dominates(other, one) for other in ordered)]


def _order(one: Candidate) -> tuple[float, int, str]:
    return one.bits_per_byte, one.parameters, one.name


def _dominates(one: Candidate, other: Candidate) -> bool:
    ours, theirs = ((c.bits_per_byte, c.tpot_seconds, float(c.kv_bytes)) for c in (one, other))
    return ours != theirs and all(a <= b for a, b in zip(ours, theirs, strict=True))


def _entry(one: Candidate) -> Entry:
    return Entry(
        label=one.name,
        layers=one.shape.layers,
        bits_per_byte=one.bits_per_byte,
        standard_deviation=one.standard_deviation,
        finished=one.finished,
        trials=one.trials,
    )


def _tie(best: Candidate, other: Candidate) -> bool:
    error = standard_error(_entry(best), _entry(other))
    lead = other.bits_per_byte - best.bits_per_byte
    return error is not None and lead <= CLAIM_STANDARD_ERRORS * error


def _prices(ordered: Sequence[Candidate], limits: Limits, best: Candidate) -> tuple[Price, ...]:
    prices = []
    for name, allowed in limits.given().items():
        others = limits.model_copy(update={name: None})
        without = next(one for one in ordered if not others.broken_by(one))
        prices.append(
            Price(
                limit=name,
                allowed=allowed,
                without=without.name,
                needs=MEASURES[name].of(without),
                bits_per_byte=best.bits_per_byte - without.bits_per_byte,
            )
        )
    return tuple(prices)


def _conflicts(ordered: Sequence[Candidate], limits: Limits) -> tuple[Conflict, ...]:
    """Every smallest set of limits that no candidate meets."""
    given = limits.given()
    broken = [set(limits.broken_by(one)) for one in ordered]
    found: list[tuple[str, ...]] = []
    for size in range(1, len(given) + 1):
        for names in itertools.combinations(given, size):
            if any(set(smaller) <= set(names) for smaller in found):
                continue
            if all(one & set(names) for one in broken):
                found.append(names)
    return tuple(_conflict(ordered, names, given) for names in found)


def _conflict(
    ordered: Sequence[Candidate], names: tuple[str, ...], given: Mapping[str, float]
) -> Conflict:
    name, *others = names
    if others:
        return Conflict(limits=names, least=None, candidate=None, factor=None)
    of = MEASURES[name].of
    nearest = min(ordered, key=of)
    least = of(nearest)
    return Conflict(limits=names, least=least, candidate=nearest.name, factor=least / given[name])


def _relaxations(ordered: Sequence[Candidate], limits: Limits) -> tuple[Relaxation, ...]:
    """For each smallest set of limits to raise, the candidate that asks for the least raise."""
    nearest: dict[frozenset[str], tuple[float, Candidate]] = {}
    for one in ordered:
        broken = limits.broken_by(one)
        names, factor = frozenset(broken), max(broken.values())
        if names not in nearest or factor < nearest[names][0]:
            nearest[names] = factor, one
    smallest = [names for names in nearest if not any(other < names for other in nearest)]
    found = [
        Relaxation(
            to={name: MEASURES[name].of(nearest[names][1]) for name in MEASURES if name in names},
            factor=nearest[names][0],
            candidate=nearest[names][1].name,
            bits_per_byte=nearest[names][1].bits_per_byte,
        )
        for names in smallest
    ]
    return tuple(sorted(found, key=lambda one: (len(one.to), one.factor)))


def _equals(ordered: Sequence[Candidate], best: Candidate, tolerance: float) -> tuple[Equal, ...]:
    found = []
    for budget, measure in BUDGETS.items():
        value = measure.of(best)
        near = [one for one in ordered if abs(measure.of(one) - value) <= tolerance * value]
        found.append(
            Equal(
                budget=budget,
                value=value,
                compared=len(near),
                winner=near[0].name,
                winners_value=measure.of(near[0]),
                bits_per_byte=near[0].bits_per_byte,
            )
        )
    return tuple(found)
