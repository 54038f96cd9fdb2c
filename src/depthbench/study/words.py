"""The verdict in plain words: every sentence states what was measured, or what is missing."""

from collections.abc import Iterable, Iterator, Sequence

from depthbench.study.findings import Comparison, DesignFinding, Point, Verdict
from depthbench.study.store import Row

DIFFERENT_BUDGET = 1.1


def tell(verdict: Verdict, rows: list[Row]) -> Verdict:
    """``verdict`` with its sentences."""
    designs = tuple(d.model_copy(update={"sentence": _design(d)}) for d in verdict.designs)
    comparisons = tuple(
        c.model_copy(update={"sentence": _comparison(c)}) for c in verdict.comparisons
    )
    told = verdict.model_copy(update={"designs": designs, "comparisons": comparisons})
    return told.model_copy(
        update={
            "headline": _headline(told),
            "depth": _depth(designs),
            "cautions": tuple(_cautions(told, rows)),
        }
    )


def listed(names: Iterable[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def counted(number: int, noun: str) -> str:
    """``1 trial``, ``2 trials``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _design(design: DesignFinding) -> str:
    best = design.best
    if best is None or best.bits_per_byte is None:
        return f"{design.label}: {_nothing(design)}."
    text = (
        f"{design.label} is best at {counted(best.layers, 'layer')} "
        f"(aspect ratio {best.aspect_ratio:.3g}; {_loss(best)})"
    )
    deepest = design.curve[-1]
    if deepest.bits_per_byte is None:
        place = f"its deepest shape ({deepest.layers} layers)"
        if deepest.diverged and deepest.failed:
            text += f"; no trial at {place} finished: {deepest.lost}"
        else:
            text += f"; every trial at {place} {deepest.lost}"
    elif len(design.curve) == 1:
        text += ", the only shape that has a result"
    elif design.turns_back is None or design.turns_back.bits_per_byte == 0:
        text += ", the deepest shape that was trained"
    else:
        text += (
            f"; the deepest shape ({deepest.layers} layers) loses "
            f"{design.turns_back.bits_per_byte:.3f} bits per byte to it"
        )
        if design.trend != "turns_back":
            text += ", which is within the spread between seeds"
    return f"{text}{_slope(design)}{_missing(design)}."


def _nothing(design: DesignFinding) -> str:
    lost = [*design.search.grid, *design.curve]
    diverged, failed = sum(x.diverged for x in lost), sum(x.failed for x in lost)
    if diverged and not failed:
        return "no trial finished, all diverged. Try lower learning rates"
    if diverged or failed:
        return "no trial finished, all diverged or failed. The trial table has the reasons"
    return "no trial beyond the learning-rate search has finished yet"


def _loss(point: Point) -> str:
    spread = point.spread
    if point.bits_per_byte is None:
        return "no loss"
    if spread is None:
        return f"{point.bits_per_byte:.3f} bits per byte, one seed"
    return (
        f"{point.bits_per_byte:.3f} ± {spread.standard_deviation:.3f} bits per byte "
        f"over {point.finished} seeds"
    )


def _slope(design: DesignFinding) -> str:
    if design.slope is None:
        return ""
    slope = f"{design.slope.bits_per_byte_per_doubling:+.3f}"
    if design.slope.standard_error is not None:
        slope += f" ± {design.slope.standard_error:.3f}"
    return f"; slope {slope} bits per byte for each doubling of depth"


def _missing(design: DesignFinding) -> str:
    diverged = sum(point.diverged for point in design.curve)
    failed = sum(point.failed for point in design.curve)
    trials = sum(point.trials for point in design.curve)
    parts = [
        f"{number} {what}"
        for number, what in ((diverged, "diverged"), (failed, "failed"))
        if number
    ]
    return f"; of its {trials} trials {listed(parts)}, and the means miss them" if parts else ""


def _comparison(comparison: Comparison) -> str:
    place = (
        "At each design's best shape"
        if comparison.layers is None
        else f"At the deepest shape ({counted(comparison.layers, 'layer')})"
    )
    left_out = comparison.left_out
    without = f" Without a finished trial there: {listed(left_out)}." if left_out else ""
    if len(comparison.entries) < 2:
        return f"{place} there is nothing to compare: fewer than two designs finished.{without}"
    ranking = ", ".join(f"{entry.label} {entry.bits_per_byte:.3f}" for entry in comparison.entries)
    return f"{place}, in bits per byte: {ranking}. {claim(comparison)}{without}"


def claim(comparison: Comparison) -> str:
    """Who wins, or why nobody does."""
    first, second = comparison.entries[:2]
    if comparison.difference is None:
        return ""
    error = comparison.standard_error
    bound = "" if error is None else f" (two standard errors: {2 * error:.3f})"
    gap = f"{comparison.difference:.3f} bits per byte{bound}"
    few = [entry for entry in comparison.entries if entry.finished < 3]
    if few:
        counts = ", ".join(f"{entry.label} n = {entry.finished}" for entry in few)
        return (
            f"{first.label} is ahead of {second.label} by {gap}, but there are too few seeds "
            f"(n < 3: {counts}): no winner is claimed."
        )
    if comparison.winner is None:
        return (
            f"{first.label} and {second.label} differ by {gap}: "
            "smaller than the spread between seeds, a tie."
        )
    lost = first.trials - first.finished
    caution = f" ({counted(lost, 'trial')} of it did not finish)" if lost else ""
    return f"{comparison.winner} wins{caution}: it leads {second.label} by {gap}."


def _depth(designs: Sequence[DesignFinding]) -> str:
    phrases = (
        ("falls", "loss falls down to the deepest shape for {}"),
        ("levels", "it falls and levels off, within the spread between seeds, for {}"),
        ("flat", "shallowest and deepest shape differ by less than the spread for {}"),
        ("turns_back", "it turns back for {}"),
        ("diverged", "the deepest shape diverged for {}"),
        ("unknown", "too few shapes have finished to tell for {}"),
    )
    parts = [
        phrase.format(listed(map(_with_best, having)))
        for trend, phrase in phrases
        if (having := [design for design in designs if design.trend == trend])
    ]
    text = "; ".join(parts)
    caution = " One seed shows a direction, not a result." if _single_seed(designs) else ""
    return f"Does depth pay? {text[0].upper()}{text[1:]}.{caution}"


def _single_seed(designs: Sequence[DesignFinding]) -> bool:
    """Whether some design's trend rests on a curve without any spread."""
    return any(d.turns_back and d.turns_back.standard_error is None for d in designs)


def _with_best(design: DesignFinding) -> str:
    if design.trend in ("turns_back", "diverged") and design.best_layers is not None:
        return f"{design.label} (best at {counted(design.best_layers, 'layer')})"
    return design.label


def _headline(verdict: Verdict) -> str:
    text = _conclusion(verdict)
    if verdict.unfinished:
        known = verdict.finished + verdict.diverged + verdict.failed
        whole = known + verdict.unfinished
        text = f"So far, with {known} of {whole} trials: {text[0].lower()}{text[1:]}"
    return text


def _conclusion(verdict: Verdict) -> str:
    if not any(design.best for design in verdict.designs):
        lost = verdict.diverged + verdict.failed
        return f"No trial finished: {counted(lost, 'trial')} diverged or failed."
    names = {
        trend: [design.label for design in verdict.designs if design.trend == trend]
        for trend in ("falls", "levels", "flat", "turns_back", "diverged")
    }
    pays, not_pays = names["falls"] + names["levels"], names["turns_back"] + names["diverged"]
    if pays and not_pays:
        first = f"Depth pays for {listed(pays)}; it does not for {listed(not_pays)}."
    elif pays:
        first = f"Depth pays for {listed(pays)}."
    elif not_pays:
        first = f"Going deeper does not pay for {listed(not_pays)}."
    elif names["flat"]:
        first = f"Depth makes no difference beyond the spread for {listed(names['flat'])}."
    else:
        first = "Too few shapes have finished to tell whether depth pays."
    if _single_seed(verdict.designs):
        first = f"As far as one seed can show: {first[0].lower()}{first[1:]}"
    return f"{first} {_headline_winner(verdict.comparisons[0])}".strip()


def _headline_winner(comparison: Comparison) -> str:
    if len(comparison.entries) < 2:
        return ""
    at = f"At {counted(comparison.layers or comparison.entries[0].layers, 'layer')}"
    if comparison.winner:
        return f"{at}, {comparison.winner} wins."
    if any(entry.finished < 3 for entry in comparison.entries):
        return f"{at}, no winner is claimed: too few seeds (n < 3)."
    return f"{at}, {comparison.entries[0].label} and {comparison.entries[1].label} tie."


def _cautions(verdict: Verdict, rows: list[Row]) -> list[str]:
    cautions = []
    if verdict.unfinished:
        cautions.append(
            f"{counted(verdict.unfinished, 'trial')} of the plan "
            f"{'has' if verdict.unfinished == 1 else 'have'} no result yet: the deepest shapes may "
            "be missing, and every comparison may still change."
        )
    cautions += [text for design in verdict.designs if (text := _edge(design))]
    cautions += [text for design in verdict.designs if (text := _other_rate(design))]
    if verdict.diverged or verdict.failed:
        cautions.append(
            f"Of {counted(len(rows), 'trial')}, {verdict.diverged} diverged and "
            f"{verdict.failed} failed; the trial table shows each with its reason."
        )
    done = [row for row in rows if row.loss is not None and row.status == "done"]
    worse = [row.id for row in done if worse_than_unigram(row)]
    if worse:
        cautions.append(
            f"{counted(len(worse), 'finished trial')} did not beat the unigram entropy of the "
            f"text: {listed(worse)}. Train longer or change the learning rate."
        )
    if len({row.data_hash for row in rows}) > 1:
        cautions.append("The trials read different data: their losses cannot be compared.")
    cautions += _machines(rows)
    shared = [row for row in done if row.phase == "shared" and row.tokens]
    lengths = [row.tokens for row in shared]
    ratios = [row.tokens / row.parameters.total for row in shared]
    if lengths and min(_range(lengths), _range(ratios)) > DIFFERENT_BUDGET:
        cautions.append(
            "The trials differ in training tokens and in tokens per parameter: "
            "part of a difference is training length."
        )
    return cautions


def _machines(rows: Sequence[Row]) -> Iterator[str]:
    """What trials on unlike machines leave in doubt."""
    formats = dict.fromkeys(f"{row.machine.dtype} on {row.machine.device}" for row in rows)
    if len(formats) > 1:
        yield (
            f"Trials trained in {listed(formats)}: a small difference of loss may be the number "
            "format's, and times are not comparable."
        )
        return
    processors = dict.fromkeys(row.machine.processor for row in rows)
    if len(processors) > 1:
        yield f"Trials ran on {listed(processors)}: their times are not comparable."


def worse_than_unigram(row: Row) -> bool:
    """Whether a finished trial predicts less well than the text's own token frequencies."""
    if row.loss is None or row.unigram_bits_per_byte is None:
        return False
    return row.loss.bits_per_byte > row.unigram_bits_per_byte


def _range(values: Sequence[float]) -> float:
    return max(values) / min(values)


def _edge(design: DesignFinding) -> str:
    edge = design.search.edge_of_grid
    if edge is None:
        return ""
    side, remedy = ("above", "higher") if edge == "highest" else ("below", "lower")
    return (
        f"{design.label}: the chosen learning rate {design.search.chosen:g} is the {edge} of its "
        f"grid, so the optimum may lie {side} it. Widen the grid with {remedy} rates."
    )


def _other_rate(design: DesignFinding) -> str:
    search = design.search
    if search.used is None or search.chosen is None or search.used == search.chosen:
        return ""
    return (
        f"{design.label}: its curve was trained at learning rate {search.used:g}, but the search "
        f"now prefers {search.chosen:g}. Run the study again to train the curve there."
    )
