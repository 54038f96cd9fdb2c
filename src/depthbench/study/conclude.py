"""From the finished trials of a comparison to what they show."""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from depthbench.study import contrast_words
from depthbench.study.budget import Budget
from depthbench.study.compare import CompareConfig, Comparison
from depthbench.study.contrast import (
    ByDepth,
    Contrast,
    Curve,
    Lead,
    LossSlope,
    Observations,
    SideResult,
    Verdict,
)
from depthbench.study.paired import exact, interval
from depthbench.study.shared import shared_start
from depthbench.study.store import Machine, Row
from depthbench.study.verdict import CLAIM_SEEDS, CLAIM_STANDARD_ERRORS
from depthbench.train.health.findings import read_report
from depthbench.train.health.history import Finding, History
from depthbench.train.health.loss_rules import loss_slope

POINTS = 100
"""Windows of the training curve, unless a window is given."""

Records = Mapping[int, Sequence[dict[str, Any]]]
"""Metric records of one side by seed."""


def contrast(comparison: Comparison) -> Contrast:
    """What the trials that are over show; some may be missing."""
    config, store = comparison.config, comparison.store
    rows = {row.id: row for row in store.rows()}
    sides = [
        {t.seed: rows[t.id] for t in comparison.trials(side) if t.id in rows} for side in (0, 1)
    ]
    metrics = [
        {seed: store.metrics(row.id) for seed, row in side.items() if row.status == "done"}
        for side in sides
    ]
    a, b = (
        side_result(label, budget, run.learning_rate, side)
        for label, budget, run, side in zip(
            config.labels, comparison.budgets, (config.a, config.b), sides, strict=True
        )
    )
    lead = lead_of(a, b, config.confidence)
    over = [row for side in sides for row in side.values()]
    model_a, model_b = (comparison.trials(side)[0].model for side in (0, 1))
    found = Contrast(
        name=config.name,
        seeds=config.seeds,
        a=a,
        b=b,
        data_hash=comparison.resolved.data_hash,
        shared=shared_start(model_a, model_b, config.seeds[0]),
        lead=lead,
        training=curve_of(metrics[0], metrics[1], config),
        observations=observe(metrics[0], metrics[1], config),
        verdict=decide(lead),
        machines=tuple(dict.fromkeys(_machine(row.machine) for row in over)),
        config=comparison.resolved.resolved(),
        finished=max((row.finished for row in over), default=""),
    )
    findings = {
        label: {seed: _findings(comparison, row) for seed, row in side.items()}
        for label, side in zip(config.labels, sides, strict=True)
    }
    return contrast_words.tell(found, config, comparison.resolved.notes, over, findings)


def _findings(comparison: Comparison, row: Row) -> tuple[Finding, ...]:
    report = read_report(comparison.folder / "trials" / row.id)
    return () if report is None else report.findings


def side_result(
    label: str, budget: Budget, learning_rate: float, rows: Mapping[int, Row]
) -> SideResult:
    """One side from the rows of its seeds."""
    losses = {
        seed: row.loss
        for seed, row in rows.items()
        if row.status == "done" and row.loss is not None
    }
    bits = {seed: loss.bits_per_byte for seed, loss in losses.items()}
    step = budget.sequences * budget.length
    times = [step / row.tokens_per_second for row in rows.values() if row.tokens_per_second]
    return SideResult(
        label=label,
        budget=budget,
        learning_rate=learning_rate,
        ids={seed: row.id for seed, row in rows.items()},
        bits_per_byte=bits,
        nats_per_token={seed: loss.nats_per_token for seed, loss in losses.items()},
        standard_deviation=statistics.stdev(bits.values()) if len(bits) >= 2 else None,
        diverged=tuple(seed for seed, row in rows.items() if row.status == "diverged"),
        failed=tuple(seed for seed, row in rows.items() if row.status == "failed"),
        seconds_per_step=statistics.median(times) if times else None,
    )


def lead_of(a: SideResult, b: SideResult, confidence: float) -> Lead | None:
    """Paired difference of the final losses; None without a seed that both sides finished."""
    both = [seed for seed in a.bits_per_byte if seed in b.bits_per_byte]
    if not both:
        return None
    bits = [a.bits_per_byte[seed] - b.bits_per_byte[seed] for seed in both]
    nats = [a.nats_per_token[seed] - b.nats_per_token[seed] for seed in both]
    noise = None
    if len(both) >= 2:
        variances = [
            statistics.variance([side.bits_per_byte[seed] for seed in both]) for side in (a, b)
        ]
        noise = CLAIM_STANDARD_ERRORS * math.sqrt(sum(variances) / len(both))
    return Lead(
        by_seed=dict(zip(both, bits, strict=True)),
        bits_per_byte=interval(bits, confidence),
        nats_per_token=interval(nats, confidence),
        noise=noise,
        exact=exact(bits),
    )


