"""Which streams can be merged, by three criteria, and what is missing for a verdict."""

from collections.abc import Sequence
from typing import ClassVar, final

import numpy as np
from pydantic import Field

from depthbench.probes.lab import Lab
from depthbench.probes.probe import Found, StreamsProbe
from depthbench.probes.result import Finding, Number, value, without_sign_of_zero
from depthbench.probes.subject import Subject
from depthbench.streams.evidence import Case, Evidence
from depthbench.streams.flat import Validation
from depthbench.streams.merge.plan import Alike
from depthbench.streams.next_steps import next_steps, trains_on
from depthbench.streams.shared import LEAST_DEPTHS

IDLE = 1e-6
"""Growth of the loss under which nothing reads a stream."""


@final
class Verdict(StreamsProbe):
    """Thresholds are options; evidence comes from the other results."""

    name: ClassVar[str] = "verdict"
    title: ClassVar[str] = "Which streams can be merged"
    definition: ClassVar[str] = (
        "a stream is mergeable when all three hold: (1) the loss without it grows by less than "
        "0.2 % over more than 60 % of the ranges of blocks, re-trained; (2) the information that "
        "it shares with the main stream rises with depth, or it is a linear function of it; (3) "
        "without it and another suspect the loss grows by no more than without the main stream. "
        "Streams that are multiples of each other at every site are one"
    )
    blind: ClassVar[str] = (
        "It is about these texts: another domain may need a stream. A stream of a model that still "
        "learns may come to use."
    )
    reading: ClassVar[str] = (
        "Each criterion stands with its number. A missing verdict names what to measure next; it "
        "is no verdict that the stream is needed."
    )
    evidence: Evidence | None = None
    """What was measured."""
    validation: Validation | None = None
    """Whether the loss is still falling."""
    loss: float = Field(default=0.002, gt=0)
    """Growth of the loss that is nothing."""
    share: float = Field(default=0.6, ge=0, le=1)
    """Of the ranges in which it must be so."""
    seeds: int = Field(default=3, ge=1)
    """Fewest of re-training for a verdict."""
    domains: int = Field(default=3, ge=1)
    """Fewest kinds of text for a verdict."""
    flat: float = Field(default=0.005, gt=0)
    """Change of the validation loss over the last validations that is none."""

    def look(self, lab: Lab) -> Found:
        names = lab.subject.stream_names
        alike = Alike.measured(lab)
        copies = alike.copies()
        findings: list[Finding] = []
        said: list[str] = [
            f"Streams {names[i]} and {names[j]} are multiples of each other at every site: merged "
            "in closed form, nothing is lost."
            for i, j in copies
        ]
        said += [
            f"Stream {names[one]} does not change with depth: no site writes into it."
            for one in alike.still()
        ]
        said += [f"Stream {names[one]} is the same for all tokens." for one in alike.constant()]
        missing = self.missing(lab.subject)
        mergeable: list[int] = []
        for case in () if self.evidence is None else self.evidence.cases:
            held = self.criteria(case)
            findings += self._numbers(case, names[case.stream])
            # of two that are one, the later goes
            of_copies = any(case.stream == later for _, later in copies)
            if (all(held) and not missing) or of_copies:
                mergeable.append(case.stream)
            said.append(self._words(case, held, names, missing, of_copies))
        findings.append(
            Number(
                name="mergeable",
                title="Streams that can be merged",
                unit=f"of {len(names)}",
                value=float(len(mergeable)) if self.evidence or copies else None,
            )
        )
        head = self._headline(names, mergeable, missing, copies)
        after = next_steps(
            lab.subject,
            self.evidence,
            missing,
            self._into([] if copies else mergeable, copies),
            copies=bool(copies),
            seeds=self.seeds,
        )
        return Found(findings, [head, *said, *after])

    def missing(self, subject: Subject) -> list[str]:
        """What stands between the numbers and a verdict."""
        found: list[str] = []
        if self.evidence is None:
            return ["no ablation of every stream over all blocks"]
        if self.evidence.seeds < self.seeds:
            found.append(
                f"too few seeds: re-trained with {self.evidence.seeds} of {self.seeds}"
                if trains_on(subject)
                else "not re-trained: only models of this package can be, so the first criterion "
                "is of hard removal, which overstates"
            )
        if len(self.evidence.domains) < self.domains:
            found.append(f"too few domains: {len(self.evidence.domains)} of {self.domains}")
        if not self.evidence.shared:
            found.append("what streams share is not measured")
        elif self.evidence.cases[0].slope is None and self.evidence.cases[-1].slope is None:
            found.append(
                f"mutual information by depth needs {LEAST_DEPTHS} blocks or more, the model has "
                f"{subject.layers}"
                if subject.layers < LEAST_DEPTHS
                else "no mutual information at three depths behind the first"
            )
        if self.validation is None:
            found.append("whether it has converged is not known: no validation losses")
        elif (change := self.validation.change) is None:
            found.append(
                f"not converged yet: {len(self.validation.losses)} validations, "
                f"{self.validation.wanted} must be flat"
            )
        elif change > self.flat:
            found.append(
                f"not converged yet: the last {self.validation.wanted} validation losses change "
                f"by {change:.2%}, more than {self.flat:.2%}"
            )
        return found

    def criteria(self, case: Case) -> tuple[bool, bool, bool]:
        """Whether each of the three holds; none for the main stream."""
        if case.stream == case.main:
            return False, False, False
        return self._free(case), self._shared(case), self._replaceable(case)

    def _free(self, case: Case) -> bool:
        return self.free_share(case.changes) > self.share

    def free_share(self, changes: tuple[float, ...]) -> float:
        """Share of ranges in which the loss grows by less than `loss`."""
        return float(np.mean([one < self.loss for one in changes])) if changes else 0.0

    def _shared(self, case: Case) -> bool:
        rises = (
            case.slope is not None
            and case.slope_error is not None
            and case.slope - 1.96 * case.slope_error > 0
        )
        return rises or case.linear

    def _replaceable(self, case: Case) -> bool:
        assert self.evidence is not None
        main = self.evidence.cases[case.main]
        if main.whole is None:
            return False
        cost = self._cost(case)
        return cost is not None and cost <= main.whole

    def _cost(self, case: Case) -> float | None:
        """Growth without it and another suspect, at most; without it where there is none."""
        assert self.evidence is not None
        suspects = self._suspects(case)
        costs = [case.pairs[one] for one in suspects if one in case.pairs]
        return max(costs) if costs else (None if suspects else case.whole)

    def _suspects(self, case: Case) -> list[int]:
        """Other streams for which the first criterion holds."""
        assert self.evidence is not None
        return [
            other.stream
            for other in self.evidence.cases
            if other.stream not in (case.stream, case.main) and self._free(other)
        ]

    def _numbers(self, case: Case, name: str) -> list[Finding]:
        slope, error = case.slope, case.slope_error
        span = None if slope is None or error is None else 1.96 * error
        return [
            Number(
                name=f"free_{case.stream}",
                title=f"Stream {name}: share of ranges that do without it (more than "
                f"{self.share:.0%} wanted)",
                unit="% of the ranges",
                value=100 * self.free_share(case.changes),
            ),
            Number(
                name=f"slope_{case.stream}",
                title=f"Stream {name}: rise of the information shared with the main stream",
                unit="nats/depth",
                value=None if slope is None else value(slope),
                low=None if slope is None or span is None else value(slope - span),
                high=None if slope is None or span is None else value(slope + span),
            ),
            Number(
                name=f"with_suspect_{case.stream}",
                title=f"Stream {name}: growth of the loss without it and another suspect, if any",
                unit="% of the loss",
                value=None if (cost := self._cost(case)) is None else 100 * cost,
            ),
        ]

    def _words(
        self,
        case: Case,
        held: tuple[bool, bool, bool],
        names: tuple[str, ...],
        missing: list[str],
        of_copies: bool,
    ) -> str:
        assert self.evidence is not None
        name = names[case.stream]
        if case.stream == case.main:
            if case.whole is not None and case.whole > 0:
                return (
                    f"Stream {name} is the main one: without it the loss grows most "
                    f"({percent(case.whole)})."
                )
            return (
                f"Stream {name} is held to be the main one, though the loss grows without none: "
                f"without it it falls least ({percent(case.whole)})."
            )
        by = "re-trained" if self.evidence.seeds else "zeroed"
        free = self.free_share(case.changes)
        parts = [
            f"{'holds' if held[0] else 'fails'}: {by}, {free:.0%} of the ranges do without it",
            f"{'holds' if held[1] else 'fails'}: {_rise_words(case)}",
            f"{'holds' if held[2] else 'fails'}: {self._pair_words(case)}",
        ]
        verdict = "can be merged" if all(held) else "is to be kept"
        if of_copies:
            verdict = "is a copy and can be merged in closed form"
        elif all(held) and missing:
            verdict = "would be mergeable, but there is no verdict yet"
        elif max((abs(one) for one in case.hard), default=1.0) < IDLE:
            verdict += ", and nothing reads it"
        said = f"Stream {name} {verdict}. (1) {parts[0]}. (2) {parts[1]}. (3) {parts[2]}."
        return said + self._domain_words(case)

    def _pair_words(self, case: Case) -> str:
        assert self.evidence is not None
        main = self.evidence.cases[case.main].whole
        cost = self._cost(case)
        if cost is None or main is None:
            return "it was not removed over all blocks, or not together with other suspects"
        beside = "it and another suspect" if self._suspects(case) else "it; no other is suspected"
        return f"{percent(cost)} without {beside}, {percent(main)} without the main one"

    def _domain_words(self, case: Case) -> str:
        free = {name: self.free_share(line) for name, line in case.by_domain.items()}
        needed = [name for name, one in free.items() if one <= self.share]
        if not needed or len(needed) == len(free):
            return ""
        return f" Needed in {', '.join(needed)}, not elsewhere."

    def _headline(
        self,
        names: tuple[str, ...],
        mergeable: list[int],
        missing: list[str],
        copies: list[tuple[int, int]],
    ) -> str:
        if missing and not copies:
            return f"No verdict yet: {'; '.join(missing)}."
        if not mergeable:
            return f"None of {len(names)} streams can be merged."
        which = ", ".join(names[one] for one in mergeable)
        return f"{len(mergeable)} of {len(names)} streams can be merged: {which}."

    def _into(self, mergeable: Sequence[int], copies: Sequence[tuple[int, int]]) -> dict[int, int]:
        """Streams that can go, and where to: a copy into the first of its like, others into the
        main stream.
        """
        into: dict[int, int] = {}
        for one, other in copies:
            into.setdefault(other, into.get(one, one))
        if self.evidence is not None:
            main = self.evidence.cases[0].main
            for one in mergeable:
                into.setdefault(one, into.get(main, main))
        return into


def _rise_words(case: Case) -> str:
    if case.linear:
        return "it is a linear function of the main stream at all depths"
    if case.slope is None or case.slope_error is None:
        return "the information shared by depth is not known"
    return (
        f"information shared with the main stream changes by {case.slope:+.3g} ± "
        f"{1.96 * case.slope_error:.2g} nats a depth"
    )


def percent(share: float | None) -> str:
    """``+1.20%``; a dash where it is not known."""
    return "–" if share is None else without_sign_of_zero(f"{share:+.2%}")
