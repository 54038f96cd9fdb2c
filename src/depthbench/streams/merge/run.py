"""A merge from checkpoint to checkpoint: made, recalibrated, measured, written."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from depthbench.config import Frozen, digest_of
from depthbench.errors import DepthbenchError
from depthbench.files import write_atomic
from depthbench.machine import describe
from depthbench.nn.model import Model
from depthbench.probes.own import OwnSubject, TrialForm
from depthbench.probes.subject import SubjectFacts
from depthbench.probes.text import TextFacts
from depthbench.streams.merge.gains import Recalibration, recalibrate
from depthbench.streams.merge.measure import Measured, measured
from depthbench.streams.merge.plan import Alike, kept_of
from depthbench.streams.merge.way import Merging, Way
from depthbench.streams.retrain import Bench
from depthbench.streams.tune import Hear
from depthbench.study.store import Machine

FILE = "merge.json"
GOING = "going"
FORMAT = 1


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


def merge(
    bench: Bench,
    way: Way,
    into: Mapping[int, int],
    out: Path,
    *,
    alike: Alike | None = None,
    samples: int = 256,
    hear: Hear = lambda step, loss: None,
) -> Merged:
    """Merge streams of a trial's model ``into`` others, and write it to ``out``.

    A killed merge goes on from ``out`` when it is asked for again. Raises `DepthbenchError` where
    these streams cannot be merged so, and if the folder cannot be written.
    """
    subject = bench.subject
    if not isinstance(subject.form, TrialForm):
        raise DepthbenchError(
            f"{subject.facts.source}: only a trial of this package can be merged and trained on. "
            "Name the folder of a run or a trial"
        )
    alike = alike or Alike.measured(bench.lab())
    key = digest_of(
        [FORMAT, subject.facts.weights_hash, way.name, way.resolved(), sorted(into.items())]
    )
    merging = Merging(bench, alike, into, out / GOING, key, hear)
    model, losses = way.merge(merging)
    gains = None
    if way.tune is not None:
        gains = recalibrate(subject.model, model, bench.course, samples, way.seed)
    before, after = measured([subject.model, model], bench.text, bench.course)
    found = Merged(
        way=way,
        into=dict(into),
        kept=kept_of(subject.facts.streams, into),
        before=before,
        after=after,
        training=tuple(losses),
        gains=gains,
        source=subject.facts,
        weights_hash=_write(model, subject, out),
        text=bench.text.facts,
        machine=describe(subject.device, subject.dtype),
    )
    write_atomic(out / FILE, found.model_dump_json(indent=1) + "\n")
    shutil.rmtree(out / GOING, ignore_errors=True)
    return found


def _write(model: Model, subject: OwnSubject, out: Path) -> str:
    fresh = OwnSubject(model, str(out), subject.facts.notes, subject.form)
    fresh.write(out)
    return fresh.facts.weights_hash


def check_free(out: Path) -> None:
    """Raise `DepthbenchError` unless ``out`` is new, empty, or holds a merge that was stopped."""
    if out.exists() and (not out.is_dir() or {one.name for one in out.iterdir()} - {GOING}):
        raise DepthbenchError(f"{out} exists and is not empty. Name a new folder with --out")
