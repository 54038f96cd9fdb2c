"""What a probe is: a question about a subject, answered by measurements of a lab."""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar

from depthbench.config import Frozen, Seed
from depthbench.errors import DepthbenchError
from depthbench.machine import describe
from depthbench.probes.lab import Lab
from depthbench.probes.result import Finding, ProbeResult
from depthbench.probes.subject import Subject


class LackingError(DepthbenchError):
    """A text that is too short for one probe; others may still run."""


@dataclass(frozen=True)
class Found:
    """Findings, and what they say."""

    findings: Sequence[Finding]
    words: Sequence[str] = ()


class Probe(Frozen, ABC):
    """A probe with its options; one file each, and one line in the registry."""

    name: ClassVar[str]
    title: ClassVar[str]
    definition: ClassVar[str]
    blind: ClassVar[str]
    """What it cannot see."""
    reading: ClassVar[str]
    """How to read its figure: what high, low and usual values say."""
    source: ClassVar[str] = ""
    """Paper that it is from."""

    seed: Seed = 0
    """Of whatever it draws."""

    @abstractmethod
    def look(self, lab: Lab) -> Found:
        """Measure and conclude."""

    def refusal(self, subject: Subject) -> str | None:
        """Why it says nothing about this subject; None where it does."""
        return None

    def run(self, lab: Lab) -> ProbeResult:
        """`look`, with everything that a result must say."""
        started = time.perf_counter()
        found = self.look(lab)
        return ProbeResult(
            probe=self.name,
            title=self.title,
            definition=self.definition,
            blind=self.blind,
            source=self.source,
            options=self.resolved(),
            findings=tuple(found.findings),
            words=tuple(found.words),
            subject=lab.subject.facts,
            text=lab.text.facts,
            seed=self.seed,
            machine=describe(lab.subject.device, lab.subject.dtype),
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=time.perf_counter() - started,
        )


class StreamsProbe(Probe, ABC):
    """A probe of models with several residual streams."""

    def refusal(self, subject: Subject) -> str | None:
        return "the model has one residual stream" if subject.facts.streams == 1 else None
