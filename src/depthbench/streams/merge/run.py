"""A merge from checkpoint to checkpoint: made, recalibrated, measured, written."""

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from depthbench.config import digest_of
from depthbench.errors import DepthbenchError
from depthbench.files import make_folder, write_atomic
from depthbench.machine import describe
from depthbench.nn.model import Model
from depthbench.probes.own import OwnSubject, TrialForm
from depthbench.probes.subject import SubjectFacts
from depthbench.streams import FOLDER
from depthbench.streams.merge.gains import recalibrate
from depthbench.streams.merge.measure import measured
from depthbench.streams.merge.merged import FORMAT, Merged
from depthbench.streams.merge.plan import Alike, kept_of
from depthbench.streams.merge.result import NAME, result_of
from depthbench.streams.merge.way import Merging, Way
from depthbench.streams.retrain import Bench
from depthbench.streams.tune import Hear
from depthbench.train.checkpoint import remove

FILE = "merge.json"
GOING = "going"
"""As long as it is there, the merge is not finished."""
WRITTEN = frozenset((GOING, FILE, FOLDER, "config.json", "checkpoints"))
"""What a merge puts into its folder."""


def merge(
    bench: Bench,
    way: Way,
    into: Mapping[int, int],
    out: Path,
    *,
    alike: Alike | None = None,
    samples: int = 256,
    hear: Hear = lambda step, loss: None,
    say: Callable[[str], None] = lambda _: None,
) -> Merged:
    """Merge streams of a trial's model ``into`` others, and write it to ``out``.

    A killed merge goes on from ``out`` when it is asked for again; what it cannot go on from is
    named through ``say``. Raises `DepthbenchError` where
    these streams cannot be merged so, and if the folder cannot be written.
    """
    subject, started = bench.subject, time.perf_counter()
    if not isinstance(subject.form, TrialForm):
        raise DepthbenchError(
            f"{subject.facts.source}: only a trial of this package can be merged and trained on. "
            "Name the folder of a run or a trial"
        )
    alike = alike or Alike.measured(bench.lab())
    key = digest_of(
        [FORMAT, subject.facts.weights_hash, way.name, way.resolved(), sorted(into.items())]
    )
    notes: list[str] = []

    def note(words: str) -> None:
        notes.append(words)
        say(words)

    merging = Merging(bench, alike, into, out / GOING, key, hear, note)
    model, losses = way.merge(merging)
    gains = None
    if way.tune is not None:
        gains = recalibrate(subject.model, model, bench.course, samples, way.seed)
    before, after = measured([subject.model, model], bench.text, bench.course)
    fresh = _write(model, subject, out)
    found = Merged(
        way=way,
        into=dict(into),
        kept=kept_of(subject.facts.streams, into),
        before=before,
        after=after,
        training=tuple(losses),
        gains=gains,
        source=subject.facts,
        weights_hash=fresh.weights_hash,
        text=bench.text.facts,
        machine=describe(subject.device, subject.dtype),
        notes=tuple(notes),
    )
    result = result_of(found, fresh, time.perf_counter() - started)
    write_atomic(out / FOLDER / f"{NAME}.json", result.model_dump_json(indent=1) + "\n")
    write_atomic(out / FILE, found.model_dump_json(indent=1) + "\n")
    shutil.rmtree(out / GOING, ignore_errors=True)
    return found


def _write(model: Model, subject: OwnSubject, out: Path) -> SubjectFacts:
    fresh = OwnSubject(model, str(out), subject.facts.notes, subject.form)
    # from here on the folder is no empty one, and this says that it is not finished
    make_folder(out / GOING)
    # of a merge that was killed when it had written: it may have been another one
    remove(out / "checkpoints")
    fresh.write(out)
    return fresh.facts


def check_free(out: Path) -> None:
    """Raise `DepthbenchError` unless ``out`` is new, empty, or holds a merge that was stopped."""
    if not out.exists():
        return
    # a killed write leaves a hidden file
    names = {one.name for one in out.iterdir()} if out.is_dir() else {out.name}
    others = {one for one in names - WRITTEN if not one.startswith(".")}
    if names and (GOING not in names or others):
        raise DepthbenchError(f"{out} exists and is not empty. Name a new folder with --out")
