"""``depthbench run --dry-run``: what a study costs, before anything trains."""

import json
from pathlib import Path

import torch
import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from depthbench.cli.console import tell
from depthbench.cores import cores
from depthbench.cost.devices import DeviceSpec, find_device
from depthbench.cost.study_cost import StudyCost, StudyForecast, sentences, study_cost
from depthbench.data.dataset import Progress, default_cache
from depthbench.data.vocabulary import Vocabulary, vocabulary_of
from depthbench.errors import DepthbenchError
from depthbench.families import VOCAB
from depthbench.files import user_path
from depthbench.machine import choose_dtype
from depthbench.marks import NO_MARKS
from depthbench.quantities import bytes_text, count_text, seconds_text
from depthbench.study.config import StudyConfig
from depthbench.study.plan import ResolvedStudy, resolve
from depthbench.study.run import FILE, explicit
from depthbench.study.store import Row
from depthbench.train.config import TrainConfig

WIDE = 140
"""Columns of the table where the output is no terminal that knows its own."""
UNREAD = "unread"
"""In place of the hash of data that nobody looked at."""


def check_options(dry_run: bool, device: str | None, price: float | None) -> None:
    """Raises `DepthbenchError` for options that only a dry run has."""
    given = [
        name for name, value in (("device-spec", device), ("price", price)) if value is not None
    ]
    if given and not dry_run:
        raise DepthbenchError(
            f"--{given[0]} says what a study would cost: add --dry-run, or leave it out"
        )


def dry_run(
    config: StudyConfig, out: Path, device: str | None, price: float | None, as_json: bool
) -> int:
    """Print what ``config`` costs; nothing is trained, and no result is written."""
    spec = None if device is None else find_device(device)
    cost = forecast(config, out, spec, price)
    words = sentences(cost)
    if as_json:
        answer = StudyForecast(**dict(cost), sentences=words)
        typer.echo(json.dumps(answer.resolved(), indent=1))
        return 0
    tell(_table(cost), words, WIDE)
    return 0


def forecast(
    config: StudyConfig, out: Path, device: DeviceSpec | None, price: float | None
) -> StudyCost:
    """The cost of ``config``, with what its folder under ``out`` already holds."""
    console, notes = Console(stderr=True), []
    with console.status("reading") as status:

        def say(text: str) -> None:
            status.update(text)
            if text.startswith("preparing the data"):
                notes.append(f"The vocabulary needed the text: {text.split(': ')[1]}.")

        vocabulary, unprepared = _vocabulary(config, say)
        dtype, assumed = _assumed(config.train, device)
        config = config.model_copy(update={"train": _explicit(config.train)})
        earlier, recorded = _recorded(out / config.name)
        known = vocabulary.data_hash
        if known is None and earlier is not None and earlier.study.data == config.data:
            known = earlier.data_hash
        status.update("solving shapes")
        resolved = resolve(config, known or UNREAD, vocabulary.size, vocabulary.marks)
        status.update("counting")
        return study_cost(
            resolved,
            recorded,
            device=device,
            dtype=dtype,
            price=price,
            notes=(*notes, *unprepared, *assumed),
            workers=cores(),
            hear=lambda done, of: status.update(f"modelling: {done} of {of} shapes"),
        )


def _vocabulary(config: StudyConfig, say: Progress) -> tuple[Vocabulary, list[str]]:
    """The data's, or a published family's where the data is still to be prepared, and so said."""
    prepared = config.data.prepared
    if config.shapes.family is None or prepared is None or user_path(prepared).exists():
        return vocabulary_of(config.data, default_cache(), say), []
    assumed = f"data.prepared = '{prepared}' is not there yet: its vocabulary is taken as the "
    return Vocabulary(VOCAB, NO_MARKS, None), [f"{assumed}published one, {VOCAB}."]


def _recorded(folder: Path) -> tuple[ResolvedStudy | None, list[Row]]:
    if not (folder / FILE).exists():
        return None, []
    # the report's modules take their time, and the command line imports this one
    from depthbench.report.study import read_study_folder

    return read_study_folder(folder)


def _explicit(train: TrainConfig) -> TrainConfig:
    """As trials that ran here were trained; a GPU that is elsewhere is taken to do bfloat16."""
    if train.device == "cuda" and not torch.cuda.is_available():
        dtype = "bfloat16" if train.dtype == "auto" else train.dtype
        return train.model_copy(update={"dtype": dtype})
    return explicit(train)


def _assumed(train: TrainConfig, device: DeviceSpec | None) -> tuple[str | None, list[str]]:
    """What ``auto`` means on a described device, and that it does."""
    if device is None or train.dtype != "auto":
        return None, []
    on_cpu = device.kind == "cpu"
    dtype = str(choose_dtype("auto", "cpu")[0]).removeprefix("torch.") if on_cpu else "bfloat16"
    return dtype, [f"train.dtype = auto is taken as {dtype} on {device.name}."]


def _table(cost: StudyCost) -> Table:
    where = f" on {cost.device.name}" if cost.device else ""
    table = Table(title=Text(f"{cost.study}: what it would cost{where}"), box=box.SIMPLE_HEAD)
    table.add_column("design")
    for column in (
        "layers",
        "width",
        "trials",
        "finished",
        "parameters",
        "tokens",
        "FLOPs a trial",
        "memory",
        "time a trial",
        "device hours",
        "time is",
    ):
        table.add_column(column, justify="right")
    for part in cost.parts:
        hours = None if part.device_seconds is None else part.trials * part.device_seconds / 3600
        table.add_row(
            Text(part.label),
            str(part.shape.layers),
            str(part.shape.width),
            str(part.trials),
            str(part.finished),
            f"{part.parameters:,}",
            count_text(part.tokens),
            f"{part.flops:.3g}",
            "–" if part.memory_bytes is None else bytes_text(part.memory_bytes),
            "–" if part.seconds is None else seconds_text(part.seconds),
            "–" if hours is None else f"{hours:.3g}",
            part.source or "–",
        )
    return table
