"""Does a state-space part repeat what attention beside it gives at low frequencies?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from depthbench.probes.bootstrap import interval
from depthbench.probes.lab import Lab
from depthbench.probes.measures import Loss, in_groups
from depthbench.probes.probe import Found, LackingError, Probe
from depthbench.probes.program import silent
from depthbench.probes.result import (
    Finding,
    Matrix,
    Number,
    counted_from,
    curve,
    table,
    value,
    without_sign_of_zero,
)
from depthbench.probes.subject import Subject
from depthbench.redundancy.overlap_tasks import Alignments, Correlations, alignment
from depthbench.study.words import listed

Array = NDArray[np.float64]
PARTS = ("attention", "states")
ABLATIONS: dict[str, tuple[str, ...]] = {
    "states": ("states",),
    "attention": ("attention",),
    "both": PARTS,
}
"""What is silent, by the name of the finding."""
SPOKEN = {"states": "state-space part", "attention": "attention", "both": "both parts"}


@dataclass(frozen=True)
class Changes:
    """Growth of the loss under one ablation, a share of it: by block, and in all at once."""

    every: Array
    by_domain: dict[str, Array]
    """The same on each kind of text; empty where there is one."""

    def worst(self, place: int) -> tuple[float, str]:
        """The largest of any kind of text, and which."""
        each = {name: float(changes[place]) for name, changes in self.by_domain.items()}
        name = max(each, key=lambda one: each[one], default="all")
        return each.get(name, float(self.every[place])), name


@dataclass(frozen=True)
class Measured:
    """Correlations of one hybrid, and what its losses say."""

    correlations: Array
    """``(windows, blocks)``; window 1 first."""
    control: Array
    changes: dict[str, Changes]
    """By ablation."""
    sizes: Array
    """``(blocks,)``: root mean square of the state-space part over attention's."""


