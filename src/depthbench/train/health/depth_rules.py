"""Findings from measurements by depth: what several of them in a row agree on."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from depthbench.train.health.history import Finding, History, Kind, Where

Measured = dict[str, Any]
"""`Health` as recorded."""
Bad = dict[int, float]
"""Places that break a rule, and by what number."""
Worst = Callable[[Iterable[float]], float]


@dataclass(frozen=True)
class Run:
    """The longest stretch of measurements that break a rule."""

    since: int
    until: int | None
    """First step at which no place breaks it any more; None if the last measurement does."""
    places: tuple[int, ...]
    worst: float
    measurements: int


def farthest(values: Iterable[float]) -> float:
    """The value farthest from 1 as a ratio."""
    return max(values, key=lambda value: abs(math.log(value)) if value > 0 else math.inf)


def longest(history: History, broken: Callable[[Measured], Bad], worst: Worst) -> Run | None:
    """None where fewer than ``lasting`` measurements in a row break the rule at one place.

    ``worst`` picks from all numbers that break it.
    """
    least = history.train.health.lasting
    runs: list[list[tuple[int, Bad]]] = [[]]
    ends: list[int | None] = []
    for step, measured in history.measures:
        bad = broken(measured)
        if bad:
            runs[-1].append((step, bad))
        elif runs[-1]:
            ends.append(step)
            runs.append([])
    ends += [None] * (len(runs) - len(ends))
    run, until = max(zip(runs, ends, strict=True), key=lambda pair: len(pair[0]))
    often = {place for _, bad in run for place in bad}
    places = sorted(p for p in often if sum(p in bad for _, bad in run) >= least)
    if len(run) < least or not places:
        return None
    values = [bad[place] for _, bad in run for place in places if place in bad]
    return Run(run[0][0], until, tuple(places), worst(values), len(run))


def not_finite(history: History) -> list[Finding]:
    """A number of the last measurement is not finite."""
    if not history.measures:
        return []
    step, measured = history.measures[-1]
    signals: dict[str, Where] = {"gradient_norm": "block", "state_rms": "state"}
    for name, where in signals.items():
        places = [place for place, value in enumerate(measured[name]) if value is None]
        if places:
            words = f"{name} of {spoken(where, places)} is not finite at step {step}"
            return [
                Finding(
                    kind="not_finite",
                    severity="problem",
                    step=step,
                    where=where,
                    places=tuple(places),
                    numbers={},
                    words=words,
                )
            ]
    return []


def gradient_ratio(history: History) -> list[Finding]:
    """Gradients of the bottom and the top block are far apart."""
    limit = history.train.health.gradient_ratio
    run = longest(history, lambda m: _outside(m.get("gradient_bottom_over_top"), limit), farthest)
    return (
        []
        if run is None
        else [
            _finding(
                "gradient_ratio",
                run,
                f"the bottom block's gradient is {run.worst:.3g} times the top one's",
                worst=run.worst,
            )
        ]
    )


def second_moment_low(history: History) -> list[Finding]:
    """Blocks that get almost no gradient, by Adam's second moment."""
    floor = history.train.health.second_moment_floor

    def broken(measured: Measured) -> Bad:
        moments = _finite(measured["second_moment"])
        # not the median: where gradients die out over depth, most blocks get none
        largest = max(moments.values(), default=0.0)
        return {b: v / largest for b, v in moments.items() if v < floor * largest}

    run = longest(history, broken, min)
    return (
        []
        if run is None
        else [
            _finding(
                "second_moment_low",
                run,
                f"second moments of {spoken('block', run.places)} are down to {run.worst:.2g} of "
                "the largest block's: almost no gradient arrives there",
                "block",
                share_of_largest=run.worst,
            )
        ]
    )


def update_size(history: History) -> list[Finding]:
    """Blocks whose weights hardly move, or move too far in one step."""
    config = history.train.health
    kinds: list[tuple[Kind, float, float, Worst, str]] = [
        ("update_small", config.update_ratio_low, math.inf, min, "hardly move"),
        ("update_large", 0.0, config.update_ratio_high, max, "move far in one step"),
    ]
    found: list[Finding] = []
    for kind, low, high, worst, how in kinds:
        run = longest(
            history, lambda m, a=low, b=high: _beyond(m["update_over_weight"], a, b), worst
        )
        if run is not None:
            words = (
                f"weights of {spoken('block', run.places)} {how}: update over weight "
                f"{run.worst:.2g}, about 1e-3 is usual"
            )
            found.append(_finding(kind, run, words, "block", update_over_weight=run.worst))
    return found


def similarity_rising(history: History) -> list[Finding]:
    """Shallow and deep states become alike: deep blocks add less and less."""
    config = history.train.health
    series = [
        (step, cosine)
        for step, measured in history.measures
        if (cosine := measured.get("shallow_deep_cosine")) is not None
    ]
    count = config.lasting
    if len(series) < 2 * count:
        return []
    first = statistics.median(cosine for _, cosine in series[:count])
    last = statistics.median(cosine for _, cosine in series[-count:])
    if last - first < config.similarity_rise or last < config.similarity_high:
        return []
    words = (
        f"shallow and deep states become alike: their cosine rose from {first:.2f} (by step "
        f"{series[count - 1][0]}) to {last:.2f}"
    )
    return [
        Finding(
            kind="similarity_rising",
            severity="warning",
            step=series[-count][0],
            numbers={"first": first, "last": last},
            words=words,
        )
    ]


