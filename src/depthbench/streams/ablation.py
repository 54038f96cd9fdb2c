"""What the loss says when streams are taken away: marginal loss by stream, depth and domain."""

import itertools
from collections.abc import Sequence
from typing import ClassVar, Literal, final

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from depthbench.probes.bootstrap import interval
from depthbench.probes.lab import Lab, Part, Task
from depthbench.probes.loss import by_row, token_losses
from depthbench.probes.probe import Found, StreamsProbe
from depthbench.probes.result import Curve, Finding, Matrix, Number, row, table, value
from depthbench.probes.subject import Subject
from depthbench.probes.walk import Walker
from depthbench.streams.sites import (
    Removal,
    Removing,
    packed,
    parts_of,
    places_of,
    ranges,
    span_words,
    states_at,
    travel,
    unpacked,
)
from depthbench.study.words import listed

PERCENT = "% of the loss"
By = Literal["zero", "mean"]
TOLD: dict[By, str] = {"zero": "set to zero", "mean": "replaced by its mean"}
TOGETHER = 64
"""Removals of one task."""


class Means(Task):
    """Sums over tokens of every stream at every place."""

    name: ClassVar[str] = "stream-means"

    @torch.no_grad()
    def measure(self, walker: Walker, subject: Subject) -> Part:
        session = walker.session
        found = [session.batch.text(z).double().sum(0) for z in states_at(session, subject)]
        return {"sums": torch.stack(found).cpu().numpy()}


