"""Run a study in its folder: from a config to finished rows, resumable at every moment."""

import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import filelock
import torch

from depthbench.config import digest_of, to_toml
from depthbench.data.dataset import Dataset, default_cache, prepare
from depthbench.errors import DepthbenchError
from depthbench.files import make_folder, write_atomic
from depthbench.machine import choose_device, choose_dtype
from depthbench.study.claim import LOCK
from depthbench.study.config import StudyConfig
from depthbench.study.engine import HERE, Ended, Need, Place, Running, Setup, drive
from depthbench.study.engines import engine_class, open_engine
from depthbench.study.plan import Plan, Planned, ResolvedStudy, belonging, resolve
from depthbench.study.rows import make_row
from depthbench.study.store import Row, Store
from depthbench.train.config import TrainConfig
from depthbench.train.status import reported

FILE = "study.toml"


@dataclass
class Study:
    """A resolved study, its folder and its data."""

    resolved: ResolvedStudy
    folder: Path
    dataset: Dataset
    failed_now: set[str] = field(default_factory=set)
    """Trials that failed in this run; those that failed in an earlier one are tried again."""

    @cached_property
    def plan(self) -> Plan:
        """Its trials."""
        return Plan(self.resolved)

    @cached_property
    def store(self) -> Store:
        """The finished rows."""
        return Store(self.folder)

    def settled(self) -> list[Row]:
        """Rows that this run does not try again."""
        return [
            row for row in self.store.rows() if row.status != "failed" or row.id in self.failed_now
        ]

    def needed(self) -> list[Planned]:
        """Trials that are known to be needed and are not settled."""
        rows = self.settled()
        there = {row.id for row in rows}
        return [trial for trial in self.plan.trials(rows) if trial.id not in there]

    def add(self, ended: Ended) -> Row:
        """Write the row of a trial that is over."""
        row = row_of(ended, self.resolved.study.name, self.dataset)
        self.store.add(row)
        if row.status == "failed":
            self.failed_now.add(row.id)
        return row


def open_study(
    config: StudyConfig,
    out: Path,
    *,
    resume: bool = False,
    cache: Path | None = None,
    place: Place = HERE,
    say: Callable[[str], None] = lambda _: None,
) -> Study:
    """Prepare data, solve shapes and write ``study.toml``; nothing is trained yet.

    The same config in the same folder continues, with other resources too; another config is
    refused, unless ``resume``: then finished trials that still belong are kept and the rest is
    trained. ``place`` is where trials will run: what is missing there is said before.
    """
    kind = engine_class(place.engine)
    config = fix_device(config, here=kind.here)
    kind.check(place, need_of(config))
    folder = out / config.name
    dataset = prepare(config.data, cache or default_cache(), say)
    earlier = _read_resolved(folder)
    if earlier is not None and _difference(earlier, config, dataset) is None:
        resolved = earlier.model_copy(update={"study": config})
        if resolved != earlier:
            _write(resolved, folder)
        return Study(resolved, folder, dataset)
    if earlier is not None and not resume:
        raise DepthbenchError(
            f"{folder} holds a study with another config ({_difference(earlier, config, dataset)})"
            ". Use --resume to continue it with this config, or --out for another folder"
        )
    say("solving shapes")
    manifest = dataset.manifest
    resolved = resolve(config, manifest.hash, manifest.vocab, manifest.marks)
    _check_lengths(config, dataset)
    _write(resolved, folder)
    return Study(resolved, folder, dataset)


def _write(resolved: ResolvedStudy, folder: Path) -> None:
    with locked(folder):
        write_atomic(folder / FILE, to_toml(resolved.resolved()))


def fix_device(config: StudyConfig, *, here: bool = True) -> StudyConfig:
    """``auto`` made explicit, because a trial's id must say what it ran with."""
    return config.model_copy(update={"train": explicit(config.train, here=here)})


def explicit(train: TrainConfig, *, here: bool = True) -> TrainConfig:
    """With the device and the kind of number that ``auto`` means here.

    A GPU of another machine (not ``here``) cannot be asked: its kind of number must be named.
    """
    if not here and train.device == "cuda" and not torch.cuda.is_available():
        if train.dtype == "auto":
            raise DepthbenchError(
                "train.dtype = auto: this machine has no GPU that tells what the others can do. "
                "Name it: train.dtype=bfloat16 or train.dtype=float32"
            )
        return train
    device, dtype = choose_device(train.device), train.dtype
    if dtype == "auto":
        dtype = str(choose_dtype("auto", device)[0]).removeprefix("torch.")
    return train.model_copy(update={"device": device, "dtype": dtype})


def train_study(
    study: Study,
    *,
    place: Place = HERE,
    finished: Callable[[Row], None] = lambda _: None,
    watch: Callable[[list[Running], list[Planned]], None] = lambda *_: None,
) -> list[Row]:
    """Train all trials that are missing; the rows of the whole study.

    Raises `DepthbenchError` for an engine that is not there, and where no trial can run.
    """
    setup = Setup(place, need_of(study.resolved.study), study.dataset.folder, study.folder)
    carry_out(setup, study.needed, lambda ended: finished(study.add(ended)), watch)
    return belonging(study.resolved, study.store.rows())


def carry_out(
    setup: Setup,
    needed: Callable[[], list[Planned]],
    record: Callable[[Ended], None],
    watch: Callable[[list[Running], list[Planned]], None],
) -> None:
    """`drive` in the folder of ``setup``, which nobody else trains meanwhile."""
    with locked(setup.folder):
        if needed():
            with reported(setup.folder):
                drive(open_engine(setup), needed, record, watch)


def need_of(config: StudyConfig) -> Need:
    """What one trial of the study needs."""
    return Need(config.resources, config.train.device)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Only one process trains a study at a time; the lock goes with the process."""
    make_folder(folder)
    lock = filelock.FileLock(folder / LOCK, blocking=False)
    try:
        with lock:
            yield
    except filelock.Timeout:
        raise DepthbenchError(
            f"{folder} is being trained by another process. Wait for it, or use --out"
        ) from None


def row_of(ended: Ended, name: str, dataset: Dataset) -> Row:
    """The result row of a trial of the study or comparison ``name`` that is over."""
    planned = ended.planned
    return make_row(
        planned.config,
        dataset,
        ended.outcome,
        study=name,
        label=planned.label,
        phase=planned.phase,
        reason=ended.reason,
        seconds=ended.seconds,
        notes=ended.earlier,
        machine=ended.machine,
    )


def _read_resolved(folder: Path) -> ResolvedStudy | None:
    path = folder / FILE
    if not path.exists():
        return None
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DepthbenchError(
            f"{path} cannot be read ({error}). Remove the folder, or use --out"
        ) from None
    return ResolvedStudy.parse(data, str(path))


def _difference(earlier: ResolvedStudy, config: StudyConfig, dataset: Dataset) -> str | None:
    """In what this study is another one, in words; resources make no other."""
    old, new = earlier.study.resolved(), config.resolved()
    names = [name for name in new if digest_of(old.get(name)) != digest_of(new[name])]
    differing = [name for name in names if name != "resources"]
    if differing:
        return f"differs in {', '.join(differing)}"
    if earlier.data_hash != dataset.manifest.hash:
        return f"data {earlier.data_hash} before, {dataset.manifest.hash} now"
    return None


def _check_lengths(config: StudyConfig, dataset: Dataset) -> None:
    """Data too short for the sequences is said before anything is trained."""
    dataset.batch(config.seeds[0], 0, 1, config.train.length)
    dataset.validation(config.train.length, config.train.validation_tokens)