def state_growth(history: History) -> list[Finding]:
    """The state grows or shrinks by orders of magnitude over depth."""
    limit = history.train.health.state_growth

    def broken(measured: Measured) -> Bad:
        first, last = measured["state_rms"][0], measured["state_rms"][-1]
        return _outside(last / first if last is not None and first else None, limit)

    run = longest(history, broken, farthest)
    return (
        []
        if run is None
        else [
            _finding(
                "state_growth",
                run,
                f"the last state's root mean square is {run.worst:.3g} times the embedding's",
                growth=run.worst,
            )
        ]
    )


def mixing_error(history: History) -> list[Finding]:
    """Mixing matrices that are to be doubly stochastic and are not."""
    limit = history.train.health.mixing_error

    def broken(measured: Measured) -> Bad:
        pairs = zip(
            measured.get("mixing_row_error", ()),
            measured.get("mixing_column_error", ()),
            strict=True,
        )
        errors = [max(row or 0.0, column or 0.0) for row, column in pairs]
        return {site: error for site, error in enumerate(errors) if error > limit}

    return _told(
        history,
        "mixing_error",
        broken,
        max,
        "site",
        "rows or columns of mixing matrices at {places} add up to 1 only within {worst:.2g}",
    )


def low_precision_drift(history: History) -> list[Finding]:
    """States in training's precision leave float32's."""
    limit = history.train.health.low_precision_drift
    return _told(
        history,
        "low_precision_drift",
        lambda m: _beyond(m.get("low_precision_drift", ()), 0.0, limit),
        max,
        "state",
        f"{history.train.dtype} moves {{places}} away from float32's by {{worst:.0%}} of its norm",
    )


def experts(history: History) -> list[Finding]:
    """Routers that leave experts out, or use few of them."""
    config = history.train.health

    def dead(measured: Measured) -> Bad:
        least = {r: min(shares) * len(shares) for r, shares in _routers(measured).items()}
        return {router: share for router, share in least.items() if share < config.expert_dead}

    def collapsed(measured: Measured) -> Bad:
        used = {r: effective(shares) / len(shares) for r, shares in _routers(measured).items()}
        return {router: share for router, share in used.items() if share < config.expert_number}

    return [
        *_told(
            history,
            "expert_dead",
            dead,
            min,
            "router",
            "{places}: an expert gets {worst:.2g} of an even share",
        ),
        *_told(
            history,
            "expert_collapse",
            collapsed,
            min,
            "router",
            "{places}: the choices use only {worst:.0%} of the experts (effective number)",
        ),
    ]


def effective(shares: Sequence[float]) -> float:
    """``exp(-Σ p ln p)``: as many equally used experts have the same entropy."""
    return math.exp(-sum(p * math.log(p) for p in shares if p > 0))


def spoken(where: str, places: Sequence[int]) -> str:
    """``block 3``, ``blocks 0 to 4 and 7``."""
    parts: list[list[int]] = []
    for place in sorted(places):
        if parts and place == parts[-1][-1] + 1:
            parts[-1].append(place)
        else:
            parts.append([place])
    # two in a row are named one by one: "to" is for more
    names = [
        name
        for part in parts
        for name in ([f"{part[0]} to {part[-1]}"] if len(part) > 2 else map(str, part))
    ]
    text = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{where}{'s' if len(places) > 1 else ''} {text}"


def _told(
    history: History,
    kind: Kind,
    broken: Callable[[Measured], Bad],
    worst: Worst,
    where: Where,
    words: str,
) -> list[Finding]:
    run = longest(history, broken, worst)
    if run is None:
        return []
    text = words.format(places=spoken(where, run.places), worst=run.worst)
    return [_finding(kind, run, text, where, worst=run.worst)]


def _finding(
    kind: Kind, run: Run, words: str, where: Where | None = None, **numbers: float
) -> Finding:
    when = (
        f" from step {run.since} on"
        if run.until is None
        else f" (steps {run.since} to {run.until})"
    )
    return Finding(
        kind=kind,
        severity="warning",
        step=run.since,
        until=run.until,
        where=where,
        places=() if where is None else run.places,
        numbers=numbers | {"measurements": run.measurements},
        words=words + when,
    )


def _routers(measured: Measured) -> dict[int, list[float]]:
    routers = enumerate(measured.get("expert_share", ()))
    return {r: shares for r, shares in routers if all(share is not None for share in shares)}


def _finite(values: Sequence[float | None]) -> dict[int, float]:
    return {place: value for place, value in enumerate(values) if value is not None}


def _beyond(values: Sequence[float | None], low: float, high: float) -> Bad:
    return {p: v for p, v in _finite(values).items() if not low <= v <= high}


def _outside(value: float | None, factor: float) -> Bad:
    return {} if value is None else _beyond([value], 1 / factor, factor)
