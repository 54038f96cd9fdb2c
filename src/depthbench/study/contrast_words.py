"""A comparison in plain words: what was shown, what was not, and what weakens it."""

import math
from collections.abc import Mapping, Sequence

from depthbench.study.compare import CompareConfig
from depthbench.study.contrast import Contrast, Lead
from depthbench.study.paired import Interval
from depthbench.study.store import Row
from depthbench.study.verdict import CLAIM_SEEDS
from depthbench.study.words import counted, listed, worse_than_unigram
from depthbench.train.health.history import Finding

UNIT = "bits per byte"
THEIRS = "part of a difference may be due to them"


def tell(
    contrast: Contrast,
    config: CompareConfig,
    notes: Sequence[str],
    rows: Sequence[Row],
    findings: Mapping[str, Mapping[int, Sequence[Finding]]],
) -> Contrast:
    """``contrast`` with its sentences.

    ``notes`` say what was changed before training; ``findings`` are those of the health watch, by
    label and seed.
    """
    warnings = [
        *(f"{note}." for note in notes),
        *_lost(contrast),
        *_unequal(contrast, config),
        *_rates(contrast),
        *_weak(rows),
        *(text for label, seeds in findings.items() for text in _health(label, seeds)),
    ]
    return contrast.model_copy(
        update={
            "sentence": _verdict(contrast),
            "warnings": tuple(warnings),
            "facts": tuple(_facts(contrast)),
        }
    )


def spoken(found: Interval) -> str:
    """``0.12 (95 % interval 0.08 to 0.16, 3 seeds)``; one seed has no interval."""
    if found.low is None or found.high is None:
        return f"{found.mean:.3g} (one seed, no interval)"
    form = f".{decimals(found)}f"
    return (
        f"{found.mean:{form}} ({100 * found.confidence:g} % interval {found.low:{form}} to "
        f"{found.high:{form}}, {counted(found.pairs, 'seed')})"
    )


def decimals(found: Interval) -> int:
    """As many as the half width of the interval has at two digits; 0 to 9."""
    reach = 0.0 if found.high is None else found.high - found.mean
    size = reach or abs(found.mean) or 1.0
    return min(9, max(0, 1 - math.floor(math.log10(size))))


def _verdict(contrast: Contrast) -> str:
    lead, (a, b) = contrast.lead, contrast.labels
    if lead is None:
        return f"No claim: no seed has finished with both {a} and {b}."
    if contrast.verdict == "too_few_seeds":
        pairs = lead.bits_per_byte.pairs
        return (
            f"No claim: {counted(pairs, 'seed')} finished with both, {CLAIM_SEEDS} are needed. "
            f"{a} minus {b}: {spoken(lead.bits_per_byte)} {UNIT}."
        )
    if contrast.verdict == "no_difference":
        return f"No difference shown: {_open(lead, a, b)}"
    low, high = (a, b) if contrast.verdict == "a_lower" else (b, a)
    size = lead.bits_per_byte if contrast.verdict == "b_lower" else _turned(lead.bits_per_byte)
    return (
        f"{low} is lower than {high} by {spoken(size)} {UNIT} of validation loss, "
        f"more than the noise between seeds ({lead.noise:.3g})."
    )


def _turned(found: Interval) -> Interval:
    """Of B minus A."""
    low = None if found.high is None else -found.high
    high = None if found.low is None else -found.low
    return found.model_copy(update={"mean": -found.mean, "low": low, "high": high})


def _open(lead: Lead, a: str, b: str) -> str:
    found = lead.bits_per_byte
    text = f"{a} minus {b} is {spoken(found)} {UNIT} of validation loss"
    if found.excludes_zero:
        return (
            f"{text}. The interval leaves 0 out, but the difference is within the noise between "
            f"seeds ({lead.noise:.3g}: two standard errors of runs that are not paired)."
        )
    assert found.low is not None
    assert found.high is not None
    places = decimals(found)
    return (
        f"{text}: with so many seeds {a} may still be lower by {-found.low:.{places}f} or higher "
        f"by {found.high:.{places}f}."
    )


def _lost(contrast: Contrast) -> list[str]:
    text = []
    for side in (contrast.a, contrast.b):
        for seeds, how in ((side.diverged, "diverged"), (side.failed, "failed")):
            if seeds:
                text.append(
                    f"{side.label} {how} with {counted(len(seeds), 'seed')} of "
                    f"{len(contrast.seeds)} ({listed(map(str, seeds))}): differences miss them."
                )
    missing = [
        seed
        for seed in contrast.seeds
        if any(seed not in side.ids for side in (contrast.a, contrast.b))
    ]
    if missing:
        text.append(f"Not trained yet: {listed(f'seed {seed}' for seed in missing)}.")
    return text


