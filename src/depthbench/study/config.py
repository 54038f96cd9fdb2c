"""A study file: designs × shapes × learning rates × seeds."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from depthbench.config import Frozen, Seed
from depthbench.data.config import DataConfig
from depthbench.designs import DesignChoice, label_of
from depthbench.errors import DepthbenchError
from depthbench.nn.backbones import BackboneChoice
from depthbench.nn.branch import Backbone
from depthbench.nn.parametrization import Parametrization
from depthbench.shapes import Shape
from depthbench.train.config import TrainConfig

LearningRate = Annotated[float, Field(gt=0)]


class Sizes(Frozen):
    """One explicit shape of a study; the vocabulary is the tokenizer's."""

    later: ClassVar[frozenset[str]] = frozenset({"head_width"})
    layers: int
    """Blocks."""
    width: int
    """Entries of one stream's state."""
    heads: int
    """Query heads."""
    kv_heads: int | None = None
    """None = ``heads``."""
    ffn: int
    """Entries of the feed-forward between its matrices."""
    head_width: int | None = None
    """Of one attention head; None = ``width / heads``."""

    def shape(self, vocab: int, where: str = "shapes.sizes") -> Shape:
        """With the vocabulary; raises `DepthbenchError` for sizes that do not fit together.

        ``where`` names them in the error.
        """
        sizes = self.resolved() | {"vocab": vocab, "kv_heads": self.kv_heads or self.heads}
        return Shape.parse(sizes, where)


class ShapesConfig(Frozen):
    """One parameter budget at several depths; or a published family; or explicit sizes."""

    params: str | None = None
    """Budget, such as ``500k`` or ``400M``."""
    on: Literal["total", "backbone"] = "total"
    """What the budget is spent on."""
    depths: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """Blocks of each shape of the budget."""
    aspect_ratios: tuple[Annotated[float, Field(gt=0)], ...] = ()
    """Width over blocks of each shape, instead of ``depths``."""
    heads: int | None = Field(default=None, ge=1)
    """Query heads of every shape; None = by ``head_dim``."""
    head_dim: int | None = Field(default=None, ge=2)
    """Width of a head; None = chosen with the width."""
    kv_heads: int | None = Field(default=None, ge=1)
    """Key and value heads; None = as many as query heads."""
    tolerance: float = Field(default=0.01, gt=0, lt=1)
    """Share by which a shape may miss the budget."""
    own_parameters: Literal["counted", "extra"] = "counted"
    """``counted``: every design fits the budget with its own parameters, so widths may differ
    between designs. ``extra``: all designs share the widths of `prenorm`."""
    family: str | None = None
    """Name of a published family instead of a budget."""
    sizes: tuple[Sizes, ...] = ()
    """Explicit shapes instead of a budget."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = [
            name
            for name, there in (
                ("params", self.params is not None),
                ("family", self.family is not None),
                ("sizes", bool(self.sizes)),
            )
            if there
        ]
        if len(given) != 1:
            raise ValueError(
                "give exactly one of params, family and sizes "
                f"(given: {', '.join(given) or 'none of them'})"
            )
        if self.params is not None and bool(self.depths) == bool(self.aspect_ratios):
            raise ValueError("a budget in params needs either depths or aspect_ratios")
        return self


class SearchConfig(Frozen):
    """Phase 1: each design's peak learning rate, at the middle shape."""

    learning_rates: tuple[LearningRate, ...] = Field(min_length=1)
    """The grid; a single rate means no search."""
    layers: int | None = Field(default=None, ge=1)
    """Depth of the shape to search at; None = the middle one, the shallower of two."""

    @field_validator("learning_rates")
    @classmethod
    def _rising(cls, rates: tuple[float, ...]) -> tuple[float, ...]:
        if len(set(rates)) < len(rates):
            raise ValueError("a learning rate is named twice: name each once")
        return tuple(sorted(rates))


