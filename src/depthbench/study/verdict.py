"""The verdict of a study, as a pure function of its result rows."""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from depthbench.errors import DepthbenchError
from depthbench.study import words
from depthbench.study.findings import (
    Candidate,
    Comparison,
    DepthTrend,
    DesignFinding,
    Edge,
    Entry,
    Point,
    Search,
    Slope,
    Spread,
    TurnsBack,
    Verdict,
    best_of,
)
from depthbench.study.store import DomainLoss, Row

CLAIM_SEEDS = 3
CLAIM_STANDARD_ERRORS = 2.0
SAME_LENGTH = 0.95


def judge(rows: list[Row], unfinished: int = 0) -> Verdict:
    """What the finished trials of one study say, and what they are too few to say.

    A design's curve holds the trials at its chosen learning rate: those of the shared phase, and
    those of the search where they trained as long. Losses are validation bits per byte.
    ``unfinished`` counts trials of the plan that have no row yet. Raises `DepthbenchError` when
    there is no row at all.
    """
    if not rows:
        raise DepthbenchError("no trial has finished: there is nothing to judge. Run the study")
    whole_search = _search_trains_whole(rows)
    designs = tuple(
        _finding(label, [row for row in rows if row.label == label], whole_search)
        for label in dict.fromkeys(row.label for row in rows)
    )
    count = Counter(row.status for row in rows)
    verdict = Verdict(
        study=rows[0].study,
        finished=count["done"],
        diverged=count["diverged"],
        failed=count["failed"],
        unfinished=unfinished,
        designs=designs,
        comparisons=(compare(designs, "deepest"), compare(designs, "best")),
    )
    return words.tell(verdict, rows)


def on_curves(rows: list[Row]) -> dict[str, list[Row]]:
    """By design, the rows of its curve: one for each shape and seed at its used learning rate."""
    whole_search = _search_trains_whole(rows)
    return {
        label: _searched([row for row in rows if row.label == label], whole_search)[1]
        for label in dict.fromkeys(row.label for row in rows)
    }


def search_of(rows: Iterable[Row]) -> Search:
    """The learning-rate search among the rows of one design.

    The chosen rate has the least mean loss over seeds at the middle shape. A candidate with a
    diverged seed ranks behind every candidate without; of equal ones the lower rate is taken. A
    failed trial says nothing about its learning rate and only counts as missing.
    """
    tried = [row for row in rows if row.phase == "search"]
    if not tried:
        return Search(layers=None, width=None, grid=(), chosen=None, used=None, edge_of_grid=None)
    shape = Counter(row.shape for row in tried).most_common(1)[0][0]
    tried = [row for row in tried if row.shape == shape]
    rates = sorted({row.learning_rate for row in tried})
    grid = tuple(_candidate(rate, [r for r in tried if r.learning_rate == rate]) for rate in rates)
    able = [candidate for candidate in grid if candidate.bits_per_byte is not None]
    chosen = min(able, key=_rank).learning_rate if able else None
    return Search(
        layers=shape.layers,
        width=shape.width,
        grid=grid,
        chosen=chosen,
        used=None,
        edge_of_grid=_edge(chosen, grid),
    )


def compare(designs: Sequence[DesignFinding], at: Literal["deepest", "best"]) -> Comparison:
    """The designs at the greatest depth of the study, or each at its own best shape.

    A winner needs three finished seeds of every design compared, and a lead over the second
    beyond two standard errors ``sqrt(s1²/n1 + s2²/n2)``.
    """
    layers = max((point.layers for design in designs for point in design.curve), default=None)
    places = {
        design.label: design.best if at == "best" else _at_depth(design, layers)
        for design in designs
    }
    entries = sorted(
        (_entry(label, point) for label, point in places.items() if point and point.finished),
        key=lambda entry: entry.bits_per_byte,
    )
    left_out = [label for label, point in places.items() if not (point and point.finished)]
    return ranked(entries, at, layers if at == "deepest" else None, left_out)


def ranked(
    entries: Sequence[Entry],
    at: Literal["deepest", "best"],
    layers: int | None = None,
    left_out: Iterable[str] = (),
) -> Comparison:
    """``entries``, the least loss first, with the lead of the first and whether it wins."""
    difference = error = None
    if len(entries) >= 2:
        first, second = entries[:2]
        difference = second.bits_per_byte - first.bits_per_byte
        error = standard_error(first, second)
    return Comparison(
        at=at,
        layers=layers,
        entries=tuple(entries),
        left_out=tuple(left_out),
        difference=difference,
        standard_error=error,
        winner=_winner(entries, difference, error),
    )