def _unequal(contrast: Contrast, config: CompareConfig) -> list[str]:
    """What one side spends more of than the other."""
    a, b = contrast.a, contrast.b
    text = []
    if a.budget.parameters != b.budget.parameters:
        counts = a.budget.parameters, b.budget.parameters
        text.append(f"{_both('Parameters', contrast, counts, ',.0f')}: {THEIRS}.")
    flops = a.budget.flops_per_token, b.budget.flops_per_token
    if max(flops) > (1 + config.flops_tolerance) * min(flops):
        what = "Floating-point operations per token"
        text.append(f"{_both(what, contrast, flops, '.4g')}: {THEIRS}.")
    if a.seconds_per_step is None or b.seconds_per_step is None:
        return text
    times = 1e3 * a.seconds_per_step, 1e3 * b.seconds_per_step
    if max(times) > (1 + config.time_tolerance) * min(times):
        text.append(
            f"{_both('Time per step', contrast, times, '.4g', ' ms')}: at equal time the faster "
            "side could have trained on more tokens."
        )
    return text


def _both(
    what: str, contrast: Contrast, values: tuple[float, float], digits: str, unit: str = ""
) -> str:
    """``Time per step: hc 20 ms, prenorm 10 ms (100 % more)``, the smaller last."""
    (less, low), (more, high) = sorted(zip(values, contrast.labels, strict=True))
    return (
        f"{what}: {high} {more:{digits}}{unit}, {low} {less:{digits}}{unit} "
        f"({high} {100 * (more / less - 1):.3g} % more)"
    )


def _rates(contrast: Contrast) -> list[str]:
    a, b = contrast.a.learning_rate, contrast.b.learning_rate
    rates = f"at {a:g}" if a == b else f"at {a:g} and {b:g}"
    return [
        f"Peak learning rates were given ({rates}), not searched: a side may have a better one "
        "(depthbench run searches)."
    ]


def _weak(rows: Sequence[Row]) -> list[str]:
    worse = [row for row in rows if row.status == "done" and worse_than_unigram(row)]
    if not worse:
        return []
    return [
        f"{counted(len(worse), 'trial')} did not beat the unigram entropy of the text: "
        "train longer or change the learning rate."
    ]


def _health(label: str, findings: Mapping[int, Sequence[Finding]]) -> list[str]:
    """What the health watch took for more than a note: each kind once, with its seeds."""
    seeds: dict[tuple[str, str], list[int]] = {}
    for seed, found in findings.items():
        for key in dict.fromkeys((one.severity, one.kind) for one in found):
            seeds.setdefault(key, []).append(seed)
    parts = [
        f"{kind.replace('_', ' ')} ({counted(len(having), 'seed')})"
        for (severity, kind), having in seeds.items()
        if severity != "note"
    ]
    return [f"Health of {label}: {listed(parts)}; see health.json of its trials."] if parts else []


def _facts(contrast: Contrast) -> list[str]:
    a, b = contrast.labels
    shared = contrast.shared
    text = [
        f"For each seed both sides saw the same batches in the same order "
        f"({contrast.a.budget.tokens:,} tokens of data {contrast.data_hash}).",
        f"{shared.numbers:,} parameters start as the same numbers: {100 * shared.of_a:.3g} % of "
        f"{a}'s, {100 * shared.of_b:.3g} % of {b}'s.",
    ]
    if shared.other_shape:
        text.append(f"Of another shape, and so drawn apart: {listed(shared.other_shape)}.")
    if shared.other_start:
        text.append(f"Started otherwise by design: {listed(shared.other_start)}.")
    if contrast.lead is not None:
        text.append(_tests(contrast.lead, a, b))
    curve = contrast.training
    if curve is not None and curve.pairs > 1:
        text.append(
            f"Intervals of the training curve hold point by point: of its {len(curve.steps)} "
            f"about {(1 - curve.confidence) * len(curve.steps):.0f} leave 0 out by chance alone."
        )
    slope = contrast.observations.slope
    if slope.difference is not None:
        text.append(
            f"Slope of the training loss over the first {slope.steps} steps, {a} minus {b}: "
            f"{spoken(slope.difference)} nats per token for 100 steps."
        )
    return text


def _tests(lead: Lead, a: str, b: str) -> str:
    found = lead.exact
    flips = "" if found.flip_p is None else f", of all flips of signs {found.flip_p:.3g}"
    return (
        f"{a} is lower with {counted(found.below, 'seed')}, {b} with {counted(found.above, 'seed')}"
        f"; exact two-sided p of the sign test {found.sign_p:.3g}{flips}; with so many seeds it "
        f"cannot be under {found.least_p:.3g}."
    )