class Removals(Task):
    """Next-token loss by row, without some streams."""

    name: ClassVar[str] = "stream-removals"
    removals: tuple[Removal, ...]
    means: str = ""
    """Of all streams at all places; see `packed`."""

    @torch.no_grad()
    def measure(self, walker: Walker, subject: Subject) -> Part:
        session, streams = walker.session, subject.facts.streams
        batch = session.batch
        means = unpacked(self.means, streams, places_of(subject))
        nats = torch.zeros(1 + len(self.removals), batch.rows, dtype=torch.float64)
        nats[0] = by_row(batch, token_losses(session, walker.states[-1])).cpu()
        for start, numbers in self._together(batch.tokens.numel(), walker.limits.tokens):
            copies = len(numbers)
            change = Removing([self.removals[n] for n in numbers], subject, means)
            state = session.join([walker.states[start]] * copies, copies)
            last = travel(session, subject, change, state, start, copies)
            for place, number in enumerate(numbers):
                own = session.take(last, place, place + 1, copies)
                nats[1 + number] = by_row(batch, token_losses(session, own)).cpu()
        tokens = batch.predicted.sum(1).double()
        return {"nats": nats.numpy(), "tokens": tokens.cpu().numpy()}

    def _together(self, size: int, most: int) -> list[tuple[int, list[int]]]:
        """Removals that start at one block, as many as ``most`` tokens allow for."""
        by_start: dict[int, list[int]] = {}
        for number, one in enumerate(self.removals):
            by_start.setdefault(one.start, []).append(number)
        step = max(1, most // size)
        return [
            (start, numbers[n : n + step])
            for start, numbers in by_start.items()
            for n in range(0, len(numbers), step)
        ]


class RowLosses:
    """Losses by row, of the model as it is and of changed ones."""

    def __init__(
        self, nats: NDArray[np.float64], tokens: NDArray[np.float64], domains: Sequence[str]
    ) -> None:
        """``nats`` is ``(1 + changes, rows)``; ``domains`` names that of each row."""
        self.nats, self.tokens = nats, tokens
        self.names = tuple(dict.fromkeys(domains))
        self.masks = [np.array([one == name for one in domains]) for name in self.names]

    def changes(self, weights: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """``loss(changed) / loss - 1``; rows count as often as ``weights`` say."""
        counts = np.ones_like(self.tokens) if weights is None else weights
        total = (self.nats * counts).sum(1)
        return total[1:] / total[0] - 1

    def by_domain(self) -> NDArray[np.float64]:
        """`changes` in each domain, ``(domains, changes)``."""
        return np.stack([self.changes(mask.astype(np.float64)) for mask in self.masks])

    def spans(self, seed: int, places: Sequence[int]) -> NDArray[np.float64]:
        """95 % intervals of some `changes` over documents, ``(places, 2)``; NaN for few rows."""
        found = []
        for number in places:
            pair = self.nats[[0, number + 1]]

            def measure(weights: NDArray[np.float64], pair: NDArray[np.float64] = pair) -> float:
                total = (pair * weights).sum(1)
                return float(total[1] / total[0] - 1)

            found.append(interval(measure, len(self.tokens), seed) or (np.nan, np.nan))
        return np.array(found)


def row_losses(lab: Lab, removals: Sequence[Removal], batches: Sequence[int]) -> RowLosses:
    """Of a model without streams, on ``batches``."""
    means = ""
    if any(one.by == "mean" for one in removals):
        means = packed(lab.summed(Means())["sums"] / lab.tokens(lab.batches))
    starts = range(0, max(1, len(removals)), TOGETHER)
    tasks = [Removals(removals=tuple(removals[n : n + TOGETHER]), means=means) for n in starts]
    parts = lab.joined_each(tasks, batches)
    nats = np.concatenate([parts[0]["nats"][:1], *(part["nats"][1:] for part in parts)])
    return RowLosses(nats, parts[0]["tokens"], lab.text.domains_of(batches))


class Ablation(StreamsProbe):
    """Which streams, over which blocks, is an option."""

    name: ClassVar[str] = "ablation"
    title: ClassVar[str] = "Loss without a stream"
    definition: ClassVar[str] = (
        "loss(stream set to zero, or to its mean over tokens, in front of every site of a range of "
        "blocks, and of the readout where the range ends there) / loss - 1"
    )
    blind: ClassVar[str] = (
        "States without a stream were never met in training: what is lost may be a matter of "
        "scale, and a little training may bring it back. See the re-trained ablation."
    )
    reading: ClassVar[str] = (
        "Growth near 0 over most ranges: a suspect. Growth at zero but not at the mean: what is "
        "missing is an offset. Always read it beside the re-trained figure."
    )
    ranges: int = Field(default=4, ge=1)
    """Ranges of blocks that depth is divided into."""
    layers: tuple[int, int] | None = None
    """Instead of these: one range, first block and one behind the last."""
    streams: tuple[int, ...] | None = None
    """None = each of them."""
    keep: tuple[int, ...] | None = None
    """Also remove all but these, together."""
    mean: bool = True
    """Also put the mean in a stream's place."""
    sets: bool = True
    """Also remove pairs, and all but one."""

    def look(self, lab: Lab) -> Found:
        plan = Plan(self, lab.subject.facts.streams, lab.layers)
        batches = lab.leading(len(plan.every))
        losses = row_losses(lab, plan.every, batches)
        taken = Taken(plan, losses, lab.subject.stream_names, self.seed)
        findings: list[Finding] = []
        for kind in plan.kinds:
            findings += taken.by_depth(kind)
            [span] = [plan.whole] if plan.whole is not None else plan.spans
            findings += taken.over(kind, span)
        if plan.pairs:
            findings.append(taken.pairs())
        if plan.only:
            findings.append(taken.only())
        if plan.kept is not None:
            findings.append(taken.kept(plan.kept))
        if plan.together is not None:
            findings.append(taken.together(plan.together))
        said = taken.words(len(parts_of(lab.subject)))
        if len(batches) < len(lab.batches):
            few, many = lab.tokens(batches), lab.tokens(lab.batches)
            said.append(f"Measured on {few:,} of {many:,} tokens, {len(plan.every)} runs of each.")
        return Found(findings, said)


@final
class AblationPart(Ablation):
    """Of some streams or some blocks: no evidence for a verdict."""

    name: ClassVar[str] = "ablation_part"
    title: ClassVar[str] = "Loss without some streams"


class Plan:
    """Which streams are taken away where."""

    def __init__(self, probe: Ablation, streams: int, layers: int) -> None:
        self.count = streams
        self.chosen = list(probe.streams or range(self.count))
        self.spans = [probe.layers] if probe.layers else list(ranges(layers, probe.ranges))
        self.whole = (0, layers) if probe.layers in (None, (0, layers)) else None
        self.kinds: tuple[By, ...] = ("zero", "mean") if probe.mean else ("zero",)
        self.pairs = self.only = ()
        if probe.sets and self.whole is not None:
            pairs = itertools.combinations(self.chosen, 2) if self.count > 2 else ()
            self.pairs = tuple(Removal(streams=pair, stop=layers) for pair in pairs)
            self.only = tuple(
                Removal(streams=tuple(n for n in range(self.count) if n != one), stop=layers)
                for one in self.chosen
            )
        start, stop = probe.layers or (0, layers)
        self.kept = self.together = None
        if probe.keep is not None and len(set(probe.keep)) < self.count:
            gone = tuple(n for n in range(self.count) if n not in probe.keep)
            self.kept = Removal(streams=gone, start=start, stop=stop)
        if probe.streams is not None and 1 < len(self.chosen) < self.count:
            self.together = Removal(streams=tuple(self.chosen), start=start, stop=stop)
        wholes = [] if self.whole is None else [self.whole]
        singles = [
            self.single(kind, one, span)
            for kind in self.kinds
            for one in self.chosen
            for span in (*wholes, *self.spans)
        ]
        asked = [one for one in (self.kept, self.together) if one is not None]
        sets = [*self.pairs, *self.only, *asked]
        self.every = list(dict.fromkeys([*singles, *sets]))

    def single(self, kind: By, stream: int, span: tuple[int, int]) -> Removal:
        """One stream over one range."""
        return Removal(streams=(stream,), start=span[0], stop=span[1], by=kind)


class Taken:
    """What the losses of a plan say, as findings and in words."""

    def __init__(self, plan: Plan, losses: RowLosses, names: Sequence[str], seed: int) -> None:
        self.plan, self.losses, self.names, self.seed = plan, losses, names, seed
        self.place = {one: number for number, one in enumerate(plan.every)}
        self.changes = 100 * losses.changes()
        self.domains = 100 * losses.by_domain()

    def by_depth(self, kind: By) -> list[Finding]:
        """Streams × ranges, in all and in each domain."""
        plan = self.plan
        places = np.array(
            [[self.place[plan.single(kind, n, span)] for span in plan.spans] for n in plan.chosen]
        )
        every = [("", f"Loss with a stream {TOLD[kind]}, by range of blocks", self.changes)]
        every += [
            (f"_{number}", f"The same in domain {name}", self.domains[number])
            for number, name in enumerate(self.losses.names)
        ]
        return [
            Matrix(
                name=f"{kind}_by_depth{suffix}",
                title=title,
                unit=PERCENT,
                row_axis="stream",
                column_axis="first block of the range",
                rows=tuple(map(float, plan.chosen)),
                columns=tuple(float(start) for start, _ in plan.spans),
                values=table(changes[places]),
                centre=0.0,
                words=f"stream {{row}} {TOLD[kind]} from block {{column}} on: change of the loss",
            )
            for suffix, title, changes in every
        ]

    def over(self, kind: By, span: tuple[int, int]) -> list[Finding]:
        """Each stream over all blocks, or those that were asked for, with its interval and by
        domain.
        """
        plan, losses = self.plan, self.losses
        where, name = "everywhere", "{kind}_{one}"
        if plan.whole is None:
            where, name = f"in {span_words(span)}", f"{{kind}}_{{one}}_{span[0]}_{span[1]}"
        places = [self.place[plan.single(kind, one, span)] for one in plan.chosen]
        ends = 100 * losses.spans(self.seed, places)
        findings: list[Finding] = [
            Number(
                name=name.format(kind=kind, one=one),
                title=f"Loss with stream {self.names[one]} {TOLD[kind]} {where}",
                unit=PERCENT,
                value=value(self.changes[place]),
                low=value(low),
                high=value(high),
            )
            for one, place, (low, high) in zip(plan.chosen, places, ends, strict=True)
        ]
        domains = ", ".join(f"{n} = {name}" for n, name in enumerate(losses.names))
        return [
            *findings,
            Matrix(
                name=f"{kind}_by_domain",
                title=f"Loss with a stream {TOLD[kind]} {where}, by domain ({domains})",
                unit=PERCENT,
                row_axis="stream",
                column_axis="domain",
                rows=tuple(map(float, plan.chosen)),
                columns=tuple(float(n) for n in range(len(losses.names))),
                values=table(self.domains[:, places].T),
                centre=0.0,
                words=f"stream {{row}} {TOLD[kind]}, domain {{column}}: change of the loss",
            ),
        ]

    def pairs(self) -> Matrix:
        """Two streams at a time."""
        count = self.plan.count
        found = np.full((count, count), np.nan)
        for one in self.plan.pairs:
            first, second = one.streams
            found[first, second] = found[second, first] = self.changes[self.place[one]]
        places = tuple(map(float, range(count)))
        return Matrix(
            name="pairs",
            title="Loss without two streams",
            unit=PERCENT,
            row_axis="stream",
            column_axis="stream",
            rows=places,
            columns=places,
            values=table(found),
            centre=0.0,
            words="streams {row} and {column} set to zero: change of the loss",
        )

    def only(self) -> Curve:
        """All but one."""
        return Curve(
            name="only",
            title="Loss with one stream alone",
            unit=PERCENT,
            axis="stream",
            places=tuple(map(float, self.plan.chosen)),
            values=row([self.changes[self.place[one]] for one in self.plan.only]),
            words="stream {} alone: change of the loss",
        )

    def kept(self, removal: Removal) -> Number:
        """All but the chosen ones."""
        left = [name for n, name in enumerate(self.names) if n not in removal.streams]
        which = f"with {'streams' if len(left) > 1 else 'stream'} {listed(left)} alone"
        return self._of_set("kept", which, removal)

    def together(self, removal: Removal) -> Number:
        """The chosen ones at once."""
        which = f"without streams {listed(self.names[n] for n in removal.streams)} together"
        return self._of_set("together", which, removal)

    def _of_set(self, name: str, which: str, removal: Removal) -> Number:
        where = ""
        if self.plan.whole is None:
            where = f" in {span_words((removal.start, removal.stop))}"
        [(low, high)] = 100 * self.losses.spans(self.seed, [self.place[removal]])
        return Number(
            name=name,
            title=f"Loss {which}{where}",
            unit=PERCENT,
            value=value(self.changes[self.place[removal]]),
            low=value(low),
            high=value(high),
        )

    def words(self, pieces: int) -> list[str]:
        """Who costs most and least, and where streams are taken away."""
        where = "every site" if pieces > 1 else "every block"
        said = [f"Streams are taken away in front of {where}."]
        plan = self.plan
        if len(plan.chosen) < 2:
            return said
        span = plan.spans[0] if plan.whole is None else plan.whole
        at = "" if plan.whole is not None else f" in {span_words(span)}"
        costs = {
            one: self.changes[self.place[plan.single("zero", one, span)]] for one in plan.chosen
        }
        most, least = max(costs, key=costs.__getitem__), min(costs, key=costs.__getitem__)
        return [
            f"Without stream {self.names[most]}{at} the loss changes by {costs[most]:+.3g} %, the "
            f"most, and without stream {self.names[least]} by {costs[least]:+.3g} %, the least.",
            *said,
        ]