def _searched(rows: list[Row], whole_search: bool) -> tuple[Search, list[Row]]:
    """The search of one design with the rate that its curve uses, and the rows of the curve."""
    search = search_of(rows)
    used = _used_rate(search.chosen, [row for row in rows if row.phase == "shared"])
    return search.model_copy(update={"used": used}), _curve_rows(rows, used, whole_search)


def _finding(label: str, rows: list[Row], whole_search: bool) -> DesignFinding:
    search, chosen = _searched(rows, whole_search)
    curve = _curve(chosen)
    turns_back = _turns_back(curve)
    best = best_of(curve)
    return DesignFinding(
        label=label,
        search=search,
        curve=curve,
        best_layers=best.layers if best else None,
        slope=_slope(curve),
        turns_back=turns_back,
        trend=_trend(curve, turns_back),
    )


def _search_trains_whole(rows: list[Row]) -> bool:
    """Whether search trials are as long as shared ones, so that they belong to the curve."""
    search = [row.tokens for row in rows if row.phase == "search" and row.status == "done"]
    shared = [row.tokens for row in rows if row.phase == "shared" and row.status == "done"]
    return not search or not shared or max(search) >= SAME_LENGTH * min(shared)


def _used_rate(chosen: float | None, shared: list[Row]) -> float | None:
    rates = Counter(row.learning_rate for row in shared)
    if not rates or (chosen is not None and chosen in rates):
        return chosen
    return rates.most_common(1)[0][0]


def _curve_rows(rows: list[Row], used: float | None, whole_search: bool) -> list[Row]:
    """One row for each shape and seed at the used rate; a shared trial precedes a search one."""
    if used is None:
        return rows
    chosen: dict[tuple[int, int, int], Row] = {}
    for phase in ("search", "shared") if whole_search else ("shared",):
        for row in rows:
            if row.phase == phase and row.learning_rate == used:
                chosen[row.shape.layers, row.shape.width, row.seed] = row
    return list(chosen.values())


def _curve(rows: list[Row]) -> tuple[Point, ...]:
    groups: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.shape.layers, row.shape.width), []).append(row)
    return tuple(_point(groups[key]) for key in sorted(groups, key=lambda k: (k[0], -k[1])))


def _point(rows: list[Row]) -> Point:
    shape = rows[0].shape
    by_seed = {row.seed: loss.bits_per_byte for row in rows if (loss := _loss(row))}
    losses = list(by_seed.values())
    spread = None
    if len(losses) >= 2:
        spread = Spread(
            standard_deviation=statistics.stdev(losses), least=min(losses), greatest=max(losses)
        )
    return Point(
        layers=shape.layers,
        width=shape.width,
        aspect_ratio=shape.aspect_ratio,
        finished=len(losses),
        diverged=sum(row.status == "diverged" for row in rows),
        failed=sum(row.status != "diverged" and _loss(row) is None for row in rows),
        bits_per_byte=_mean(losses),
        nats_per_token=_mean([loss.nats_per_token for row in rows if (loss := _loss(row))]),
        spread=spread,
        by_seed=dict(sorted(by_seed.items())),
    )


def _candidate(rate: float, rows: list[Row]) -> Candidate:
    losses = [loss for row in rows if (loss := _loss(row))]
    return Candidate(
        learning_rate=rate,
        finished=len(losses),
        diverged=sum(row.status == "diverged" for row in rows),
        failed=sum(row.status != "diverged" and _loss(row) is None for row in rows),
        bits_per_byte=_mean([loss.bits_per_byte for loss in losses]),
        nats_per_token=_mean([loss.nats_per_token for loss in losses]),
    )


def _rank(candidate: Candidate) -> tuple[float, float, float]:
    diverged = candidate.diverged / (candidate.diverged + candidate.finished)
    loss = math.inf if candidate.bits_per_byte is None else candidate.bits_per_byte
    return diverged, loss, candidate.learning_rate


def _edge(chosen: float | None, grid: tuple[Candidate, ...]) -> Edge | None:
    """A rate that diverged still closes the grid; one that failed or is missing does not."""
    rates = [
        candidate.learning_rate for candidate in grid if candidate.finished or candidate.diverged
    ]
    if chosen is None or len(rates) < 2:
        return None
    if chosen == rates[-1]:
        return "highest"
    return "lowest" if chosen == rates[0] else None


