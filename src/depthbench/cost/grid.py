"""Rows of a grid of models: what each costs, worked out in several processes."""

from collections.abc import Callable, Sequence
from typing import Literal

from depthbench.config import Frozen
from depthbench.cost.devices import DeviceSpec
from depthbench.cost.growth import Growth, crossover
from depthbench.cost.ledger import PassCost
from depthbench.cost.predict import ALONE, Split
from depthbench.cost.serving import Served, served
from depthbench.cost.training import StepCost, step_cost
from depthbench.nn.model import ModelConfig
from depthbench.processes import spread

Hear = Callable[[int], None]
"""Told how many rows are done."""


class Training(Frozen):
    """What a training step is asked about."""

    sequences: int
    length: int
    products: str


class Job(Frozen):
    """One row that is asked for."""

    label: str
    model: ModelConfig
    device: DeviceSpec
    context: int
    batch: int
    dtype: str
    split: Split = ALONE
    training: Training | None = None


class TrainRow(Frozen):
    """One training step."""

    cost: StepCost
    recomputed: PassCost
    """With activation checkpointing."""


class GridRow(Frozen):
    """What one model costs."""

    label: str
    model: ModelConfig
    served: Served
    crossover_tokens: float
    """Context at which attention costs as many FLOPs as the projections of the blocks."""
    training: TrainRow | None = None


class CostRow(GridRow):
    """A row as it is printed: with the numbers that its table shows."""

    prefill_intensity: float
    """FLOPs for each byte."""
    decode_intensity: float
    ttft_seconds: float
    tpot_seconds: float
    tokens_per_second: float
    memory_bytes: int
    training_bytes_by_ways: dict[str, int] | None = None
    """On each of so many devices; None without training."""


class Costs(Frozen):
    """What ``cost --json`` prints."""

    schema_version: Literal[1] = 1
    device: DeviceSpec
    rows: tuple[CostRow, ...]
    growth: dict[str, tuple[Growth, ...]]
    """By design, where it was asked for."""
    sentences: tuple[str, ...]


def row_of(job: Job) -> GridRow:
    """One row."""
    found = served(
        job.model,
        job.device,
        context=job.context,
        batch=job.batch,
        dtype=job.dtype,
        split=job.split,
    )
    return GridRow(
        label=job.label,
        model=job.model,
        served=found,
        crossover_tokens=crossover(job.model).tokens,
        training=None if job.training is None else _train(job, job.training),
    )


def _train(job: Job, asked: Training) -> TrainRow:
    given = {"length": asked.length, "sequences": asked.sequences, "products": asked.products}
    cost = step_cost(job.model, job.device, **given)
    again = step_cost(job.model, job.device, checkpointing=True, **given)
    return TrainRow(cost=cost, recomputed=again.step)


def rows_of(jobs: Sequence[Job], workers: int, hear: Hear = lambda _: None) -> list[GridRow]:
    """All rows, in the order of ``jobs``."""
    return spread(row_of, jobs, workers, size=lambda job: job.model.shape.layers, hear=hear)
