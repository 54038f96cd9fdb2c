"""What a merge was, and what it changed."""

from depthbench.config import Frozen
from depthbench.probes.subject import SubjectFacts
from depthbench.probes.text import TextFacts
from depthbench.streams.merge.gains import Recalibration
from depthbench.streams.merge.measure import Measured
from depthbench.streams.merge.way import Way
from depthbench.study.store import Machine

FORMAT = 2


class Merged(Frozen):
    """What was merged and how, and what it cost and gained."""

    format: int = FORMAT
    way: Way
    into: dict[int, int]
    """Streams that went, and where to; by their numbers before."""
    kept: tuple[int, ...]
    before: Measured
    after: Measured
    training: tuple[float, ...]
    """Loss of each step, nats per token."""
    gains: Recalibration | None
    """None where there was nothing to recalibrate."""
    source: SubjectFacts
    weights_hash: str
    """Of the model that was written."""
    text: TextFacts
    machine: Machine
    notes: tuple[str, ...] = ()
    """What a killed merge could not go on from."""


class MergedInto(Merged):
    """What ``streams merge --json`` prints."""

    folder: str
    """Where the model with fewer streams lies."""
