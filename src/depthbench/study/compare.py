"""Train both sides of a comparison on the same batches, seed by seed."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from depthbench.config import Frozen, Seed, read_toml, to_toml
from depthbench.data.dataset import Dataset, default_cache, prepare
from depthbench.errors import DepthbenchError
from depthbench.files import write_atomic
from depthbench.study.budget import Budget, budget_of, check_budgets, excess, fitted
from depthbench.study.config import Resources
from depthbench.study.engine import HERE, Ended, Need, Place, Running, Setup
from depthbench.study.plan import Planned
from depthbench.study.run import carry_out, explicit, locked, row_of
from depthbench.study.single import RunConfig
from depthbench.study.store import Row, Store
from depthbench.train.config import TrialConfig

FILE = "compare.toml"


class CompareConfig(Frozen):
    """Two runs that share data and seeds, and what counts as the same budget."""

    name: str = Field(min_length=1, max_length=80, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Folder of the comparison."""
    labels: tuple[str, str]
    """Of A and of B."""
    a: RunConfig
    """The first run."""
    b: RunConfig
    """The second run."""
    seeds: tuple[Seed, ...] = Field(default=(0, 1, 2), min_length=1)
    """Of weights and data order: each trains once with A and once with B."""
    confidence: float = Field(default=0.95, gt=0, lt=1)
    """Of every interval."""
    parameter_tolerance: float = Field(default=0.01, ge=0)
    """Parameter totals may differ by this share of the smaller."""
    fit: bool = True
    """Where both sides have the same shape and totals differ by more, narrow the feed-forward of
    the larger until they agree."""
    flops_tolerance: float = Field(default=0.01, ge=0)
    """A larger share of additional operations is warned of."""
    time_tolerance: float = Field(default=0.1, ge=0)
    """A larger share of additional time is warned of; smaller ones are noise of the machine."""
    window: int | None = Field(default=None, ge=1)
    """Steps over which the difference of training losses is averaged; None = as many as give
    about 100 points."""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds = {list(self.seeds)} repeats a seed: name each once")
        if self.labels[0] == self.labels[1]:
            raise ValueError(f"labels = {list(self.labels)}: give both sides a name of their own")
        return self


class Resolved(Frozen):
    """A comparison with budgets that agree and its data named: the content of ``compare.toml``."""

    compare: CompareConfig
    data_hash: str
    notes: tuple[str, ...] = ()
    """What was changed so that budgets agree, in words."""


@dataclass
class Comparison:
    """A comparison in its folder, with its data."""

    resolved: Resolved
    folder: Path
    dataset: Dataset
    budgets: tuple[Budget, Budget]
    failed_now: set[str] = field(default_factory=set)
    """Trials that failed in this run; those that failed in an earlier one are tried again."""

    @property
    def config(self) -> CompareConfig:
        """With budgets that agree."""
        return self.resolved.compare

    @cached_property
    def store(self) -> Store:
        """The finished rows."""
        return Store(self.folder)

    def trials(self, side: int) -> list[TrialConfig]:
        """Of side 0 or 1, in the order of seeds."""
        run = (self.config.a, self.config.b)[side].trial(self.dataset)
        return [run.model_copy(update={"seed": seed}) for seed in self.config.seeds]

    def planned(self) -> list[Planned]:
        """All trials, both sides of a seed next to each other."""
        pairs = zip(self.trials(0), self.trials(1), strict=True)
        return [
            Planned(trial, label, "shared")
            for pair in pairs
            for trial, label in zip(pair, self.config.labels, strict=True)
        ]

    def settled(self) -> list[Row]:
        """Rows of these trials that this run does not try again."""
        ids = {trial.id for trial in self.planned()}
        return [
            row
            for row in self.store.rows()
            if row.id in ids and (row.status != "failed" or row.id in self.failed_now)
        ]

    def needed(self) -> list[Planned]:
        """Trials that are not settled."""
        there = {row.id for row in self.settled()}
        return [trial for trial in self.planned() if trial.id not in there]

    def add(self, ended: Ended) -> Row:
        """Write the row of a trial that is over."""
        row = row_of(ended, self.config.name, self.dataset)
        self.store.add(row)
        if row.status == "failed":
            self.failed_now.add(row.id)
        return row