@final
class Overlap(Probe):
    """Windows, and thresholds of what counts as the same and as dispensable."""

    name: ClassVar[str] = "overlap"
    title: ClassVar[str] = "Overlap of state-space and low-frequency attention outputs"
    definition: ClassVar[str] = (
        "s and a the outputs of the state-space part and of attention in one site, ā_w the moving "
        "average of a over w tokens: Pearson's correlation of s and ā_w over the tokens of a "
        "document, mean over channels, then over documents by their tokens; linear CKA of s and "
        "ā_w over all tokens; control: ā_w turned by half of the document; growth of the loss "
        "with s, a or both at 0, in one site and in all; 95 % bootstrap intervals over documents"
    )
    blind: ClassVar[str] = (
        "Correlation is channel by channel and blind to scale: a small copy counts as one, and "
        "a copy in turned coordinates only shows in CKA, which sees the few directions of largest "
        "variance. The control keeps how smooth a signal is, not what both owe to the position in "
        "a document. A silent part makes states that the model never met, and two parts that do "
        "the same are each dispensable while both are not."
    )
    reading: ClassVar[str] = (
        "Correlation high, control low, unfiltered lower: the state-space part repeats slow "
        "attention there. Whether it can go is what the growth of the loss says."
    )
    source: ClassVar[str] = "arXiv 2405.21060"
    windows: tuple[int, ...] = Field(default=(4, 16, 64), min_length=1)
    """Tokens of the moving average, each at least 2."""
    average: Literal["causal", "centred"] = "causal"
    """The last tokens, or as many on both sides; shorter at the ends of a document."""
    beginning: int = Field(default=1, ge=0)
    """Tokens at the start of a document that are left out: the first sees itself alone, and its
    outputs are often far larger than others."""
    alike: float = Field(default=0.7, gt=0, le=1)
    """Correlation from which on a part repeats attention (or takes it back, below its
    negative)."""
    margin: float = Field(default=0.2, ge=0)
    """By which it must exceed the control's."""
    gain: float = Field(default=0.05, ge=0)
    """Over the unfiltered correlation, for it to be attention's low frequencies."""
    dispensable: float = Field(default=0.002, gt=0)
    """Growth of the loss under which a part can go: 0.2 %."""

    def refusal(self, subject: Subject) -> str | None:
        if set(PARTS) <= set(subject.parts):
            return None
        return "its blocks have no attention and state-space part side by side that run apart"

    def look(self, lab: Lab) -> Found:
        tasks = Correlations(
            windows=(1, *self.windows), average=self.average, beginning=self.beginning
        )
        part = lab.joined(tasks)
        tokens = part["tokens"]
        if not tokens.any():
            raise LackingError(
                f"overlap needs documents of {self.beginning + 3} tokens or more. Ask for longer "
                "ones with --length"
            )
        found = {name: _mean(part[name], tokens) for name in ("correlation", "control")}
        with np.errstate(invalid="ignore", divide="ignore"):
            sizes = np.sqrt(part["states"].sum(-1) / part["attention"].sum(-1))
        findings: list[Finding] = [
            *self._correlations(part),
            self._matrix("control", "The same with the other half of the document", found),
            curve(
                "size",
                "Size of the state-space part over attention's",
                sizes,
                words="block {}: root mean square of the state-space part over attention's",
            ),
            *self._alignments(lab),
        ]
        losses, changes = self._ablations(lab)
        measured = Measured(found["correlation"], found["control"], changes, sizes)
        words = [self._verdict(block, measured) for block in range(lab.layers)]
        return Found([*findings, *losses], [*words, self._together(changes)])

    def _matrix(self, name: str, title: str, found: dict[str, Array]) -> Matrix:
        windows = (1.0, *map(float, self.windows))
        return Matrix(
            name=name,
            title=title,
            row_axis="window",
            column_axis="block",
            rows=windows,
            columns=counted_from(0, found[name].shape[1]),
            values=table(found[name]),
            centre=0.0,
            words=f"block {{column}}, attention averaged over {{row}} tokens: {title.lower()}",
        )

    def _correlations(self, part: dict[str, Array]) -> list[Finding]:
        """By block with intervals, a curve a window; and all of them as a matrix."""
        each, tokens = part["correlation"], part["tokens"]
        found = {"correlation": _mean(each, tokens)}
        findings: list[Finding] = [
            self._matrix("correlation", "Correlation of the parts", found),
        ]
        for number, window in enumerate((1, *self.windows)):
            low, high = _ends(
                [
                    interval(
                        lambda weights, line=line: float(_mean(line, tokens * weights)),
                        len(tokens),
                        self.seed,
                    )
                    for line in each[number]
                ]
            )
            how = "as it is" if window == 1 else f"averaged over {window} tokens"
            findings.append(
                curve(
                    f"correlation_{window}",
                    f"Correlation of the state-space part and attention {how}",
                    found["correlation"][number],
                    low=low,
                    high=high,
                    words=f"block {{}}: correlation with attention {how}",
                )
            )
        return findings

    def _alignments(self, lab: Lab) -> list[Finding]:
        windows = (1, *self.windows)
        found = {
            name: np.full((len(windows), lab.layers), np.nan) for name in ("cka", "cka_control")
        }
        for blocks in in_groups(lab, list(range(lab.layers)), 1 + 3 * len(windows)):
            sums = lab.summed(
                Alignments(
                    windows=windows,
                    average=self.average,
                    beginning=self.beginning,
                    blocks=tuple(blocks),
                )
            )
            for block in blocks:
                for number, window in enumerate(windows):
                    for name, crossed in (("cka", "cross"), ("cka_control", "turned")):
                        found[name][number, block] = alignment(sums, block, window, crossed)
        return [
            self._matrix("cka", "Linear CKA of the parts", found),
            self._matrix("cka_control", "The same with the other half of the document", found),
        ]

    def _ablations(self, lab: Lab) -> tuple[list[Finding], dict[str, Changes]]:
        blocks = range(lab.layers)
        programs = [
            silent(lab.layers, where, *parts)
            for parts in ABLATIONS.values()
            for where in [*((block,) for block in blocks), tuple(blocks)]
        ]
        loss = Loss(lab, programs)
        names = lab.text.domains_of(loss.batches)
        findings: list[Finding] = []
        changes: dict[str, Changes] = {}
        for number, name in enumerate(ABLATIONS):
            places = slice(number * (lab.layers + 1), (number + 1) * (lab.layers + 1))
            own = _by_domain(loss, places, names)
            changes[name] = Changes(_growth(loss, places), own)
            findings += self._ablation(loss, places, name)
            findings += [
                one for domain, growth in own.items() for one in _on_domain(name, domain, growth)
            ]
        return findings, changes

    def _ablation(self, loss: Loss, places: slice, name: str) -> list[Finding]:
        """Growth of the loss by block, and with all blocks at once, with intervals."""
        found = 100 * _growth(loss, places)
        ends = [
            interval(
                lambda weights, each=each: _percent(each @ weights, loss.nats[0] @ weights),
                len(loss.tokens),
                self.seed,
            )
            for each in loss.nats[1:][places]
        ]
        low, high = _ends(ends)
        title = f"Growth of the loss without {_the(name)}"
        line = curve(
            f"without_{name}",
            title,
            found[:-1],
            unit="% of the loss",
            low=low[:-1] if low else (),
            high=high[:-1] if high else (),
            words=f"block {{}} without {_the(name)}: growth of the loss",
        )
        whole = Number(
            name=f"without_{name}_all",
            title=f"{title} in all blocks",
            unit="% of the loss",
            value=value(found[-1]),
            low=low[-1] if low else None,
            high=high[-1] if high else None,
        )
        return [line, whole]

    def _verdict(self, block: int, found: Measured) -> str:
        """What the numbers say of one block."""
        line, control = found.correlations[:, block], found.control[:, block]
        costs = (
            f"without it the loss changes by {self._cost(found.changes['states'], block)}, without "
            f"the attention by {self._cost(found.changes['attention'], block)}"
        )
        if np.isnan(line).any():
            empty = [SPOKEN[name] for name, gone in self._empty(block, found) if gone]
            what = f"the {listed(empty)} gives nothing" if empty else "no correlation is defined"
            return f"Block {block}: {what}; {costs}."
        best = int(np.argmax(np.abs(line)))
        windows = (1, *self.windows)
        where = f" over {windows[best]} tokens, {line[0]:.2f}" if best else ""
        return (
            f"Block {block}: the state-space part {self._verb(line, control, best)}: correlation "
            f"{line[best]:.2f}{where} unfiltered, {control[best]:.2f} by chance; {costs}."
        )

    def _cost(self, changes: Changes, place: int) -> str:
        """Growth of the loss, and whether a part can go: on every kind of text."""
        change, limit = changes.every[place], f"{self.dispensable:.1%}"
        worst, where = changes.worst(place)
        told = without_sign_of_zero(f"{change:+.2%}")
        if change >= self.dispensable:
            return f"{told} (needed: {limit} or more)"
        if worst >= self.dispensable:
            return f"{told} (needed for {where}: {worst:+.2%}, {limit} or more)"
        return f"{told} (can go: under {limit})"

    def _empty(self, block: int, found: Measured) -> list[tuple[str, bool]]:
        size = found.sizes[block]
        return [("states", bool(size == 0)), ("attention", bool(not np.isfinite(size)))]

    def _verb(self, line: Array, control: Array, best: int) -> str:
        size = abs(line[best])
        if size < self.alike:
            return f"does not repeat attention (threshold {self.alike:g})"
        if size < abs(control[best]) + self.margin:
            return f"is like attention no more than chance allows (margin {self.margin:g})"
        low = size >= abs(line[0]) + self.gain
        what = "low-frequency attention" if low else "attention"
        return f"{'repeats' if line[best] > 0 else 'takes back'} {what}"

    def _together(self, changes: dict[str, Changes]) -> str:
        costs = [f"without {_the(name)} by {self._cost(changes[name], -1)}" for name in ABLATIONS]
        return f"In all blocks at once the loss changes {listed(costs)}."


