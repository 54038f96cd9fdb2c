"""Findings from the course of the loss, and from spikes."""

import math
import statistics
from typing import NamedTuple

from depthbench.config import Frozen
from depthbench.train.health.history import Finding, History, Kind, Severity
from depthbench.train.health.spikes import Signal, Spike

POINTS = 4
"""Records that a slope needs."""
SMOOTH = 5
"""Records whose median stands for the loss at a time."""
NAMES: dict[Signal, tuple[Kind, Severity, str, str]] = {
    "loss": ("loss_spike", "warning", "of the loss", "nats per token"),
    "gradient": ("gradient_spike", "note", "of the gradient norm", "before clipping"),
    "update": ("update_spike", "note", "of update sizes", "over learning rate"),
}


class LossSlope(Frozen):
    """Least squares of the training loss on the step, over the first steps."""

    nats_per_100_steps: float
    """Below 0 while learning; nats per token."""
    last: int
    """Last step of the fit."""
    points: int


def loss_slope(history: History) -> LossSlope | None:
    """None with fewer than `POINTS` finite records in the first steps."""
    limit = history.train.health.slope_steps
    known = [(step, loss) for step, loss in history.losses if loss is not None and step <= limit]
    if len(known) < POINTS:
        return None
    steps, losses = zip(*known, strict=True)
    slope, _ = statistics.linear_regression(steps, losses)
    return LossSlope(nats_per_100_steps=100 * slope, last=steps[-1], points=len(known))


def no_learning(history: History) -> list[Finding]:
    """The loss did not fall over the first steps."""
    slope, config = loss_slope(history), history.train.health
    early = history.step < min(config.slope_steps, history.train.steps)
    if slope is None or early or slope.nats_per_100_steps <= -config.slope_least:
        return []
    words = (
        f"the loss did not fall over the first {slope.last} steps: "
        f"{slope.nats_per_100_steps:+.3f} nats per token in 100 steps"
    )
    return [
        Finding(
            kind="no_learning",
            severity="warning",
            step=slope.last,
            numbers={"nats_per_100_steps": slope.nats_per_100_steps},
            words=words,
        )
    ]


class Gone(NamedTuple):
    """Where a loss left for good."""

    step: int
    how: str


def divergence(history: History) -> list[Finding]:
    """Diverged; late if the loss was stable for long before."""
    gone = _gone(history)
    if gone is None:
        return []
    config = history.train.health
    stable, least = 0, math.inf
    for step, loss in history.losses:
        if step >= gone.step or loss is None:
            break
        least = min(least, loss)
        if loss <= least * (1 + config.stable_rise):
            stable = step
    late = stable >= config.stable_steps
    begun = f"stable for {stable} steps, gone at {gone.step}" if late else f"gone at {gone.step}"
    was = f"; the loss had been down to {least:.3f}" if late else ""
    numbers: dict[str, float] = {"stable_steps": stable}
    return [
        Finding(
            kind="late_divergence" if late else "divergence",
            severity="problem",
            step=gone.step,
            numbers=numbers if math.isinf(least) else numbers | {"least_loss": least},
            words=f"{begun}: {gone.how}{was}",
        )
    ]


def _gone(history: History) -> Gone | None:
    """The first step of the last stretch above the start, or the step that was not finite."""
    if not history.losses:
        return None
    start, (last, loss) = history.losses[0][1], history.losses[-1]
    above: list[int] = []
    for step, value in reversed(history.losses):
        if value is None or start is None or value <= start:
            break
        above.append(step)
    after = sum(step > history.train.warmup_steps for step in above)
    long = after >= history.train.health.lasting or history.diverged
    if above and long:
        return Gone(above[-1], f"since then the loss is above its start ({start:.3f})")
    if history.diverged:
        return Gone(last, history.diverged[1])
    return Gone(last, "the loss is not finite") if loss is None else None


def loss_lost(history: History) -> list[Finding]:
    """The loss rose by a good part of what had been learned, and stays there."""
    losses = [(step, loss) for step, loss in history.losses if loss is not None]
    if len(losses) < 2 * SMOOTH or _gone(history) is not None:
        return []
    smooth = [
        (losses[end - 1][0], statistics.median(loss for _, loss in losses[end - SMOOTH : end]))
        for end in range(SMOOTH, len(losses) + 1)
    ]
    best_step, best = min(smooth, key=lambda pair: pair[1])
    (step, now), start = smooth[-1], losses[0][1]
    if start <= best or now - best <= history.train.health.lost_share * (start - best):
        return []
    words = (
        f"the loss rose from {best:.3f} at step {best_step} to {now:.3f} at step {step} and has "
        f"not come back: {(now - best) / (start - best):.0%} of what was learned"
    )
    numbers = {"least_loss": best, "loss": now, "start_loss": start}
    return [
        Finding(kind="loss_lost", severity="warning", step=best_step, numbers=numbers, words=words)
    ]


def spikes(history: History) -> list[Finding]:
    """One finding for each signal that spiked: how often, and the largest."""
    found: list[Finding] = []
    for signal in NAMES:
        own = [spike for spike in history.spikes.values() if spike.signal == signal]
        if own:
            found.append(_told(signal, own))
    return found


def _told(signal: Signal, spikes: list[Spike]) -> Finding:
    kind, severity, of, unit = NAMES[signal]
    # blocks jump together: what they share is one event
    events = sorted({spike.step for spike in spikes})
    largest = max(spikes, key=lambda spike: spike.z)
    blocks = sorted({spike.block for spike in spikes if spike.block is not None})
    open_still = any(spike.until is None for spike in spikes)
    times = "a spike" if len(events) == 1 else f"{len(events)} spikes"
    over = "" if largest.until is None else f", over after {largest.until - largest.step} steps"
    place = "" if largest.block is None else f" in block {largest.block}"
    words = (
        f"{times} {of}: {largest.value:.3g} against {largest.usual:.3g} ({unit}){place}, robust z "
        f"{largest.z:.1f}, from step {largest.step}{over}"
    )
    return Finding(
        kind=kind,
        severity=severity,
        step=events[0],
        until=None if open_still else max(spike.until or 0 for spike in spikes),
        where="block" if blocks else None,
        places=tuple(blocks),
        numbers={"events": len(events), "z": largest.z, "value": largest.value}
        | {"usual": largest.usual, "largest_at": largest.step},
        words=words,
    )