def decide(lead: Lead | None) -> Verdict:
    """A side is lower only with three pairs, an interval without 0 and a lead beyond the noise.

    The interval knows the pairs alone: three that happen to agree make it narrow. The noise is the
    spread of both sides between seeds, as studies take it.
    """
    if lead is None or lead.bits_per_byte.pairs < CLAIM_SEEDS or lead.noise is None:
        return "too_few_seeds"
    mean = lead.bits_per_byte.mean
    if not lead.bits_per_byte.excludes_zero or abs(mean) <= lead.noise:
        return "no_difference"
    return "a_lower" if mean < 0 else "b_lower"


def curve_of(a: Records, b: Records, config: CompareConfig) -> Curve | None:
    """Difference of the training losses by step, over the seeds that both sides finished."""
    seeds = [seed for seed in a if seed in b]
    losses = [(_losses(a[seed]), _losses(b[seed])) for seed in seeds]
    if not losses:
        return None
    steps = sorted(set.intersection(*(one.keys() & other.keys() for one, other in losses)))
    if not steps:
        return None
    window = config.window or -(-config.a.train.steps // POINTS)
    groups = [list(group) for _, group in itertools.groupby(steps, lambda s: (s - 1) // window)]
    means = [
        [tuple(statistics.fmean(side[s] for s in group) for side in pair) for pair in losses]
        for group in groups
    ]
    points = [interval([one - other for one, other in pairs], config.confidence) for pairs in means]
    return Curve(
        window=window,
        logged_every=max(config.a.train.log_every, config.b.train.log_every),
        pairs=len(seeds),
        confidence=config.confidence,
        steps=tuple(group[-1] for group in groups),
        a=tuple(statistics.fmean(one for one, _ in pairs) for pairs in means),
        b=tuple(statistics.fmean(other for _, other in pairs) for pairs in means),
        mean=tuple(point.mean for point in points),
        low=tuple(point.low for point in points),
        high=tuple(point.high for point in points),
    )


def observe(a: Records, b: Records, config: CompareConfig) -> Observations:
    """The four observations, from the metrics of both sides."""

    def by_depth(signal: str) -> tuple[ByDepth, ...]:
        ours, theirs = _signal(a, signal), _signal(b, signal)
        return tuple(
            ByDepth(step=step, a=ours[step], b=theirs[step])
            for step in sorted(ours.keys() & theirs.keys())
        )

    return Observations(
        slope=_slopes(a, b, config),
        gradient_norm=by_depth("gradient_norm"),
        state_variance=by_depth("state_variance"),
        neighbour_cosine=by_depth("neighbour_cosine"),
    )


def _slopes(a: Records, b: Records, config: CompareConfig) -> LossSlope:
    """As the health watch of a single trial measures it."""
    train = config.a.train

    def slopes(side: Records) -> dict[int, float]:
        known = {
            seed: loss_slope(History(train, losses=list(_losses(records).items())))
            for seed, records in side.items()
        }
        return {seed: slope.nats_per_100_steps for seed, slope in known.items() if slope}

    ours, theirs = slopes(a), slopes(b)
    pairs = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
    return LossSlope(
        steps=min(train.health.slope_steps, train.steps),
        a=ours,
        b=theirs,
        difference=interval(pairs, config.confidence) if pairs else None,
    )


def _losses(records: Sequence[dict[str, Any]]) -> dict[int, float]:
    return {
        record["step"]: record["train_loss"]
        for record in records
        if record.get("train_loss") is not None
    }


def _signal(side: Records, signal: str) -> dict[int, tuple[float | None, ...]]:
    """Means over seeds of one health signal, by step."""
    values: dict[int, list[list[float | None]]] = {}
    for records in side.values():
        for record in records:
            if "health" in record:
                values.setdefault(record["step"], []).append(record["health"][signal])
    return {
        step: tuple(_mean(depth) for depth in zip(*seeds, strict=True))
        for step, seeds in values.items()
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _machine(machine: Machine) -> str:
    commit = machine.commit or "not from a checkout"
    return (
        f"{machine.host}: {machine.processor}, {machine.cores} cores, {machine.device}, "
        f"{machine.dtype}, torch {machine.torch}, depthbench {machine.depthbench} ({commit})"
    )