def _the(name: str) -> str:
    return SPOKEN[name] if name == "both" else f"the {SPOKEN[name]}"


def _mean(each: Array, weights: Array) -> Array:
    """Over documents, the last axis, by weight; those without a correlation left out."""
    known = ~np.isnan(each)
    counts = known * weights
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(known, each, 0) @ weights / counts.sum(-1)


def _percent(changed: Any, whole: Any) -> float:
    return 100 * (float(changed / whole) - 1)


def _growth(loss: Loss, places: slice, weights: Array | None = None) -> Array:
    """Of the loss under these programs, as a share of it."""
    return loss.changes(weights)[places] / loss.average(weights)


def _ends(
    intervals: Sequence[tuple[float, float] | None],
) -> tuple[tuple[float | None, ...], tuple[float | None, ...]]:
    """Lower and upper ends; empty where there are no intervals."""
    if all(one is None for one in intervals):
        return (), ()
    pairs = [one or (None, None) for one in intervals]
    return tuple(low for low, _ in pairs), tuple(high for _, high in pairs)


def _by_domain(loss: Loss, places: slice, names: Sequence[str]) -> dict[str, Array]:
    """Growth of the loss on each domain's documents, where there are several."""
    order = list(dict.fromkeys(names))
    if len(order) < 2:
        return {}
    rows = {domain: np.array([float(one == domain) for one in names]) for domain in order}
    return {domain: _growth(loss, places, weights) for domain, weights in rows.items()}


def _on_domain(name: str, domain: str, growth: Array) -> list[Finding]:
    title = f"Growth of the loss on {domain} without {_the(name)}"
    return [
        curve(
            f"without_{name}.{domain}",
            title,
            100 * growth[:-1],
            unit="% of the loss",
            words=f"block {{}} without {_the(name)}: growth of the loss on {domain}",
        ),
        Number(
            name=f"without_{name}_all.{domain}",
            title=f"{title}, in all blocks",
            unit="% of the loss",
            value=value(100 * growth[-1]),
        ),
    ]