def _slope(curve: tuple[Point, ...]) -> Slope | None:
    measured = [point for point in curve if point.bits_per_byte is not None]
    if len({point.layers for point in measured}) < 2:
        return None
    doublings = np.log2([point.layers for point in measured])
    seeds = set.intersection(*(set(point.by_seed) for point in measured))
    slopes = [
        _least_squares(doublings, [point.by_seed[seed] for point in measured])
        for seed in sorted(seeds)
    ]
    means = [point.bits_per_byte for point in measured if point.bits_per_byte is not None]
    return Slope(
        bits_per_byte_per_doubling=_least_squares(doublings, means),
        standard_error=(
            statistics.stdev(slopes) / math.sqrt(len(slopes)) if len(slopes) >= 2 else None
        ),
        seeds=len(slopes),
    )


def _least_squares(x: np.ndarray, y: Sequence[float]) -> float:
    return statistics.linear_regression(x.tolist(), y).slope


def _turns_back(curve: tuple[Point, ...]) -> TurnsBack | None:
    """None when the deepest shape has no loss: a difference would then be to another shape."""
    best = best_of(curve)
    if best is None or best.bits_per_byte is None or curve[-1].bits_per_byte is None:
        return None
    if sum(point.finished > 0 for point in curve) < 2:
        return None
    deviation = _pooled_deviation(curve)
    return TurnsBack(
        bits_per_byte=curve[-1].bits_per_byte - best.bits_per_byte,
        pooled_deviation=deviation,
        standard_error=_error_of_means(deviation, best, curve[-1]),
    )


def _error_of_means(deviation: float | None, one: Point, other: Point) -> float | None:
    """Of the difference of two means, from the pooled deviation of a seed."""
    if deviation is None:
        return None
    return deviation * math.sqrt(1 / one.finished + 1 / other.finished)


def _pooled_deviation(curve: tuple[Point, ...]) -> float | None:
    spreads = [(point.finished - 1, point.spread) for point in curve if point.spread]
    if not spreads:
        return None
    squares = sum(freedom * spread.standard_deviation**2 for freedom, spread in spreads)
    return math.sqrt(squares / sum(freedom for freedom, _ in spreads))


def _trend(curve: tuple[Point, ...], turns_back: TurnsBack | None) -> DepthTrend:
    """Where a spread is known, a difference within two standard errors is none.

    A deepest shape diverged where every trial of it did: a failed one says nothing of the model.
    """
    if not curve:
        return "unknown"
    deepest = curve[-1]
    if deepest.diverged == deepest.trials and any(p.finished for p in curve):
        return "diverged"
    measured = [(point, loss) for point in curve if (loss := point.bits_per_byte) is not None]
    if turns_back is None or not measured:
        return "unknown"
    if turns_back.bits_per_byte > CLAIM_STANDARD_ERRORS * (turns_back.standard_error or 0.0):
        return "turns_back"
    (shallowest, high), (_, low) = measured[0], measured[-1]
    error = _error_of_means(turns_back.pooled_deviation, shallowest, deepest)
    if high - low <= CLAIM_STANDARD_ERRORS * (error or 0.0):
        return "flat"
    return "levels" if turns_back.bits_per_byte > 0 else "falls"


def _at_depth(design: DesignFinding, layers: int | None) -> Point | None:
    at = [point for point in design.curve if point.layers == layers]
    return min(at, key=lambda point: point.aspect_ratio, default=None)


def _entry(label: str, point: Point) -> Entry:
    if point.bits_per_byte is None:
        raise ValueError(f"{label} has no loss at {point.layers} layers")
    return Entry(
        label=label,
        layers=point.layers,
        bits_per_byte=point.bits_per_byte,
        standard_deviation=point.spread.standard_deviation if point.spread else None,
        finished=point.finished,
        trials=point.trials,
    )


def standard_error(first: Entry, second: Entry) -> float | None:
    """Of the difference of two means: ``sqrt(s1²/n1 + s2²/n2)``; None under two seeds."""
    if first.standard_deviation is None or second.standard_deviation is None:
        return None
    return math.sqrt(
        first.standard_deviation**2 / first.finished
        + second.standard_deviation**2 / second.finished
    )


def _winner(entries: Sequence[Entry], difference: float | None, error: float | None) -> str | None:
    if difference is None or error is None:
        return None
    if any(entry.finished < CLAIM_SEEDS for entry in entries):
        return None
    return entries[0].label if difference > CLAIM_STANDARD_ERRORS * error else None


def _loss(row: Row) -> DomainLoss | None:
    return row.loss if row.status == "done" else None


def _mean(values: list[float]) -> float | None:
    return statistics.fmean(values) if values else None
