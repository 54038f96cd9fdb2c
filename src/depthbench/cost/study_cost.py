"""What a study will cost before it runs: tokens, operations, memory, time and money."""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from depthbench.config import Frozen
from depthbench.cost.devices import DeviceSpec
from depthbench.cost.training import TrainingCost, training_cost, training_flops
from depthbench.designs import label_of
from depthbench.nn.count import count_parameters
from depthbench.processes import spread
from depthbench.quantities import bytes_text, count_text, seconds_text
from depthbench.shapes import Shape
from depthbench.study.plan import ResolvedStudy, belonging
from depthbench.study.store import Row
from depthbench.study.words import counted
from depthbench.train.config import TrainConfig, TrialConfig

Source = Literal["modelled", "measured", "scaled"]
"""``modelled`` for a described device; ``measured`` by finished trials of that design and shape;
``scaled`` by training FLOPs from finished trials of others."""
SPEED = (
    "sequences",
    "length",
    "micro_sequences",
    "dtype",
    "device",
    "document_mask",
    "checkpointing",
    "compile",
    "kernels",
)
"""Fields of the training that must agree for a measured speed to count."""


class Part(Frozen):
    """All trials of one design at one shape."""

    label: str
    shape: Shape
    trials: int
    finished: int
    parameters: int
    tokens: int
    """Of one trial, in whole batches."""
    flops: int
    """Of one trial: forward and backward, what recomputing repeats left out."""
    memory_bytes: int | None
    """Of one trial on one device; None without a described device."""
    seconds: float | None
    """Of one trial's training steps on its devices, validation left out; None where nothing
    tells."""
    device_seconds: float | None
    """Of one trial: time times devices."""
    source: Source | None


class StudyCost(Frozen):
    """The whole study; sums over all its trials, finished ones too."""

    study: str
    device: DeviceSpec | None
    devices: float
    """Of one trial."""
    trials: int
    """If every search finds a rate."""
    finished: int
    tokens: int
    flops: int
    memory_bytes: int | None
    """Of the largest trial."""
    fits: bool | None
    """Whether that is within the device's memory; None without a described device."""
    seconds: float | None
    """Of all trials, one after another."""
    device_hours: float | None
    device_hours_to_go: float | None
    """Of those that are not finished."""
    price_per_hour: float | None
    money: float | None
    money_to_go: float | None
    parts: tuple[Part, ...]
    notes: tuple[str, ...]
    """What was assumed."""


class StudyForecast(StudyCost):
    """What ``run --dry-run --json`` prints."""

    schema_version: Literal[1] = 1
    sentences: tuple[str, ...]
    """The whole in words."""


def study_cost(
    resolved: ResolvedStudy,
    recorded: Sequence[Row] = (),
    *,
    device: DeviceSpec | None = None,
    dtype: str | None = None,
    price: float | None = None,
    notes: Sequence[str] = (),
    workers: int = 1,
    hear: Callable[[int, int], None] = lambda done, of: None,
) -> StudyCost:
    """The cost of ``resolved``, of which ``recorded`` are the rows that its folder holds.

    On ``device`` times are modelled, with ``dtype`` in place of the study's own; without one they
    come from finished trials. ``price`` is for an hour of a device, and stands before the
    described device's own. Trials are modelled in ``workers`` processes; ``hear`` is told how many
    are, and of how many.
    """
    bare = _parts(resolved, recorded)
    if device is None:
        speeds = _speeds(recorded, resolved.study.train)
        parts = _measured([part for part, _ in bare], speeds, _devices(resolved, None))
    else:
        modelled = spread(
            _training_cost,
            [(_with_dtype(trial, dtype), device) for _, trial in bare],
            workers,
            size=lambda job: job[0].model.shape.layers,
            hear=lambda done: hear(done, len(bare)),
        )
        devices = _devices(resolved, device)
        parts = tuple(
            _modelled(part, cost, devices) for (part, _), cost in zip(bare, modelled, strict=True)
        )
    rate = price if price is not None or device is None else device.price_per_hour
    hours = _total(parts, [part.trials for part in parts])
    to_go = _total(parts, [part.trials - part.finished for part in parts])
    memory = max((part.memory_bytes for part in parts if part.memory_bytes), default=None)
    seconds = [part.seconds for part in parts]
    return StudyCost(
        study=resolved.study.name,
        device=device,
        devices=_devices(resolved, device),
        trials=resolved.trials,
        finished=sum(part.finished for part in parts),
        tokens=sum(part.trials * part.tokens for part in parts),
        flops=sum(part.trials * part.flops for part in parts),
        memory_bytes=memory,
        fits=None if device is None or memory is None else memory <= device.memory,
        seconds=None
        if None in seconds
        else sum(part.trials * (part.seconds or 0.0) for part in parts),
        device_hours=hours,
        device_hours_to_go=to_go,
        price_per_hour=rate,
        money=None if rate is None or hours is None else rate * hours,
        money_to_go=None if rate is None or to_go is None else rate * to_go,
        parts=parts,
        notes=(*notes, *_notes(resolved, parts, device)),
    )


def sentences(cost: StudyCost) -> tuple[str, ...]:
    """The whole in words."""
    told = [
        f"{counted(cost.trials, 'trial')}, {cost.finished} finished: "
        f"{count_text(cost.tokens)} tokens, {cost.flops:.3g} training FLOPs."
    ]
    if cost.device is not None and cost.memory_bytes is not None:
        told.append(
            f"The largest trial needs {bytes_text(cost.memory_bytes)}: it "
            f"{'fits' if cost.fits else 'does not fit'} the {bytes_text(cost.device.memory)} of "
            f"{cost.device.name}."
        )
    if cost.seconds is not None and cost.device_hours is not None:
        told.append(
            f"One after another its trials train for {seconds_text(cost.seconds)}: "
            f"{_hours(cost.device_hours)} device hours, {_hours(cost.device_hours_to_go)} of them "
            "to go."
        )
    if cost.money is not None and cost.money_to_go is not None:
        told.append(
            f"At {cost.price_per_hour:g} for a device hour that is {_money(cost.money)}, "
            f"{_money(cost.money_to_go)} of it to go."
        )
    return (*told, *cost.notes)


