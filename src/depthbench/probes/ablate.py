"""Blocks left out, run twice, or cut off: what the loss says."""

from collections.abc import Sequence
from typing import ClassVar, final

import numpy as np
from pydantic import Field

from depthbench.probes.lab import Lab
from depthbench.probes.measures import Loss
from depthbench.probes.probe import Found, Probe
from depthbench.probes.program import Program, leave, only, repeat, skip, span_again
from depthbench.probes.result import Curve, Finding, Number, curve, matrix
from depthbench.probes.subject import Part

UNIT = "nats/token"
OTHER: dict[Part, Part] = {"attention": "feedforward", "feedforward": "attention"}


def losses(loss: Loss) -> list[Finding]:
    """Of the model as it is, in both units."""
    return [
        Number(name="loss", title="Loss of the model as it is", unit=UNIT, value=loss.plain),
        Number(
            name="bits_per_byte",
            title="Loss of the model as it is",
            unit="bits/byte",
            value=loss.bits_per_byte,
        ),
    ]


def changes(lab: Lab, name: str, title: str, programs: Sequence[Program], words: str) -> Curve:
    """Change of the loss by block, under one program each."""
    values = Loss(lab, programs).changes()
    return curve(name, title, values, unit=UNIT, words=words)


@final
class Prune(Probe):
    """No options."""

    name: ClassVar[str] = "prune"
    title: ClassVar[str] = "Loss when one block is left out"
    definition: ClassVar[str] = (
        "loss(without block s) - loss, also for its attention and its feed-forward alone"
    )
    blind: ClassVar[str] = (
        "A skip makes states that the model never met, and two blocks that do the same are each "
        "dispensable while both are not."
    )
    reading: ClassVar[str] = (
        "Near 0: this block alone can go on this text. Compare attention and feed-forward: often "
        "one carries the block. The first blocks usually cost most."
    )
    source: ClassVar[str] = "arXiv 2403.03853"

    def look(self, lab: Lab) -> Found:
        layers = lab.layers
        whole = Loss(lab, [skip(layers, block) for block in range(layers)])
        words = "{} left out: change of the loss"
        findings: list[Finding] = [
            curve("block", self.title, whole.changes(), unit=UNIT, words="block " + words)
        ]
        if lab.subject.whole is None:
            findings += [self._without(lab, part, words) for part in OTHER]
        said = [] if lab.subject.whole is None else [f"Blocks as a whole: {lab.subject.whole}."]
        return Found([*findings, *losses(whole)], said)

    def _without(self, lab: Lab, part: Part, words: str) -> Curve:
        """With every block's other branch alone."""
        layers, named = lab.layers, part.replace("feedforward", "feed-forward")
        programs = [only(layers, block, OTHER[part]) for block in range(layers)]
        title = f"Loss when one {named} is left out"
        return changes(lab, part, title, programs, f"{named} of block {words}")


@final
class Repeat(Probe):
    """No options."""

    name: ClassVar[str] = "repeat"
    title: ClassVar[str] = "Loss when a block runs twice"
    definition: ClassVar[str] = "loss(block s twice in a row) - loss"
    blind: ClassVar[str] = "A block that does nothing and one that has finished both show 0."
    reading: ClassVar[str] = (
        "Near 0: a second pass changes nothing that the head reads. Growth: the block makes a "
        "step that may be made once. A fall is rare and worth a look."
    )
    source: ClassVar[str] = "arXiv 2407.09298"

    def look(self, lab: Lab) -> Found:
        programs = [repeat(lab.layers, block) for block in range(lab.layers)]
        words = "block {} twice: change of the loss"
        return Found([changes(lab, "block", self.title, programs, words)])


@final
class Recompute(Probe):
    """How long a span may be is an option."""

    name: ClassVar[str] = "recompute"
    title: ClassVar[str] = "Loss when a span of blocks runs twice"
    definition: ClassVar[str] = "loss(blocks a … b twice, one after the other) - loss"
    blind: ClassVar[str] = (
        "A gain without training is rare; no gain does not say that looping would not help a "
        "model that is trained to loop."
    )
    reading: ClassVar[str] = (
        "Below 0: the span gains from a second pass, as looped models do. Above 0: it is bound to "
        "run once."
    )
    source: ClassVar[str] = "arXiv 2502.05171"
    longest: int | None = Field(default=None, ge=2)
    """Blocks of a span; None = a quarter of the model, 2 to 4."""

    def look(self, lab: Lab) -> Found:
        layers = lab.layers
        longest = min(self.longest or min(4, max(2, layers // 4)), layers)
        spans = [
            (start, stop)
            for start in range(layers)
            for stop in range(start + 2, min(start + longest, layers) + 1)
        ]
        if not spans:
            return Found([], ["One block has no span of two."])
        values = Loss(lab, [span_again(layers, *span) for span in spans]).changes()
        found = np.full((layers, layers), np.nan)
        for (start, stop), change in zip(spans, values, strict=True):
            found[start, stop - 1] = change
        words = "blocks {row} to {column} twice: change of the loss"
        axes = ("first block", "last block")
        best = spans[int(np.argmin(values))]
        said = f"The best span to run twice is blocks {best[0]} to {best[1] - 1}: "
        said += f"{values.min():+.4f} nats per token."
        return Found(
            [matrix("span", self.title, found, axes, unit=UNIT, centre=0.0, words=words)], [said]
        )


@final
class Exit(Probe):
    """No options."""

    name: ClassVar[str] = "exit"
    title: ClassVar[str] = "Loss when the model stops early"
    definition: ClassVar[str] = "loss of final norm and head on the readout at depth l"
    blind: ClassVar[str] = (
        "Head and final norm are made for the last depth: an early state may hold what they "
        "cannot read."
    )
    reading: ClassVar[str] = (
        "Where the curve becomes flat, later blocks change the answer little. It says where a "
        "head could be trained for early exit, not that exit is free."
    )
    source: ClassVar[str] = "arXiv 2207.07061"

    def look(self, lab: Lab) -> Found:
        programs = [leave(lab.layers, depth) for depth in range(lab.layers + 1)]
        loss = Loss(lab, programs)
        words = "stopped at depth {}: loss"
        found = curve("loss", self.title, loss.each, "depth", unit=UNIT, words=words)
        return Found([found, *losses(loss)])
