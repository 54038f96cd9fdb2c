"""Re-trained ablation: a stream is taken away, and the model is trained on without it."""

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from depthbench.config import Frozen, digest_of
from depthbench.errors import DepthbenchError
from depthbench.files import write_atomic
from depthbench.probes.lab import Alone, Lab
from depthbench.probes.own import OwnSubject
from depthbench.probes.text import Text
from depthbench.probes.walk import Limits
from depthbench.processes import pool_of
from depthbench.streams.ablation import Removals
from depthbench.streams.sites import Change, Removal, Removing
from depthbench.streams.tune import Course, Pupil, TuneConfig, changed_loss, lent, tune
from depthbench.train.checkpoint import remove

FORMAT = 1
Hear = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Bench:
    """A model of ours, the text that it is measured on, and what it is trained on."""

    subject: OwnSubject
    text: Text
    course: Course

    @property
    def about(self) -> str:
        """What names the model, the text and the recipe."""
        rows = [list(batch.documents) for batch in self.text.batches]
        facts, config = self.subject.facts, self.course.config
        parts = [facts.weights_hash, self.text.facts.hash, rows, config.id]
        return digest_of([*parts, str(self.subject.dtype), str(self.course.dtype)])

    def lab(self) -> Lab:
        """To measure the model in this process."""
        return Lab(self.subject, self.text, Alone(self.subject, self.text, Limits()))


Make = Callable[[], Bench]
"""Loads a bench anew: a function of a module or a partial of one, for it goes to processes."""


class Row(Frozen):
    """One model that was trained on, with or without some streams, and its losses."""

    removal: Removal | None
    """None = the control, which keeps them all."""
    seed: int
    nats: tuple[float, ...]
    """Of each row of text, summed over its tokens."""
    tokens: tuple[float, ...]
    first: float
    """Training loss of the first step."""
    last: float
    """Training loss, mean of the last tenth of the steps."""
    notes: tuple[str, ...] = ()
    """What a killed training could not go on from."""


class Unchanged(Change):
    """Nothing is done to the streams."""

    def before(self, z: Tensor, place: int) -> Tensor:
        return z


def retrain(
    make: Make,
    removals: Sequence[Removal],
    seeds: Sequence[int],
    config: TuneConfig,
    folder: Path | None = None,
    *,
    about: str,
    batches: int,
    workers: int = 1,
    hear: Hear = lambda *_: None,
) -> list[Row]:
    """Train on without each removal, and with all streams, once with each of ``seeds``.

    Seeds draw other batches. Losses are of the first ``batches`` batches of text, with the streams
    still removed. What is done is kept in ``folder`` and not done again for the same ``about``,
    which names the model, the text and the recipe. Raises `DepthbenchError` if a training fails.
    """
    every: list[tuple[Removal | None, int]] = [
        (one, seed) for seed in seeds for one in (None, *removals)
    ]
    jobs = [_Job(one, seed, config, batches, folder, about) for one, seed in every]
    found: dict[int, Row] = {}
    for number, job in enumerate(jobs):
        if (row := job.kept()) is not None:
            found[number] = row
    missing = [number for number in range(len(jobs)) if number not in found]
    hear("re-training", len(found), len(jobs))
    for place, row in _each(make, [jobs[number] for number in missing], workers):
        found[missing[place]] = row
        hear("re-training", len(found), len(jobs))
    return [found[number] for number in range(len(jobs))]


@dataclass(frozen=True)
class _Job:
    removal: Removal | None
    seed: int
    config: TuneConfig
    batches: int
    folder: Path | None
    about: str

    @property
    def key(self) -> str:
        removal = None if self.removal is None else self.removal.resolved()
        own = [removal, self.seed, self.config.resolved(), self.batches]
        return digest_of([FORMAT, self.about, *own])

    @property
    def path(self) -> Path | None:
        return None if self.folder is None else self.folder / f"{self.key}.json"

    def kept(self) -> Row | None:
        if self.path is None or not self.path.exists():
            return None
        try:
            return Row.parse(json.loads(self.path.read_text(encoding="utf-8")), str(self.path))
        except (ValueError, DepthbenchError):
            return None

    def run(self, bench: Bench) -> Row:
        """Train and measure; the bench's own model is left as it was."""
        subject, model = bench.subject, bench.subject.model
        change = Unchanged() if self.removal is None else Removing([self.removal], subject)
        place = None if self.folder is None else self.folder / "going" / self.key
        notes: list[str] = []
        with lent(model):
            losses = tune(
                Pupil(model),
                bench.course,
                self.config,
                lambda batch, step: changed_loss(subject, change, batch),
                seed=self.seed,
                key=self.key,
                folder=place,
                say=notes.append,
            )
            row = self._measured(bench, losses, notes)
        if self.path is not None:
            write_atomic(self.path, row.model_dump_json() + "\n")
        if place is not None:
            remove(place)
        return row

    def _measured(self, bench: Bench, losses: Sequence[float], notes: Sequence[str]) -> Row:
        removals = () if self.removal is None else (self.removal,)
        part = bench.lab().joined(Removals(removals=removals), range(self.batches))
        tail = losses[-max(1, len(losses) // 10) :]
        return Row(
            removal=self.removal,
            seed=self.seed,
            nats=tuple(part["nats"][-1].tolist()),
            tokens=tuple(part["tokens"].tolist()),
            first=losses[0],
            last=sum(tail) / len(tail),
            notes=tuple(notes),
        )


def _each(make: Make, jobs: Sequence[_Job], workers: int) -> Iterator[tuple[int, Row]]:
    """Number of a job and its row, as they are ready."""
    if not jobs:
        return
    if workers == 1:
        bench = make()
        for number, job in enumerate(jobs):
            yield number, job.run(bench)
        return
    with pool_of(workers, _begin, make) as pool:
        going = {pool.submit(_run, job): number for number, job in enumerate(jobs)}
        try:
            for future in as_completed(going):
                yield going[future], future.result()
        except BrokenProcessPool:
            raise DepthbenchError(
                "a process that trains ended without a word, perhaps for want of memory. What is "
                "done is kept: run the same command again with fewer --workers"
            ) from None


_make: list[Make] = []


def _begin(make: Make) -> None:
    # it loads at its first job: what goes wrong then is that job's error and told as such
    _make.append(functools.cache(make))


def _run(job: _Job) -> Row:
    return job.run(_make[0]())
