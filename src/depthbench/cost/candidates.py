"""What a study has trained, each with its measured loss and what it costs to train and serve."""

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from pydantic import Field

from depthbench.config import Frozen
from depthbench.cost.devices import DeviceSpec
from depthbench.cost.serving import serving
from depthbench.cost.training import training_flops
from depthbench.errors import DepthbenchError
from depthbench.shapes import Shape
from depthbench.study.store import DomainLoss, Row
from depthbench.study.verdict import on_curves
from depthbench.train.config import TrialConfig


class Conditions(Frozen):
    """How the models are to be served."""

    device: DeviceSpec
    """That serves, by name or from a file."""
    context: int = Field(ge=1)
    """Tokens that are in the cache when the next one is decoded, and of the prefill."""
    batch: int = Field(default=1, ge=1)
    """Sequences at once."""
    dtype: str = "bfloat16"
    """Of weights and caches."""


class Candidate(Frozen):
    """A design at a shape: loss measured, costs modelled under the `Conditions`."""

    name: str
    """Design, layers and width; more where that is not unique."""
    study: str
    label: str
    shape: Shape
    learning_rate: float
    trials: int
    """Seeds that were trained, those without a loss too."""
    by_seed: dict[int, float]
    """Validation bits per byte of every finished seed."""
    bits_per_byte: float
    """Mean over the finished seeds."""
    nats_per_token: float
    standard_deviation: float | None
    """Sample deviation over seeds; None with one."""
    parameters: int
    kv_bytes: int
    state_bytes: int
    memory_bytes: int
    tpot_seconds: float
    """Modelled time of one decoding step of the whole batch."""
    ttft_seconds: float
    """Modelled time to the first token."""
    training_tokens: int
    training_flops: int
    """Of one trial: forward and backward of all its tokens, what recomputing repeats left out."""
    training_seconds: float
    """Measured: mean over the finished seeds."""
    trained_on: str
    """Machine of the first seed."""

    @property
    def finished(self) -> int:
        """Seeds with a loss."""
        return len(self.by_seed)


def candidates_of(
    studies: Iterable[Sequence[Row]], conditions: Conditions
) -> tuple[tuple[Candidate, ...], tuple[str, ...]]:
    """A candidate for each design and shape at its used learning rate; those without any loss.

    ``studies`` are the rows that belong to each study. Raises `DepthbenchError` if they read
    different data, or if nothing has finished.
    """
    groups = [
        group for rows in studies for own in on_curves(list(rows)).values() for group in _split(own)
    ]
    data = dict.fromkeys(row.data_hash for group in groups for row in group)
    if len(data) > 1:
        raise DepthbenchError(
            f"the trials read different data ({', '.join(data)}): their losses cannot be "
            "compared. Name studies of one data set"
        )
    having = [group for group in groups if any(_loss(row) for row in group)]
    names = _names([group[0] for group in groups])
    if not having:
        lost = [row for group in groups for row in group if row.status == "diverged"]
        if lost:
            raise DepthbenchError(
                f"no trial has a loss: {len(lost)} of {sum(map(len, groups))} diverged. Run the "
                "study with lower learning rates"
            )
        raise DepthbenchError("no trial has finished: there is nothing to choose. Run the study")
    found = [
        _candidate(name, group, conditions)
        for name, group in zip(names, groups, strict=True)
        if group in having
    ]
    lost = [name for name, group in zip(names, groups, strict=True) if group not in having]
    return tuple(found), tuple(lost)


def _split(rows: Sequence[Row]) -> list[list[Row]]:
    groups: dict[Shape, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.shape, []).append(row)
    return list(groups.values())


def _names(rows: Sequence[Row]) -> list[str]:
    """As short as tells them apart."""
    ways = [
        [f"{row.label} L{row.shape.layers} d{row.shape.width}" for row in rows],
        [f"{row.label} L{row.shape.layers} d{row.shape.width} ffn{row.shape.ffn}" for row in rows],
    ]
    ways.append([f"{row.study}: {name}" for row, name in zip(rows, ways[1], strict=True)])
    for names in ways:
        if len(set(names)) == len(names):
            return names
    seen: Counter[str] = Counter()
    names = []
    for name in ways[-1]:
        seen[name] += 1
        names.append(f"{name} #{seen[name]}" if seen[name] > 1 else name)
    return names


def _candidate(name: str, rows: Sequence[Row], conditions: Conditions) -> Candidate:
    done = [row for row in rows if _loss(row)]
    first = done[0]
    trial = TrialConfig.parse(first.config, f"trial {first.id}")
    costs = serving(
        trial.model,
        conditions.device,
        context=conditions.context,
        batch=conditions.batch,
        dtype=conditions.dtype,
    )
    losses = [(row.seed, loss) for row in done if (loss := _loss(row))]
    bits = {seed: loss.bits_per_byte for seed, loss in sorted(losses, key=lambda one: one[0])}
    return Candidate(
        name=name,
        study=first.study,
        label=first.label,
        shape=first.shape,
        learning_rate=first.learning_rate,
        trials=len(rows),
        by_seed=bits,
        bits_per_byte=statistics.fmean(bits.values()),
        nats_per_token=statistics.fmean(loss.nats_per_token for _, loss in losses),
        standard_deviation=statistics.stdev(bits.values()) if len(bits) > 1 else None,
        parameters=first.parameters.total,
        kv_bytes=costs.kv_bytes,
        state_bytes=costs.state_bytes,
        memory_bytes=costs.memory_bytes,
        tpot_seconds=costs.tpot_seconds,
        ttft_seconds=costs.ttft_seconds,
        training_tokens=first.tokens,
        training_flops=training_flops(trial, first.tokens),
        training_seconds=statistics.fmean(row.seconds for row in done),
        trained_on=f"{first.machine.device} of {first.machine.host}",
    )


def _loss(row: Row) -> DomainLoss | None:
    return row.loss if row.status == "done" else None
