"""What a merge changed, line by line, and as a result that pages and JSON show like any other."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from depthbench.probes.result import Finding, Number, ProbeResult, without_sign_of_zero
from depthbench.probes.subject import SubjectFacts
from depthbench.streams.merge.measure import ROUNDS, Measured
from depthbench.streams.merge.merged import Merged

NAME = "merge"
"""Of the result, beside those of probes."""
BLIND = (
    "The losses differ by the training too: a model that was not finished gets better by that "
    "alone. The control of ablate --retrain says by how much. Speed is of this machine and of what "
    "else ran on it."
)


class Side(NamedTuple):
    """One measured value; the ends over rounds where it was timed."""

    value: float
    ends: tuple[float, float] | None = None


class Line(NamedTuple):
    """One measure, before and after."""

    key: str
    title: str
    unit: str
    form: str
    before: Side
    after: Side

    @property
    def change(self) -> float:
        """As a share of what it was."""
        return self.after.value / self.before.value - 1

    def shown(self, side: Side) -> str:
        """The value, with its ends in brackets."""
        text = f"{side.value:{self.form}}"
        if side.ends is None:
            return text
        return f"{text} ({side.ends[0]:{self.form}} to {side.ends[1]:{self.form}})"

    @property
    def shown_change(self) -> str:
        """In %."""
        return without_sign_of_zero(f"{self.change:+.2%}")


def lines_of(merged: Merged) -> list[Line]:
    """Streams, loss by domain, size, speed and memory."""
    both = zip(_measures(merged.before), _measures(merged.after), strict=True)
    return [Line(*told, before, after) for (told, before), (_, after) in both]


def _measures(one: Measured) -> Iterator[tuple[tuple[str, str, str, str], Side]]:
    yield ("streams", "streams", "streams", "d"), Side(one.streams)
    yield ("loss", "loss", "nats/token", ".4f"), Side(one.loss)
    for name, loss in one.loss_by_domain.items():
        yield (f"loss.{name}", f"loss, {name}", "nats/token", ".4f"), Side(loss)
    yield ("parameters", "parameters", "parameters", ",d"), Side(one.parameters)
    for key, title, rate, ends in (
        ("reads", "forward", one.reads_per_second, one.reads_ends),
        ("trains", "training", one.trains_per_second, one.trains_ends),
    ):
        yield (key, f"{title} passes", "tokens/s", ",.0f"), Side(rate, ends)
    yield ("state", "state between blocks", "bytes/token", ",d"), Side(one.state_bytes)
    yield ("kept", "kept for backward", "bytes/token", ",d"), Side(one.kept_bytes)


def result_of(merged: Merged, facts: SubjectFacts, seconds: float) -> ProbeResult:
    """A result about the merged model, whose ``facts`` are given."""
    findings: list[Finding] = []
    for line in lines_of(merged):
        for when, side in (("before", line.before), ("after", line.after)):
            low, high = side.ends or (None, None)
            findings.append(
                Number(
                    name=f"{line.key}_{when}",
                    title=f"{line.title[0].upper()}{line.title[1:]}, {when}",
                    unit=line.unit,
                    value=float(side.value),
                    low=low,
                    high=high,
                    span="" if side.ends is None else f"ends of {ROUNDS} rounds",
                )
            )
    return ProbeResult(
        probe=NAME,
        title="Merged streams, before and after",
        definition=f"{merged.way.title}: {merged.way.definition}",
        blind=BLIND,
        source="",
        options={"way": merged.way.name, "into": merged.into, **merged.way.resolved()},
        findings=tuple(findings),
        words=words_of(merged),
        subject=facts,
        text=merged.text,
        seed=merged.way.seed,
        machine=merged.machine,
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=seconds,
    )


def words_of(merged: Merged) -> tuple[str, ...]:
    """What went where, what that changed, and what became of the norm gains."""
    pairs = ", ".join(f"{one} into {other}" for one, other in merged.into.items())
    of = {line.key: line for line in lines_of(merged)}
    said = [
        f"Merged by {merged.way.title}: streams {pairs}.",
        f"The loss changes by {of['loss'].shown_change}, tokens/s of training by "
        f"{of['trains'].shown_change}, what is kept for backward by {of['kept'].shown_change}.",
    ]
    if merged.gains is not None:
        done = "kept" if merged.gains.kept else "put back, for the loss grew"
        said.append(
            f"Norm gains from {merged.gains.samples} sequences: loss "
            f"{merged.gains.loss_before:.4f} to {merged.gains.loss_after:.4f} on others; {done}."
        )
    return (*said, *merged.notes)
