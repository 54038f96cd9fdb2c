"""What a trial's metrics say of its routers while it trained."""

from collections.abc import Sequence
from pathlib import Path

from depthbench.probes.probe import Found
from depthbench.probes.result import Curve, Finding, row
from depthbench.train.health.depth_rules import effective
from depthbench.train.metrics import METRICS
from depthbench.train.record import read_records

Shares = list[list[float]]
"""By router and expert."""


def over_training(trial: Path | None, dead: float) -> Found:
    """Dead experts, effective number and share of the busiest by step, from health records.

    ``dead``: share over the even share under which an expert is dead. Nothing but a word on it
    where no loads were recorded.
    """
    records = [] if trial is None else read_records(trial / METRICS)
    known = [
        (record["step"], found)
        for record in records
        if (found := _whole(record.get("health", {}).get("expert_share"))) is not None
    ]
    if not known:
        return Found([], ["Loads over training are not known: the model has no metrics of them."])
    steps = [step for step, _ in known]
    dying = [sum(_dead(shares, dead) for shares in routers) for _, routers in known]
    spread = [_mean([effective(shares) for shares in routers]) for _, routers in known]
    busiest = [_mean([max(shares) for shares in routers]) for _, routers in known]
    lines: list[Finding] = [
        Curve(
            name=f"training_{name}",
            title=title,
            unit=unit,
            axis="step",
            places=tuple(float(step) for step in steps),
            values=row(values),
            words=f"step {{}}: {title[0].lower()}{title[1:]}",
        )
        for name, title, unit, values in (
            ("dead", "Dead experts of all routers over training", "experts", dying),
            ("effective", "Effective number of experts, mean over routers", "experts", spread),
            ("busiest", "Share of the busiest expert, mean over routers", "", busiest),
        )
    ]
    return Found(lines, [_dead_words(steps, dying), _spread_words(steps, spread, known[0][1])])


def _whole(shares: Sequence[Sequence[float | None]] | None) -> Shares | None:
    """None where there are none, or one was not finite."""
    if not shares:
        return None
    found = [[one for one in router if one is not None] for router in shares]
    return found if list(map(len, found)) == list(map(len, shares)) else None


def _dead(shares: Sequence[float], dead: float) -> int:
    return sum(share * len(shares) < dead for share in shares)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _dead_words(steps: Sequence[int], dying: Sequence[int]) -> str:
    most = max(dying)
    if not most:
        return f"Over training no expert was dead at any of {len(steps)} measurements."
    first = steps[next(place for place, count in enumerate(dying) if count)]
    return (
        f"Over training experts were dead as early as step {first}: at most {most} of all routers "
        f"(step {steps[dying.index(most)]}), {dying[-1]} at the end (step {steps[-1]})."
    )


def _spread_words(steps: Sequence[int], spread: Sequence[float], routers: Shares) -> str:
    experts = _mean([len(shares) for shares in routers])
    return (
        f"The effective number of experts, mean over routers, went from {spread[0]:.2f} (step "
        f"{steps[0]}) to {spread[-1]:.2f} (step {steps[-1]}) of {experts:g}."
    )
