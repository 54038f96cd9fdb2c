"""Designs × depths × seeds trained on a task from scratch, and how often each answers right."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from depthbench.config import Frozen
from depthbench.data.dataset import Dataset
from depthbench.designs import DesignChoice
from depthbench.evals.accuracy import by_k, measure_task
from depthbench.evals.measure import Hear, Machinery
from depthbench.evals.programs import PLAIN, Asked, edits_of
from depthbench.evals.result import FILE, FOLDER, Measured, merged
from depthbench.evals.tasks import TaskConfig
from depthbench.probes.load import open_model
from depthbench.study.config import LearningRate, StudyConfig
from depthbench.study.run import Study
from depthbench.study.store import Accuracy, Row


class TaskStudyConfig(Frozen):
    """What is trained on a task; every option of a study that is not here has its default."""

    name: str | None = None
    """Folder of the study; None = that of the task."""
    task: TaskConfig
    """What is asked."""
    designs: tuple[DesignChoice, ...] = Field(min_length=1)
    """By name, or tables with options."""
    params: str = "300k"
    """Budget of every shape."""
    depths: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=(2, 8), min_length=1)
    """Blocks of each shape."""
    seeds: int = Field(default=3, ge=1)
    """How many, from 0 on."""
    learning_rates: tuple[LearningRate, ...] = Field(default=(3e-3,), min_length=1)
    """Several are searched, as in a study."""
    tokens: int = Field(default=1_000_000, ge=1)
    """Training tokens of each model."""
    sequences: int = Field(default=64, ge=1)
    """Questions of a batch."""

    def study(self, dataset: Dataset) -> StudyConfig:
        """The study on the task's data; raises `DepthbenchError` for what does not fit together."""
        facts = dataset.manifest.episodes
        assert facts is not None
        length, task = facts.tokens - 1, self.task
        return StudyConfig.parse(
            {
                "name": self.name or task.task,
                "title": f"{task.task}, k = {', '.join(map(str, task.ks))}",
                "designs": self.designs,
                "shapes": {"params": self.params, "depths": self.depths},
                "search": {"learning_rates": self.learning_rates},
                "seeds": tuple(range(self.seeds)),
                "train": {
                    "tokens": self.tokens,
                    "sequences": self.sequences,
                    "length": length,
                    "validation_tokens": task.test * length,
                },
                "data": {"prepared": str(dataset.folder)},
            },
            "eval tasks",
        )


def tested(study: Study, batch: int, hear: Hear) -> Iterator[tuple[Row, list[Measured]]]:
    """Every finished trial with its answers' accuracy, in its row and in its own results."""
    for row in study.store.rows():
        if row.status != "done" or row.accuracy:
            continue
        place = study.folder / "trials" / row.id
        opened = open_model(place, device=study.resolved.study.train.device)
        subject = opened.subject
        edits = edits_of(Asked(), subject.layers)
        machinery = Machinery(subject, edits, batch, hear=hear)
        found = list(measure_task(machinery, study.dataset))
        merged(study.folder / FOLDER / row.id / FILE, subject.facts, found)
        new = row.model_copy(update={"accuracy": accuracies(found)})
        study.store.add(new)
        yield new, found


def accuracies(found: list[Measured]) -> dict[str, Accuracy]:
    """By domain of the task, as a row holds them."""
    shares: dict[str, Accuracy] = {}
    for one in found:
        if one.program != PLAIN or "k" not in one.counts:
            continue
        number, total = by_k([one])[one.counts["k"]], one.counts["documents"]
        assert number.value is not None
        assert number.low is not None
        assert number.high is not None
        shares[f"k = {one.counts['k']}"] = Accuracy(
            right=round(number.value * total),
            questions=total,
            share=number.value,
            low=number.low,
            high=number.high,
        )
    return shares
