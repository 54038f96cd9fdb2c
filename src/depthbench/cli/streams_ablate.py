"""``depthbench streams ablate``: the loss without streams, at once and after training on."""

import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from depthbench.cli.options import (
    AsJson,
    Data,
    Device,
    Dtype,
    Length,
    Results,
    Seed,
    TextField,
    Tokens,
    Workers,
)
from depthbench.cli.probe import answer, count_of, progress_of, say_on
from depthbench.cli.run import interrupt
from depthbench.cli.targets import targets
from depthbench.errors import DepthbenchError
from depthbench.machine import prepare_process
from depthbench.probes.load import load, open_model
from depthbench.probes.result import ProbeResult
from depthbench.probes.run import run_probes
from depthbench.probes.text import TextConfig
from depthbench.streams import FOLDER
from depthbench.streams.ablation import Ablation, AblationPart
from depthbench.streams.bench import open_bench, retrained_ablation
from depthbench.streams.conclude import conclude
from depthbench.streams.retrained import Retrained, RetrainedPart
from depthbench.streams.sites import ranges
from depthbench.streams.tune import TuneConfig
from depthbench.streams.verdict import Verdict

ABLATE = """Examples:

depthbench streams ablate runs/run --streams 2,3 --layers 4:8

depthbench streams ablate runs/run --retrain --seeds 3 --steps 500 --workers 2
"""
TEXT = TextConfig.model_fields
TUNE = TuneConfig.model_fields
KEPT = "retrained"
"""Folder of what was trained, inside that of the results."""


def register(group: typer.Typer) -> None:
    """Add the command ``ablate`` to ``group``."""
    group.command("ablate", epilog=ABLATE)(ablate)


def ablate(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A run or trial of ours, or a Hugging Face model."),
    ],
    streams: Annotated[
        str | None, typer.Option("--streams", help="Numbers with commas; all unless given.")
    ] = None,
    keep: Annotated[
        str | None, typer.Option("--keep", help="Also remove all but these, together.")
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option("--layers", help="Only blocks first:behind-the-last, such as 10:20."),
    ] = None,
    pieces: Annotated[
        int, typer.Option("--ranges", min=1, help="Ranges of blocks that depth is divided into.")
    ] = 4,
    again: Annotated[
        bool, typer.Option("--retrain", help="Also train on without them, and with all of them.")
    ] = False,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Of re-training.")] = 3,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Of re-training.")] = TUNE[
        "steps"
    ].default,
    rate: Annotated[
        float, typer.Option("--rate", help="Peak rate of re-training over that of training.")
    ] = TUNE["rate"].default,
    data: Data = None,
    text_field: TextField = TEXT["text_field"].default,
    tokens: Tokens = "16k",
    length: Length = TEXT["length"].default,
    out: Results = None,
    workers: Workers = 1,
    device: Device = "cpu",
    dtype: Dtype = "float32",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> int:
    """Take streams away: set to zero or to their mean, one, two, or all but one.

    Re-training is what decides whether a stream can go. What is done is kept, also a training
    that was stopped half way.
    """
    prepare_process()
    signal.signal(signal.SIGTERM, interrupt)
    config = text_config(data, text_field, tokens, length)
    tune = TuneConfig.parse(
        {"steps": steps, "rate": rate, "warmup": min(100, max(1, steps // 10))}, "ablate"
    )
    console = Console(stderr=True)
    [target] = targets([model], out, FOLDER)
    with console.status("loading"):
        opened = open_model(target.source, device=device, dtype=dtype)
        text = opened.text(config)
    subject, say = opened.subject, partial(say_on, console)
    if subject.facts.streams == 1:
        raise DepthbenchError(
            f"{subject.facts.label}: the model has one residual stream, and it cannot be taken "
            "away. Name a model of hc, mhc, cascade or resi_dual"
        )
    chosen = streams_of(streams, subject.facts.streams)
    span = layers_of(layers, subject.layers)
    some = not (streams is None and layers is None)
    probe = (AblationPart if some else Ablation).parse(
        {
            "seed": seed,
            "ranges": pieces,
            "layers": span,
            "streams": chosen,
            "keep": streams_of(keep, subject.facts.streams, "keep"),
        },
        "ablate",
    )
    results: list[ProbeResult] = []
    try:
        with progress_of(console, subject.facts.label) as hear:
            loading = partial(load, target.source, device=device, dtype=dtype)
            look = partial(
                run_probes, subject, text, make=loading, workers=workers, progress=hear, say=say
            )
            results += look([probe], folder=target.folder)
            if again:
                make = partial(open_bench, target.source, config, device, dtype)
                trained = retrained_ablation(
                    make,
                    make(),
                    chosen or range(subject.facts.streams),
                    [span] if span else [(0, subject.layers), *ranges(subject.layers, pieces)],
                    range(seed, seed + seeds),
                    tune,
                    target.folder / KEPT,
                    workers=workers,
                    hear=hear,
                    kind=RetrainedPart if some else Retrained,
                )
                results += look([trained], folder=target.folder)
    except KeyboardInterrupt:
        console.print("Stopped: what is done is kept. The same command goes on.")
        return 130
    every = conclude(subject, text, target.folder, results, seed=seed, say=say)
    answer([every], [stream_page([every], target.folder)], as_json)
    return 0


def text_config(data: list[str] | None, text_field: str, tokens: str, length: int) -> TextConfig:
    """The text that a command was asked to read."""
    asked = {"paths": tuple(data or ()), "tokens": count_of(tokens), "length": length}
    return TextConfig.parse(asked | {"text_field": text_field}, "streams")


def streams_of(text: str | None, count: int, name: str = "streams") -> tuple[int, ...] | None:
    """``2,3`` as numbers; None where nothing is named. Raises `DepthbenchError` for others."""
    if text is None:
        return None
    try:
        found = tuple(int(one) for one in text.split(","))
    except ValueError:
        found = ()
    if not found or not set(found) <= set(range(count)) or len(set(found)) < len(found):
        raise DepthbenchError(
            f"{name} = '{text}' must name some of 0 to {count - 1}, each once, such as "
            f"--{name} 0,{count - 1}"
        )
    return found


def layers_of(text: str | None, layers: int) -> tuple[int, int] | None:
    """``10:20`` as blocks 10 to 19; None where nothing is named.

    Raises `DepthbenchError` for others.
    """
    if text is None:
        return None
    first, _, second = text.partition(":")
    try:
        found = int(first or 0), int(second or layers)
    except ValueError:
        found = (-1, -1)
    if ":" not in text or not 0 <= found[0] < found[1] <= layers:
        raise DepthbenchError(
            f"layers = '{text}' must be two numbers from 0 to {layers}, the first block and the "
            f"one behind the last, such as --layers 0:{layers}"
        )
    return found


def stream_page(groups: Sequence[Sequence[ProbeResult]], folder: Path) -> Path:
    """The page of one model, or of several side by side; the verdict stands above all."""
    # plotting libraries take a second to import
    from depthbench.report.probes import write_probes

    return write_probes(groups, folder, Verdict.name)
