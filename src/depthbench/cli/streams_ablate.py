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
from depthbench.cli.streams_models import check_text, check_tokens, check_trial, one_model
from depthbench.errors import DepthbenchError
from depthbench.machine import prepare_process
from depthbench.probes.load import load, open_model
from depthbench.probes.result import ProbeResult
from depthbench.probes.run import run_probes
from depthbench.probes.subject import Subject
from depthbench.probes.text import TextConfig
from depthbench.streams.ablation import Ablation, AblationPart
from depthbench.streams.bench import open_bench, retrained_ablation
from depthbench.streams.conclude import conclude
from depthbench.streams.tune import TuneConfig
from depthbench.streams.verdict import Verdict

ABLATE = """Examples:

depthbench streams ablate runs/run --streams 2,3 --layers 4:8

depthbench streams ablate runs/run --retrain --seeds 3 --steps 500 --workers 2
"""
TEXT = TextConfig.model_fields
TUNE = TuneConfig.model_fields
SEEDS = 3
"""Of re-training."""
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
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=1, help=f"Of re-training; {SEEDS} unless given.")
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            "--steps", min=1, help=f"Of re-training; {TUNE['steps'].default} unless given."
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            help="Peak rate of re-training over that of training; "
            f"{TUNE['rate'].default:g} unless given.",
        ),
    ] = None,
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
    check_tokens(config.tokens)
    tune = _recipe(again, seeds, steps, rate)
    console = Console(stderr=True)
    target = one_model(model, out)
    if again:
        check_trial(target.source, "Leave --retrain out, or ")
    with console.status("loading"):
        opened = open_model(target.source, device=device, dtype=dtype)
        text = opened.text(config)
    subject, say = opened.subject, partial(say_on, console)
    if subject.facts.streams == 1:
        raise DepthbenchError(
            f"{subject.facts.label}: the model has one residual stream, and it cannot be taken "
            "away. Name a model of hc, mhc, cascade or resi_dual"
        )
    check_text(subject, text, config.tokens)
    asked = _asked(subject, streams, keep, layers, pieces)
    results: list[ProbeResult] = []
    try:
        with progress_of(console, subject.facts.label) as hear:
            loading = partial(load, target.source, device=device, dtype=dtype)
            look = partial(
                run_probes, subject, text, make=loading, workers=workers, progress=hear, say=say
            )
            results += look([asked.model_copy(update={"seed": seed})], folder=target.folder)
            if again:
                make = partial(open_bench, target.source, config, device, dtype)
                trained = retrained_ablation(
                    make,
                    make(),
                    asked,
                    range(seed, seed + (seeds or SEEDS)),
                    tune,
                    target.folder / KEPT,
                    workers=workers,
                    hear=hear,
                )
                results += look([trained], folder=target.folder)
    except KeyboardInterrupt:
        console.print("Stopped: what is done is kept. The same command goes on.")
        return 130
    every = conclude(subject, text, target.folder, results, seed=seed, say=say)
    # of a part nothing is concluded: it is told alone, and the page has everything
    told = results if isinstance(asked, AblationPart) else every
    answer([told], [stream_page([every], target.folder)], as_json)
    return 0


def _recipe(again: bool, seeds: int | None, steps: int | None, rate: float | None) -> TuneConfig:
    """How to train on. Raises `DepthbenchError` for a recipe where nothing is trained."""
    given = {"seeds": seeds, "steps": steps, "rate": rate}
    named = [f"--{name} {one}" for name, one in given.items() if one is not None]
    if named and not again:
        raise DepthbenchError(
            f"{' '.join(named)}: nothing is trained without --retrain. Add it, or leave "
            f"{'them' if len(named) > 1 else 'it'} out"
        )
    many: int = TUNE["steps"].default if steps is None else steps
    chosen: dict[str, float] = {"steps": many, "warmup": min(100, max(1, many // 10))}
    if rate is not None:
        chosen["rate"] = rate
    return TuneConfig.parse(chosen, "ablate")


def _asked(
    subject: Subject, streams: str | None, keep: str | None, layers: str | None, pieces: int
) -> Ablation:
    """All of the ablation, or the part of it that was asked for.

    Raises `DepthbenchError` for streams and blocks that are not there.
    """
    count = subject.facts.streams
    kept = streams_of(keep, count, "keep")
    if kept is not None and len(kept) == count:
        raise DepthbenchError(
            f"keep = '{keep}' names all {count} streams, so none is taken away. Leave some out, or "
            "leave --keep out"
        )
    some = not (streams is None and layers is None)
    return (AblationPart if some else Ablation).parse(
        {
            "ranges": pieces,
            "layers": layers_of(layers, subject.layers),
            "streams": streams_of(streams, count),
            "keep": kept,
        },
        "ablate",
    )


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
