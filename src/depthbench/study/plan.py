"""Which trials a study needs next, as a pure function of what has finished."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from depthbench.config import Frozen
from depthbench.designs import label_of
from depthbench.designs.base import DesignConfig
from depthbench.errors import DepthbenchError
from depthbench.families import family
from depthbench.marks import NO_MARKS, Marks
from depthbench.nn.count import count_parameters
from depthbench.nn.model import Model, ModelConfig
from depthbench.shapes import Shape
from depthbench.solve import parse_count, solve_shapes
from depthbench.study.config import ShapesConfig, StudyConfig
from depthbench.study.store import Row
from depthbench.study.verdict import search_of
from depthbench.train.config import TrialConfig, told

Phase = Literal["search", "shared"]


@dataclass(frozen=True)
class Planned:
    """A trial and its part in the study."""

    config: TrialConfig
    label: str
    phase: Phase

    @cached_property
    def id(self) -> str:
        """The trial's id."""
        return self.config.id

    @cached_property
    def work(self) -> float:
        """Rough cost, for the order of starting: tokens × parameters × a little for depth."""
        shape = self.config.model.shape
        return self.config.train.tokens * shape.layers * (shape.width + 16)


class ResolvedStudy(Frozen):
    """A study with its shapes solved and its data named: what is written to ``study.toml``."""

    study: StudyConfig
    data_hash: str
    shapes: dict[str, tuple[Shape, ...]]
    """By design label, shallow to deep."""
    marks: Marks = NO_MARKS
    """Of the data's tokenizer, for designs that read them."""

    def trial(self, design: DesignConfig, shape: Shape, rate: float, seed: int) -> TrialConfig:
        """The config of one trial."""
        model = ModelConfig(
            shape=shape,
            design=design,
            backbone=self.study.backbone,
            marks=told(self.study.train, design, self.marks),
            parametrization=self.study.parametrization,
        )
        return TrialConfig(
            model=model,
            train=self.study.train,
            data_hash=self.data_hash,
            learning_rate=rate,
            seed=seed,
        )

    def search_shape(self, label: str) -> Shape:
        """The shape at which a design's learning rate is searched."""
        shapes, layers = self.shapes[label], self.study.search.layers
        if layers is None:
            return shapes[(len(shapes) - 1) // 2]
        for shape in shapes:
            if shape.layers == layers:
                return shape
        depths = ", ".join(str(shape.layers) for shape in shapes)
        raise DepthbenchError(
            f"search.layers = {layers} is no depth of the study: {depths}. Name one of them"
        )

    @property
    def trials(self) -> int:
        """Number of trials if every search finds a rate."""
        study = self.study
        searched = len(study.search.learning_rates)
        per_design = sum(len(shapes) for shapes in self.shapes.values()) * len(study.seeds)
        return per_design + (searched - 1) * len(study.designs)


def resolve(
    study: StudyConfig, data_hash: str, vocab: int, marks: Marks = NO_MARKS
) -> ResolvedStudy:
    """Solve the shapes of every design for the data's vocabulary, and build each on meta once.

    Raises `DepthbenchError` for impossible budgets and options that fight each other.
    """
    shapes = {
        label_of(design): _shapes(study.shapes, design, vocab, study) for design in study.designs
    }
    resolved = ResolvedStudy(study=study, data_hash=data_hash, shapes=shapes, marks=marks)
    for design in study.designs:
        label = label_of(design)
        resolved.search_shape(label)
        for shape in shapes[label]:
            rate, seed = study.search.learning_rates[0], study.seeds[0]
            model = resolved.trial(design, shape, rate, seed).model
            count_parameters(model)
            if study.train.document_mask:
                Model.on_meta(model).design.check_documents_apart()
    return resolved


def _shapes(
    config: ShapesConfig, design: DesignConfig, vocab: int, study: StudyConfig
) -> tuple[Shape, ...]:
    if config.sizes:
        found = [sizes.shape(vocab) for sizes in config.sizes]
        for shape in found:
            if found.count(shape) > 1:
                raise DepthbenchError(
                    f"shapes.sizes: {shape.layers} layers of width {shape.width} are named twice: "
                    "name each shape once"
                )
    elif config.family is not None:
        found = [s.model_copy(update={"vocab": vocab}) for s in family(config.family)]
    else:
        assert config.params is not None
        solved = solve_shapes(
            parse_count(config.params),
            on=config.on,
            depths=config.depths or None,
            aspect_ratios=config.aspect_ratios or None,
            heads=config.heads,
            head_dim=config.head_dim,
            kv_heads=config.kv_heads,
            vocab=vocab,
            tolerance=config.tolerance,
            design=design if config.own_parameters == "counted" else "prenorm",
            backbone=study.backbone,
        )
        found = [one.shape for one in solved]
    return tuple(sorted(found, key=lambda shape: (shape.layers, -shape.width)))


class Plan:
    """The trials of a study; made once, so that asking again after every trial costs little."""

    def __init__(self, resolved: ResolvedStudy) -> None:
        self.resolved = resolved
        self._searches: dict[str, list[Planned]] = {}
        self._shared: dict[tuple[str, float], list[Planned]] = {}

    def trials(self, rows: Iterable[Row]) -> list[Planned]:
        """All that are known to be needed: searches, and what finished searches decide.

        A trial that serves the search and the shared phase is named once, as search. A design
        whose search found no rate (all diverged or failed) gets no shared trials.
        """
        study, rows = self.resolved.study, list(rows)
        planned: dict[str, Planned] = {}
        first, *others = study.search.learning_rates
        for design in study.designs:
            label, rate = label_of(design), first
            if others:
                search = self._search(design, label)
                planned |= {trial.id: trial for trial in search}
                ids = {trial.id for trial in search}
                # a rate that an earlier config shared without a search counts as tried
                tried = [
                    row.model_copy(update={"phase": "search"}) for row in rows if row.id in ids
                ]
                chosen = search_of(tried).chosen if len(tried) == len(ids) else None
                if chosen is None:
                    continue
                rate = chosen
            for trial in self._at_rate(design, label, rate):
                planned.setdefault(trial.id, trial)
        return list(planned.values())

    def _search(self, design: DesignConfig, label: str) -> list[Planned]:
        if label not in self._searches:
            study, shape = self.resolved.study, self.resolved.search_shape(label)
            self._searches[label] = [
                Planned(self.resolved.trial(design, shape, rate, study.seeds[0]), label, "search")
                for rate in study.search.learning_rates
            ]
        return self._searches[label]

    def _at_rate(self, design: DesignConfig, label: str, rate: float) -> list[Planned]:
        if (label, rate) not in self._shared:
            self._shared[label, rate] = [
                Planned(self.resolved.trial(design, shape, rate, seed), label, "shared")
                for shape in self.resolved.shapes[label]
                for seed in self.resolved.study.seeds
            ]
        return self._shared[label, rate]


def plan(resolved: ResolvedStudy, rows: Iterable[Row]) -> list[Planned]:
    """What `Plan.trials` says, for once."""
    return Plan(resolved).trials(rows)


def belonging(resolved: ResolvedStudy, rows: Iterable[Row]) -> list[Row]:
    """The rows of trials that the study needs, each in the phase that this config gives it.

    A folder keeps the rows of earlier configs; some of them belong no more, and one that was
    shared may be part of a search now.
    """
    rows = list(rows)
    phases = {trial.id: trial.phase for trial in plan(resolved, rows)}
    return [row.model_copy(update={"phase": phases[row.id]}) for row in rows if row.id in phases]


def missing_trials(resolved: ResolvedStudy, rows: list[Row]) -> int:
    """Trials without a row, with those that an unfinished search has yet to decide."""
    needed = plan(resolved, rows)
    finished = {row.id for row in rows}
    missing = [trial for trial in needed if trial.id not in finished]
    decided = {trial.label for trial in needed if trial.phase == "shared"}
    searching = {trial.label for trial in missing if trial.phase == "search"} - decided
    seeds = len(resolved.study.seeds)
    # the shared phase has the chosen rate's search trial already
    undecided = sum(len(resolved.shapes[label]) * seeds - 1 for label in searching)
    return len(missing) + undecided
