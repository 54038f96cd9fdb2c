"""Where probes get their measurements: tasks on every batch, in processes, kept on disk."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

from depthbench.config import Frozen, digest_of
from depthbench.files import save_atomic
from depthbench.probes.subject import Subject
from depthbench.probes.text import Text
from depthbench.probes.walk import Limits, Walker

Part = dict[str, NDArray[Any]]
"""What a task measured: sums and counts, or values by row along the last axis."""
Progress = Callable[[str, int, int], None]
"""Hears the name of a task, its jobs that are done, and all of them."""

WORK = 2**42
"""Tokens times programs times parameters that a probe runs: minutes of two cores. A text that is
shorter takes less, and `FEWEST_TOKENS` may take more."""
FEWEST_TOKENS = 256
"""However many programs there are: fewer tokens say nothing."""
SPAN = 4
"""Batches that one worker adds up; fixed, so that sums do not depend on the workers."""
SMALL = 2**20
"""Bytes of a part that is kept in memory, for probes that ask for the same."""
MOST_KEPT = 2**26
"""Bytes of a part that is kept on disk; larger ones are made again."""
FORMAT = 1
"""Of the parts on disk: raise it when a task's numbers change meaning."""


class Task(Frozen, ABC):
    """A measurement on one batch. It depends on its fields, the subject and the batch alone."""

    name: ClassVar[str]

    @abstractmethod
    def measure(self, walker: Walker, subject: Subject) -> Part:
        """Numbers of one batch."""

    def key(self) -> str:
        """What names its parts on disk."""
        return digest_of([FORMAT, self.name, self.resolved()])


Job = tuple[Task, tuple[int, ...]]
"""A task, and the batches over which its numbers are added up."""


class Crew(ABC):
    """Who measures."""

    @abstractmethod
    def each(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Part]]:
        """Number of a job and what it measured, as they are ready."""


class Alone(Crew):
    """This process, one batch after another."""

    def __init__(self, subject: Subject, text: Text, limits: Limits) -> None:
        self.subject, self.text, self.limits = subject, text, limits
        self._walkers: dict[int, Walker] = {}

    def each(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Part]]:
        for number, job in enumerate(jobs):
            yield number, self.measure(*job)

    def measure(self, task: Task, batches: Sequence[int]) -> Part:
        """One task on each of the batches in turn, and the sums of what it found."""
        total = task.measure(self._walker(batches[0]), self.subject)
        for number in batches[1:]:
            part = task.measure(self._walker(number), self.subject)
            total = {name: total[name] + part[name] for name in total}
        return total

    def _walker(self, number: int) -> Walker:
        """Of a batch; those of earlier ones are kept with their states while there is room."""
        if number not in self._walkers:
            held = sum(walker.held for walker in self._walkers.values())
            if held > self.limits.held_megabytes * 2**20:
                self._walkers.clear()
            session = self.subject.session(self.text.batches[number])
            self._walkers[number] = Walker(session, self.limits)
        return self._walkers[number]


class Lab:
    """A subject, a text, and what has been measured so far."""

    def __init__(
        self,
        subject: Subject,
        text: Text,
        crew: Crew,
        folder: Path | None = None,
        progress: Progress = lambda *_: None,
    ) -> None:
        """Parts are kept in ``folder``, if there is one, and found there again."""
        self.subject, self.text, self.crew, self.progress = subject, text, crew, progress
        self.folder = folder
        self._small: dict[tuple[str, tuple[int, ...]], Part] = {}

    @property
    def layers(self) -> int:
        """Blocks of the subject."""
        return self.subject.layers

    @property
    def batches(self) -> range:
        """Numbers of all batches."""
        return range(len(self.text.batches))

    def leading(self, programs: int, least: int = 1) -> range:
        """The first batches, as many as `WORK` allows for so many programs.

        At least `FEWEST_TOKENS` and ``least`` batches, where the text has them.
        """
        tokens, most = 0, WORK // self.subject.facts.parameters
        for number, batch in enumerate(self.text.batches):
            enough = tokens >= FEWEST_TOKENS and number >= least
            size = int(batch.valid.sum())
            if enough and programs * (tokens + size) > most:
                return range(number)
            tokens += size
        return self.batches

    def tokens(self, batches: Sequence[int]) -> int:
        """Tokens of text in ``batches``."""
        return sum(int(self.text.batches[number].valid.sum()) for number in batches)

    def joined(self, task: Task, batches: Sequence[int] | None = None) -> Part:
        """What ``task`` finds on each batch, one after another along the last axis: by row."""
        numbers = self.batches if batches is None else batches
        return self.joined_each([task], numbers)[0]

    def joined_each(self, tasks: Sequence[Task], batches: Sequence[int]) -> list[Part]:
        """`joined` of several tasks, which workers share."""
        jobs: list[Job] = [(task, (number,)) for task in tasks for number in batches]
        parts = list(self._parts(jobs))
        each = [parts[n : n + len(batches)] for n in range(0, len(parts), len(batches))]
        return [
            {name: np.concatenate([part[name] for part in one], axis=-1) for name in one[0]}
            for one in each
        ]

    def summed(self, task: Task, batches: Sequence[int] | None = None) -> Part:
        """Sums over batches, added in their order whoever measured them."""
        numbers = list(self.batches if batches is None else batches)
        starts = range(0, len(numbers), SPAN)
        jobs: list[Job] = [(task, tuple(numbers[n : n + SPAN])) for n in starts]
        total: Part = {}
        for part in self._parts(jobs):
            total = {name: total[name] + part[name] for name in total} if total else part
        return total

    def _parts(self, jobs: Sequence[Job]) -> Iterator[Part]:
        """In the order of ``jobs``; of those that come early, the ones not yet due are held."""
        places = [(task.key(), span) for task, span in jobs]
        missing = [number for number, place in enumerate(places) if not self._known(*place)]
        name, done = jobs[0][0].name, len(jobs) - len(missing)
        self.progress(name, done, len(jobs))
        coming = self.crew.each([jobs[number] for number in missing])
        early, unknown = dict[int, Part](), set(missing)
        for number, place in enumerate(places):
            if number not in unknown:
                yield self._read(*place)
                continue
            while number not in early:
                come, part = next(coming)
                early[missing[come]] = self._kept(*places[missing[come]], part)
                done += 1
                self.progress(name, done, len(jobs))
            yield early.pop(number)

    def _known(self, key: str, span: tuple[int, ...]) -> bool:
        path = self._path(key, span)
        return (key, span) in self._small or (path is not None and _whole(path))

    def _read(self, key: str, span: tuple[int, ...]) -> Part:
        if (key, span) in self._small:
            return self._small[key, span]
        path = self._path(key, span)
        assert path is not None
        return load_file(path)

    def _kept(self, key: str, span: tuple[int, ...], part: Part) -> Part:
        part = {name: np.ascontiguousarray(values) for name, values in part.items()}
        size, path = sum(one.nbytes for one in part.values()), self._path(key, span)
        if size <= SMALL:
            self._small[key, span] = part
        if path is not None and size <= MOST_KEPT:
            save_atomic(path, lambda temporary: save_file(part, temporary))
        return part

    def _path(self, key: str, span: tuple[int, ...]) -> Path | None:
        if self.folder is None:
            return None
        return self.folder / key / f"{span[0]:05d}-{span[-1]:05d}x{len(span)}.safetensors"


def _whole(path: Path) -> bool:
    """Whether a part is there and its length is what its head says; else it is measured anew."""
    try:
        with safe_open(path, "np"):
            return True
    except (OSError, SafetensorError):
        return False