def open_comparison(
    config: CompareConfig,
    out: Path,
    *,
    resume: bool = False,
    cache: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Prepare data, make budgets agree and write ``compare.toml``; nothing is trained yet.

    The same config in the same folder continues; another config is refused, unless ``resume``:
    then finished trials that still belong are kept. Raises `DepthbenchError` for unequal budgets.
    """
    one, other = config.labels
    if config.a.data != config.b.data:
        raise DepthbenchError(
            f"{one} and {other} read different data, and then no difference is the design's. "
            "Give both the same settings under data"
        )
    if config.a.seed != config.b.seed:
        raise DepthbenchError(
            f"{one} has seed = {config.a.seed}, {other} {config.b.seed}, but both sides train with "
            "the same seeds. Give both the same first seed"
        )
    config = config.model_copy(update={"a": _explicit(config.a), "b": _explicit(config.b)})
    dataset = prepare(config.a.data, cache or default_cache(), say)
    config, notes = _fit(config, dataset)
    budgets = check_budgets(
        config.a.trial(dataset), config.b.trial(dataset), config.labels, config.parameter_tolerance
    )
    resolved = Resolved(compare=config, data_hash=dataset.manifest.hash, notes=notes)
    folder = out / config.name
    earlier = read_resolved(folder)
    if earlier not in (None, resolved) and not resume:
        raise DepthbenchError(
            f"{folder} holds a comparison with another config. Use --resume to go on with this one "
            "there (finished trials that belong to it are kept), or name=… or --out for another "
            "folder"
        )
    with locked(folder):
        write_atomic(folder / FILE, to_toml(resolved.resolved()))
    return Comparison(resolved, folder, dataset, budgets)


def read_resolved(folder: Path) -> Resolved | None:
    """What ``compare.toml`` in ``folder`` says; None when there is none."""
    path = folder / FILE
    return Resolved.parse(read_toml(path), str(path)) if path.exists() else None


def train_comparison(
    comparison: Comparison,
    *,
    place: Place = HERE,
    finished: Callable[[Row], None] = lambda _: None,
    watch: Callable[[list[Running], list[Planned]], None] = lambda *_: None,
) -> list[Row]:
    """Train the trials that are missing; the rows of all."""
    need = Need(Resources(), comparison.config.a.train.device)
    setup = Setup(place, need, comparison.dataset.folder, comparison.folder)
    carry_out(setup, comparison.needed, lambda end: finished(comparison.add(end)), watch)
    ids = {trial.id for trial in comparison.planned()}
    return [row for row in comparison.store.rows() if row.id in ids]


def _explicit(run: RunConfig) -> RunConfig:
    return run.model_copy(update={"train": explicit(run.train)})


def _fit(config: CompareConfig, dataset: Dataset) -> tuple[CompareConfig, tuple[str, ...]]:
    """Sides of one shape get the same number of parameters through the feed-forward."""
    trials = config.a.trial(dataset), config.b.trial(dataset)
    budgets = budget_of(trials[0]), budget_of(trials[1])
    same = config.a.shape == config.b.shape
    if not config.fit or not same or excess(*budgets) <= config.parameter_tolerance:
        return config, ()
    large = 0 if budgets[0].parameters > budgets[1].parameters else 1
    ffn = fitted(trials[large], trials[1 - large])
    run = (config.a, config.b)[large]
    if ffn in (None, run.shape.ffn):
        return config, ()
    shape = run.shape.model_copy(update={"ffn": ffn})
    narrowed = run.model_copy(update={"shape": shape})
    label, other = config.labels[large], config.labels[1 - large]
    now = budget_of(narrowed.trial(dataset)).parameters
    off = excess(*budgets)
    note = (
        f"{label} would have {budgets[large].parameters:,} parameters, {100 * off:.3g} % more than "
        f"{other} ({budgets[1 - large].parameters:,}): its feed-forward was narrowed from "
        f"{run.shape.ffn} to {ffn}, which makes {now:,} "
        f"(--tolerance {math.ceil(1000 * off) / 1000} keeps its shape, and the whole shared start)"
    )
    return config.model_copy(update={"ab"[large]: narrowed}), (note,)
