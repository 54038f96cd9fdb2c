"""A choice in plain words."""

from collections.abc import Sequence

from depthbench.cost.candidates import Candidate
from depthbench.cost.choose import BUDGETS, MEASURES, Choice, Conflict, Equal, Price, Relaxation
from depthbench.cost.scaling import Prediction
from depthbench.quantities import bytes_text, count_text
from depthbench.study.findings import Comparison
from depthbench.study.words import claim, counted, listed


def sentences(choice: Choice) -> tuple[str, ...]:
    """What was chosen and why, what limits cost, and what weakens it, in reading order."""
    if choice.chosen is None:
        told = [_impossible(choice, one) for one in choice.conflicts]
        told += [_relaxed(choice, choice.relaxations)]
        return (*told, *_cautions(choice))
    told = [_chosen(choice, choice.named(choice.chosen))]
    if choice.comparison is not None and len(choice.comparison.entries) > 1:
        told.append(_claimed(choice, choice.comparison))
    if choice.ties:
        told.append(f"Within two standard errors of it: {listed(choice.ties)}.")
    told += [_price(one) for one in choice.prices]
    told += _together(choice, choice.named(choice.chosen))
    told += _equals(choice)
    return (*told, *_cautions(choice))


def predicted(one: Prediction) -> str:
    """``hc at 800M parameters: 1.912 bits per byte, from 1.900 to 1.924 (…)``."""
    return (
        f"{one.label} at {count_text(one.parameters)} parameters: {one.bits_per_byte:.3f} bits per "
        f"byte, from {one.low:.3f} to {one.high:.3f} ({100 * one.confidence:g} % prediction "
        "interval of one more trial, if the law holds)."
    )


def limit_text(name: str, allowed: float) -> str:
    """``parameters ≤ 400,000,000``."""
    return f"{MEASURES[name].words} ≤ {MEASURES[name].text(allowed)}"


def _all_limits(choice: Choice, names: Sequence[str] | None = None) -> str:
    given = choice.limits.given()
    return listed(limit_text(name, given[name]) for name in names or given)


def _chosen(choice: Choice, one: Candidate) -> str:
    spread = "one seed"
    if one.standard_deviation is not None:
        spread = f"± {one.standard_deviation:.3f} over {one.finished} seeds"
    of = counted(len(choice.feasible), "candidate")
    where = f"Of {of} with {_all_limits(choice)}" if choice.limits.given() else f"Of {of}"
    return (
        f"{where}, {one.name} has the least loss: {one.bits_per_byte:.3f} bits per byte, {spread}."
    )


def _claimed(choice: Choice, pair: Comparison) -> str:
    """Who wins among all that meet the limits; a pair may be clear where others are not."""
    if choice.winner or not pair.winner:
        return claim(pair)
    reasons = []
    if choice.few:
        reasons.append(f"{counted(len(choice.few), 'candidate')} had fewer than three seeds")
    if choice.ties:
        reasons.append("its lead over others is within the spread between seeds")
    return (
        f"{pair.winner} leads {pair.entries[1].label} by {pair.difference:.3f} bits per byte, "
        f"but {listed(reasons)}: no winner is claimed."
    )


def _price(price: Price) -> str:
    limit = limit_text(price.limit, price.allowed)
    if price.bits_per_byte == 0:
        return f"The limit {limit} costs nothing: without it the choice is the same."
    return (
        f"The limit {limit} costs {price.bits_per_byte:.3f} bits per byte: without it "
        f"{price.without} could be had ({MEASURES[price.limit].text(price.needs)})."
    )


def _together(choice: Choice, chosen: Candidate) -> list[str]:
    """What all limits cost; nothing where a single one says it already."""
    cost = chosen.bits_per_byte - choice.named(choice.unlimited).bits_per_byte
    if len(choice.prices) < 2 or cost in (0, *(price.bits_per_byte for price in choice.prices)):
        return []
    return [
        f"All limits together cost {cost:.3f} bits per byte: without any the choice is "
        f"{choice.unlimited}."
    ]


def _impossible(choice: Choice, one: Conflict) -> str:
    if one.least is None or one.factor is None:
        return f"No candidate has {_all_limits(choice, one.limits)} together."
    measure = MEASURES[one.limits[0]]
    return (
        f"No candidate has {_all_limits(choice, one.limits)}: the least in the study is "
        f"{measure.text(one.least)} ({one.candidate}), {_above(one.factor)} the limit."
    )


def _relaxed(choice: Choice, options: Sequence[Relaxation]) -> str:
    given = choice.limits.given()
    ways = [
        f"{listed(_raise(name, to, given[name]) for name, to in one.to.items())} "
        f"for {one.candidate} ({one.bits_per_byte:.3f} bits per byte)"
        for one in options
    ]
    return f"Raise {'; or '.join(ways)}."


def _raise(name: str, to: float, limit: float) -> str:
    return f"{MEASURES[name].words} to {MEASURES[name].text(to)} ({_above(to / limit)} the limit)"


def _above(factor: float) -> str:
    return f"{factor:.3g} times" if factor >= 2 else f"{100 * (factor - 1):.3g} % above"


def _equals(choice: Choice) -> list[str]:
    others = [one for one in choice.equals if one.winner != choice.chosen]
    same = [one for one in choice.equals if one.winner == choice.chosen and one.compared > 1]
    alone = [one.budget for one in choice.equals if one.compared == 1]
    share = f"{100 * choice.config.tolerance:g} %"
    told = []
    if same:
        within = listed(
            f"{one.budget} ({counted(one.compared - 1, 'other candidate')})" for one in same
        )
        told.append(f"It is also the best at equal {within}, equal meaning within {share}.")
    if alone:
        told.append(f"No other candidate is within {share} of its {listed(alone)}.")
    return told + [_equal(one, choice) for one in others]


def _equal(one: Equal, choice: Choice) -> str:
    text = BUDGETS[one.budget].text
    behind = choice.named(choice.chosen or one.winner).bits_per_byte - one.bits_per_byte
    return (
        f"At equal {one.budget} (within {100 * choice.config.tolerance:g} % of {text(one.value)}, "
        f"limits left aside) the best is {one.winner} with {text(one.winners_value)}: "
        f"{one.bits_per_byte:.3f} bits per byte, {behind:.3f} less."
    )


def _cautions(choice: Choice) -> list[str]:
    cautions = []
    device = choice.conditions.device
    large = [one.name for one in choice.candidates if one.memory_bytes > device.memory]
    if large:
        cautions.append(
            f"More than the {bytes_text(device.memory)} of {device.name} is needed by: "
            f"{listed(large)}."
        )
    if choice.left_out:
        cautions.append(f"Without a finished trial, so no candidates: {listed(choice.left_out)}.")
    single = [one.name for one in choice.candidates if one.finished < 2]
    if single and len(single) == len(choice.candidates):
        cautions.append("Every candidate has one seed, which shows a direction, not a result.")
    if len({one.trained_on for one in choice.candidates}) > 1:
        cautions.append("Trials ran on several machines: training times are not comparable.")
    if len({one.training_tokens for one in choice.candidates}) > 1:
        cautions.append(
            "Candidates differ in training tokens: part of a difference is training length."
        )
    return cautions