class Resources(Frozen):
    """What one trial gets on its machine. No part of the result: a study goes on with others."""

    processes: int = Field(default=1, ge=1)
    """Processes that train one trial together, on one node: they share its sequences."""
    parallel: Literal["ddp", "fsdp"] = "ddp"
    """How the model lies on several processes: whole in each, or in parts."""
    cpus: int | None = Field(default=None, ge=1)
    """Cores of one trial, shared by its processes as threads; None = one a process. More than one
    thread rounds sums in another order: the result row says so."""
    gpus: float | None = Field(default=None, gt=0)
    """GPUs of one trial: a whole number, at least one a process, or a fraction of a GPU that trials
    share. None = one a process on ``cuda``, none on ``cpu``."""

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if self.cpus is not None and self.cpus < self.processes:
            raise ValueError(
                f"cpus = {self.cpus} is less than one for each of {self.processes} processes. "
                f"Use at least {self.processes}"
            )
        gpus = self.gpus
        if gpus is not None and gpus != int(gpus) and (gpus > 1 or self.processes > 1):
            raise ValueError(
                f"gpus = {gpus:g}: only a single process can have a fraction of one GPU. "
                "Use a whole number"
            )
        if gpus is not None and 1 <= gpus < self.processes:
            raise ValueError(
                f"gpus = {gpus:g} is less than one for each of {self.processes} processes. "
                f"Use at least {self.processes}"
            )
        return self

    @property
    def cores(self) -> int:
        """Cores of one trial."""
        return self.cpus or self.processes

    @property
    def threads(self) -> int:
        """Threads of each of its processes."""
        return self.cores // self.processes

    def gpus_on(self, device: str) -> float:
        """GPUs of one trial on this kind of device.

        Raises `DepthbenchError` for GPUs of a trial that runs on the CPU.
        """
        if device == "cuda":
            return self.gpus or self.processes
        if self.gpus is not None:
            raise DepthbenchError(
                f"resources.gpus = {self.gpus:g}, but trials run on train.device = {device}. "
                "Use train.device=cuda, or leave resources.gpus out"
            )
        return 0.0


class StudyConfig(Frozen):
    """A set of trials and what they share."""

    name: str = Field(min_length=1, max_length=80, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Folder of the study: letters, digits, ``.``, ``_`` and ``-``."""
    title: str = ""
    """One line for the report."""
    designs: tuple[DesignChoice, ...] = Field(min_length=1)
    """By name, or tables with options such as ``{ name = "hc", mix = false }``."""
    shapes: ShapesConfig
    """Sizes of the models."""
    search: SearchConfig
    """Of each design's peak learning rate."""
    seeds: tuple[Seed, ...] = Field(default=(0,), min_length=1)
    """Of weights and data order; three are needed for a winner."""
    train: TrainConfig = TrainConfig()
    """Recipe that all trials share."""
    data: DataConfig = DataConfig()
    """Text that all trials share."""
    backbone: BackboneChoice = Backbone()
    """By name or table: ``dense``, ``moe``, ``hybrid``."""
    parametrization: Parametrization = Parametrization()
    """Whether rates follow depth and width."""
    resources: Resources = Resources()
    """What one trial gets on its machine."""

    @model_validator(mode="after")
    def _no_repeats(self) -> Self:
        labels = [label_of(design) for design in self.designs]
        for label in labels:
            if labels.count(label) > 1:
                raise ValueError(f"design '{label}' is named twice: name each variant once")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds = {list(self.seeds)} repeats a seed: name each once")
        return self

    @model_validator(mode="after")
    def _parts_of_a_batch(self) -> Self:
        part = self.train.micro_sequences or self.train.sequences
        if part % self.resources.processes:
            raise ValueError(
                f"resources.processes = {self.resources.processes} cannot share {part} sequences. "
                "Use a divisor of train.sequences and train.micro_sequences"
            )
        return self