def _hours(hours: float | None) -> str:
    if hours is None:
        return "an unknown number"
    return f"{hours:,.0f}" if hours >= 1000 else f"{hours:.3g}"


def _money(amount: float) -> str:
    return f"{amount:,.2f}" if amount >= 0.005 or not amount else "less than 0.01"


def _parts(resolved: ResolvedStudy, recorded: Sequence[Row]) -> list[tuple[Part, TrialConfig]]:
    """Each part without its times, and a trial of it."""
    study = resolved.study
    done = Counter(
        (row.label, row.shape) for row in belonging(resolved, recorded) if row.status != "failed"
    )
    extra = len(study.search.learning_rates) - 1
    bare: list[tuple[Part, TrialConfig]] = []
    for design in study.designs:
        label = label_of(design)
        searched = resolved.search_shape(label)
        for shape in resolved.shapes[label]:
            trial = resolved.trial(design, shape, study.search.learning_rates[0], study.seeds[0])
            trials = len(study.seeds) + (extra if shape == searched else 0)
            bare.append((_part(trial, label, trials, done[label, shape]), trial))
    return bare


def _part(trial: TrialConfig, label: str, trials: int, finished: int) -> Part:
    train = trial.train
    tokens = train.steps * train.sequences * train.length
    return Part(
        label=label,
        shape=trial.model.shape,
        trials=trials,
        finished=min(finished, trials),
        parameters=count_parameters(trial.model).total,
        tokens=tokens,
        flops=training_flops(trial, tokens),
        memory_bytes=None,
        seconds=None,
        device_seconds=None,
        source=None,
    )


def _with_dtype(trial: TrialConfig, dtype: str | None) -> TrialConfig:
    if dtype is None:
        return trial
    return trial.model_copy(update={"train": trial.train.model_copy(update={"dtype": dtype})})


def _training_cost(job: tuple[TrialConfig, DeviceSpec]) -> TrainingCost:
    return training_cost(*job)


def _modelled(part: Part, cost: TrainingCost, devices: float) -> Part:
    found = {
        "memory_bytes": cost.memory_bytes,
        "seconds": cost.seconds / max(1.0, devices),
        "device_seconds": cost.seconds,
        "source": "modelled",
    }
    return part.model_copy(update=found)


def _measured(
    parts: Sequence[Part], speeds: dict[tuple[str, Shape], float], devices: float
) -> tuple[Part, ...]:
    """With times from tokens per second; where a shape has none, from the others' FLOP/s."""
    own = [speeds.get((part.label, part.shape)) for part in parts]
    rates = [
        speed * part.flops / part.tokens for part, speed in zip(parts, own, strict=True) if speed
    ]
    if not rates:
        return tuple(parts)
    usual = statistics.median(rates)
    found = []
    for part, speed in zip(parts, own, strict=True):
        seconds = part.tokens / speed if speed else part.flops / usual
        times = {"seconds": seconds, "device_seconds": seconds * devices}
        source = {"source": "measured" if speed else "scaled"}
        found.append(part.model_copy(update=times | source))
    return tuple(found)


def _speeds(recorded: Iterable[Row], train: TrainConfig) -> dict[tuple[str, Shape], float]:
    """Median tokens per second of finished trials, by design and shape."""
    wanted = train.resolved()
    found: dict[tuple[str, Shape], list[float]] = {}
    for row in recorded:
        trained = row.config.get("train", {})
        alike = all(trained.get(name) == wanted[name] for name in SPEED)
        if alike and row.status == "done" and row.tokens_per_second:
            found.setdefault((row.label, row.shape), []).append(row.tokens_per_second)
    return {key: statistics.median(speeds) for key, speeds in found.items()}


def _devices(resolved: ResolvedStudy, device: DeviceSpec | None) -> float:
    """GPUs of one trial; processes on a CPU share it."""
    resources, train = resolved.study.resources, resolved.study.train
    on_cpu = train.device == "cpu" if device is None else device.kind == "cpu"
    return 1.0 if on_cpu else resources.gpus or resources.processes


def _total(parts: Sequence[Part], trials: Sequence[int]) -> float | None:
    """Device hours of so many trials of each part; None unless all are known."""
    hours = [
        count * part.device_seconds / 3600
        for part, count in zip(parts, trials, strict=True)
        if part.device_seconds is not None
    ]
    return sum(hours) if len(hours) == len(parts) else None


def _notes(resolved: ResolvedStudy, parts: Sequence[Part], device: DeviceSpec | None) -> list[str]:
    notes = []
    sources = Counter(part.source for part in parts)
    if sources[None]:
        notes.append(
            "No time is known: no trial of this training has finished. Name a device with "
            "--device-spec, or train one trial first."
        )
    if sources["scaled"]:
        notes.append(
            f"Times of {counted(sources['scaled'], 'shape')} without a finished trial are scaled "
            "by training FLOPs from the others'."
        )
    if sources["modelled"] or sources["measured"]:
        notes.append("Times are those of training steps: validation and start-up come on top.")
    if device is not None and _devices(resolved, device) > 1:
        notes.append(
            f"{_devices(resolved, device):g} devices share a trial without loss, and memory is "
            "that of one device that holds it all."
        )
    return notes
