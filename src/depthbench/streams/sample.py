"""Activations of every stream at some depths, on some tokens: as many as fit."""

from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from depthbench.config import Frozen
from depthbench.errors import DepthbenchError
from depthbench.probes.lab import Lab, Part, Task
from depthbench.probes.subject import Subject
from depthbench.probes.text import TextFacts
from depthbench.probes.walk import Walker
from depthbench.streams.labels import Kind, Labels, labels_of
from depthbench.streams.linear import Question
from depthbench.streams.sites import streams_in
from depthbench.study.words import counted

FEWEST = 256
"""Sampled tokens under which nothing can be said of vectors."""


def too_short(facts: TextFacts, left: int, asked: int | None = None) -> DepthbenchError:
    """What to do about a text that leaves ``left`` tokens; ``asked`` is how many were asked for."""
    short = (
        f"the text ({facts.origin}) has {left} tokens that can be looked at, of "
        f"{counted(facts.documents, 'document')} of up to {facts.length} tokens; {FEWEST} are "
        "needed"
    )
    # a text that ended before the tokens that were asked for has no more of them
    if asked is not None and facts.tokens >= asked - facts.documents:
        return DepthbenchError(f"{short}. tokens = {asked}: ask for more with --tokens")
    # documents that were cut have more to read
    cut = facts.tokens >= facts.documents * facts.length
    more = ", or read more of each with a larger --length" if cut else ""
    return DepthbenchError(f"{short}. Give more documents with --data{more}")


class SampleConfig(Frozen):
    """How many activations are looked at."""

    tokens: int = Field(default=4096, ge=FEWEST)
    """Sampled tokens, about: every k-th of each document, with the least k that comes to so few."""
    depths: int = Field(default=7, ge=2)
    """Depths, or all if the model has fewer: evenly spaced, the first and the last among them."""
    megabytes: float = Field(default=512.0, gt=0)
    """Of the activations of one depth, in float32."""
    classes: int = Field(default=16, ge=2)
    """Of a label, at most; rare ones are one together."""


class Sampled(Task):
    """All streams at one depth on every ``every``-th predicted token, ``(s, d, n)``."""

    name: ClassVar[str] = "stream-sample"
    depth: int
    every: int

    @torch.no_grad()
    def measure(self, walker: Walker, subject: Subject) -> Part:
        session = walker.session
        z = streams_in(session, walker.states[self.depth], subject.facts.streams)
        found = []
        for row, predicted in enumerate(session.batch.predicted):
            places = predicted.nonzero()[:, 0][:: self.every]
            found.append(z[row, places])
        return {"z": torch.cat(found).float().movedim(0, -1).cpu().numpy()}


class Sample:
    """Labels and activations of one text; activations are fetched depth by depth."""

    def __init__(self, lab: Lab, config: SampleConfig) -> None:
        """Raises `DepthbenchError` where too few tokens fit or are there."""
        facts = lab.subject.facts
        self.lab, self.config = lab, config
        predicted = lab.text.facts.predicted
        each = 4 * facts.streams * facts.width
        fitting = int(config.megabytes * 2**20 / each)
        most = min(config.tokens, fitting)
        if most < FEWEST:
            raise DepthbenchError(
                f"megabytes = {config.megabytes:g} holds {fitting} tokens of {facts.streams} "
                f"streams of width {facts.width} ({each:,} bytes a token); {FEWEST} are "
                f"needed. Allow at least {FEWEST * each / 2**20:.2g} MB"
            )
        # a text that is little longer than what is asked for is not halved to less than is needed
        self.every = max(1, min(-(-predicted // most), predicted // FEWEST))
        self.labels: Labels = labels_of(lab.text, self.every, config.classes)
        if self.labels.count < FEWEST:
            raise too_short(lab.text.facts, self.labels.count)
        steps = min(config.depths - 1, lab.layers)
        self.depths = [round(number * lab.layers / steps) for number in range(steps + 1)]

    def question(self, kind: Kind, seed: int) -> Question:
        """What is asked of a vector of each sampled token: its class of ``kind``."""
        labels = self.labels
        return Question(labels.classes[kind], labels.tested(kind), labels.documents, seed)

    @property
    def bytes(self) -> int:
        """Of the activations of one depth."""
        facts = self.lab.subject.facts
        return 4 * facts.streams * facts.width * self.labels.count

    @property
    def words(self) -> str:
        """What was sampled."""
        depths = ", ".join(map(str, self.depths))
        return (
            f"Sampled: {self.labels.count:,} tokens (one in {self.every} of each document) at "
            f"depths {depths}; {self.bytes / 2**20:.3g} MB at a time."
        )

    def at(self, depth: int) -> NDArray[np.float32]:
        """All streams at ``depth``: ``(s, n, d)``."""
        found = self.lab.joined(Sampled(depth=depth, every=self.every))["z"]
        return np.ascontiguousarray(np.swapaxes(found, 1, 2))
