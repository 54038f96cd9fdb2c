"""One training run of its own: a design at a shape, from settings to a result."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from depthbench.config import Frozen, Seed, digest_of
from depthbench.data.config import DataConfig
from depthbench.data.dataset import Dataset
from depthbench.designs import DesignChoice, label_of, parse_design
from depthbench.errors import DepthbenchError
from depthbench.files import write_atomic
from depthbench.nn.backbones import BackboneChoice
from depthbench.nn.branch import Backbone
from depthbench.nn.model import ModelConfig
from depthbench.nn.parametrization import Parametrization
from depthbench.study.beginning import Beginning, beginning_of
from depthbench.study.config import LearningRate, Sizes
from depthbench.study.rows import make_row
from depthbench.study.store import Row
from depthbench.train.config import TrainConfig, TrialConfig, told
from depthbench.train.loop import Report, Trial
from depthbench.train.outcome import Outcome
from depthbench.train.status import StatusFile
from depthbench.train.team import Team
from depthbench.train.trackers import listeners

RESULT = "result.json"


class RunSizes(Sizes):
    """Shape of a run; what is not given is that of a model of half a million parameters."""

    layers: int = 4
    """Blocks."""
    width: int = 96
    """Entries of one stream's state."""
    heads: int = 4
    """Query heads."""
    ffn: int = 256
    """Entries of the feed-forward between its matrices."""


class RunConfig(Frozen):
    """What ``depthbench train`` trains."""

    name: str = Field(default="run", max_length=80, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Folder of the run."""
    design: DesignChoice = parse_design("prenorm")
    """By name, or a table with options."""
    shape: RunSizes = RunSizes()
    """Sizes of the model."""
    backbone: BackboneChoice = Backbone()
    """By name or table: ``dense``, ``moe``, ``hybrid``."""
    parametrization: Parametrization = Parametrization()
    """Whether rates follow depth and width."""
    learning_rate: LearningRate = 3e-3
    """Peak."""
    seed: Seed = 0
    """Of weights and data order."""
    train: TrainConfig = TrainConfig()
    """Recipe."""
    data: DataConfig = DataConfig()
    """Text."""
    parallel: Literal["ddp", "fsdp"] = "ddp"
    """How the model lies on the processes that ``torchrun`` starts: whole in each, or in parts.
    It changes no result but for rounding, so a run may go on with the other."""
    init: str | None = None
    """Folder of a trial, or of a converted model, whose model and weights training begins with."""

    @model_validator(mode="after")
    def _one_model(self) -> Self:
        fixed = {"design", "shape", "backbone", "parametrization"} & self.model_fields_set
        if self.init is not None and fixed:
            raise ValueError(
                f"init = '{self.init}' fixes {sorted(fixed)[0]} too: remove one of the two"
            )
        return self

    def beginning(self) -> Beginning | None:
        """What `init` names. Raises `DepthbenchError` if that holds no model with its weights."""
        return None if self.init is None else beginning_of(Path(self.init))

    def trial(self, dataset: Dataset, begins: Beginning | None = None) -> TrialConfig:
        """The trial on this data, which ``begins`` so; raises `DepthbenchError` for what does not
        fit together.
        """
        if self.init is not None and begins is None:
            raise DepthbenchError(
                f"init = '{self.init}': only depthbench train begins with the weights of another "
                "run. Leave init out"
            )
        return TrialConfig(
            model=self._model(dataset, begins),
            weights=None if begins is None else begins.digest,
            train=self.train,
            data_hash=dataset.manifest.hash,
            learning_rate=self.learning_rate,
            seed=self.seed,
        )

    def _model(self, dataset: Dataset, begins: Beginning | None) -> ModelConfig:
        marks = dataset.manifest.marks
        if begins is not None:
            given = begins.model
            return given.model_copy(update={"marks": told(self.train, given.design, marks)})
        return ModelConfig(
            shape=self.shape.shape(dataset.vocab, "shape"),
            design=self.design,
            backbone=self.backbone,
            parametrization=self.parametrization,
            marks=told(self.train, self.design, marks),
        )


def train_single(
    config: RunConfig,
    dataset: Dataset,
    folder: Path,
    *,
    resume: bool | Path,
    stop: Callable[[], bool] = lambda: False,
    report: Report = lambda *_: None,
    log: Sequence[str] = (),
    team: Team | None = None,
) -> tuple[Outcome, Row | None]:
    """Train in ``folder``; the outcome, and the row of ``result.json`` unless it was stopped.

    ``log`` names the trackers that hear of the metrics. Of a ``team``, the main process alone
    writes the row and returns it. Raises `DepthbenchError` if the folder holds a run with other
    settings, unless it is to start over (``resume = False``).
    """
    started = time.perf_counter()
    hearing = [StatusFile(), *listeners(log)]
    begins = config.beginning()
    weights = None if begins is None else begins.tensors
    trial = Trial(
        config.trial(dataset, begins), dataset, folder, hearing, team=team, weights=weights
    )
    if trial.team.main:
        if resume is not False:
            _check_same(folder, trial.config)
        (folder / RESULT).unlink(missing_ok=True)
    outcome = trial.run(report, resume=resume, stop=stop)
    if outcome.status == "stopped" or not trial.team.main:
        return outcome, None
    row = make_row(
        trial.config,
        dataset,
        outcome,
        study=config.name,
        label=label_of(trial.config.model.design),
        phase="single",
        reason=None,
        seconds=time.perf_counter() - started,
    )
    write_atomic(folder / RESULT, row.model_dump_json(indent=2) + "\n")
    return outcome, row


def _check_same(folder: Path, config: TrialConfig) -> None:
    """Raise `DepthbenchError` if ``folder`` holds a run of another config: it would be lost."""
    path = folder / "config.json"
    if not path.exists():
        return
    try:
        earlier = digest_of(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        earlier = None
    if earlier != config.id:
        raise DepthbenchError(
            f"{folder} holds a run with other settings (its trial is {earlier or 'unreadable'}, "
            f"this one {config.id}). Give this one a name of its own with name=..., another "
            "folder with --out, or start over in its place with --resume never"
        )
