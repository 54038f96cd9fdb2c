"""``depthbench streams``: which residual streams carry information, which can go, and merging."""

import json
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from depthbench.cli import streams_ablate, streams_merge
from depthbench.cli.options import (
    AsJson,
    Blocks,
    Data,
    Device,
    Dtype,
    FinalNorm,
    HeadName,
    Length,
    Results,
    Seed,
    TextField,
    Tokens,
    Workers,
)
from depthbench.cli.probe import answer, measured, opened_with_text, say_on
from depthbench.cli.run import interrupt
from depthbench.cli.streams_ablate import TEXT, stream_page, text_config
from depthbench.cli.streams_models import NAMES, check_text, check_tokens, held
from depthbench.cli.targets import Target, targets
from depthbench.files import write_atomic
from depthbench.machine import prepare_process
from depthbench.probes.load import Parts, open_model
from depthbench.probes.result import ProbeResult
from depthbench.probes.run import read_results
from depthbench.redundancy import PROBES as OTHERS
from depthbench.redundancy.collapse import Collapse, collapse_by_size
from depthbench.streams import FOLDER, PROBES
from depthbench.streams.conclude import conclude, in_order
from depthbench.streams.sample import SampleConfig

EXAMPLE = "Example: depthbench streams diagnose runs/demo"
DIAGNOSE = """Examples:

depthbench streams diagnose runs/run

depthbench streams diagnose runs/demo --tokens 32k --workers 2
"""
REPORT = """Example:

depthbench streams report runs/a runs/b --out comparison

depthbench streams report runs/demo
"""
SAMPLE = SampleConfig.model_fields
Models = Annotated[
    list[str],
    typer.Argument(
        metavar="MODEL...",
        help="A run, trial or study of ours, a Hugging Face folder or name, or a .gguf file.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the group ``streams`` to ``app``."""
    group = typer.Typer(
        help="Which residual streams carry information, which can go, and merging them.",
        epilog=EXAMPLE,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    group.command("diagnose", epilog=DIAGNOSE)(diagnose)
    streams_ablate.register(group)
    streams_merge.register(group)
    group.command("report", epilog=REPORT)(report)
    app.add_typer(group, name="streams")


def diagnose(
    models: Models,
    data: Data = None,
    text_field: TextField = TEXT["text_field"].default,
    tokens: Tokens = "16k",
    length: Length = TEXT["length"].default,
    samples: Annotated[
        int, typer.Option("--samples", help="Tokens whose activations are looked at, about.")
    ] = SAMPLE["tokens"].default,
    depths: Annotated[
        int, typer.Option("--depths", help="Depths that are looked at, at most.")
    ] = SAMPLE["depths"].default,
    megabytes: Annotated[
        float, typer.Option("--megabytes", help="Of the activations of one depth, at most.")
    ] = SAMPLE["megabytes"].default,
    ranges: Annotated[
        int, typer.Option("--ranges", min=1, help="Ranges of blocks that streams are removed in.")
    ] = 4,
    out: Results = None,
    workers: Workers = 1,
    blocks: Blocks = None,
    norm: FinalNorm = None,
    head: HeadName = None,
    device: Device = "cpu",
    dtype: Dtype = "float32",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> int:
    """Measure what every stream carries, what streams share, and what the loss says without one.

    Models with one stream, mixtures of experts and hybrids get what applies to them: collapse of
    layers, load of experts, overlap of parts. Finished probes are kept.
    """
    prepare_process()
    signal.signal(signal.SIGTERM, interrupt)
    sample = {"tokens": samples, "depths": depths, "megabytes": megabytes}
    options: dict[str, dict[str, object]] = {
        "information": {"sample": sample},
        "shared": {"sample": sample},
        "ablation": {"ranges": ranges},
    }
    chosen = [
        one.parse({"seed": seed, **options.get(one.name, {})}, one.name)
        for one in (*PROBES, *OTHERS)
    ]
    config = text_config(data, text_field, tokens, length)
    check_tokens(config.tokens)
    parts = Parts(blocks=blocks, norm=norm, head=head)
    console = Console(stderr=True)
    found: list[list[ProbeResult]] = []
    todo = list(targets(models, out, FOLDER))
    try:
        for target in todo:
            make = partial(open_model, target.source, device=device, dtype=dtype, parts=parts)
            subject, text = opened_with_text(make, config, console)
            check_text(subject, text, config.tokens)
            fitting = [one for one in chosen if one.refusal(subject) is None]
            results = measured(subject, text, fitting, target.folder, make, workers, console)
            say = partial(say_on, console)
            found.append(conclude(subject, text, target.folder, results, say=say))
    except KeyboardInterrupt:
        console.print("Stopped: what is measured is kept. The same command goes on.")
        return 130
    answer(found, _pages(found, todo, out), as_json)
    return 0


def report(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            help="Models or studies that were diagnosed, or the folders of their results.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of the page of all models side by side.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Write the pages anew from what is measured, and one of all models side by side."""
    todo = [one for model in models for one in held(model)]
    found = [in_order(read_results(one.folder, NAMES)) for one in todo]
    answer(found, _pages(found, todo, out), as_json)
    return 0


def _pages(
    found: Sequence[Sequence[ProbeResult]], todo: Sequence[Target], out: Path | None
) -> list[Path]:
    pages = [
        stream_page([results], target.folder)
        for results, target in zip(found, todo, strict=True)
        if results
    ]
    if sum(map(bool, found)) > 1:
        places = {target.page for target in todo}
        # the models of one study are shown in the folder of their results
        own = places.pop() if len(places) == 1 else None
        place = out or own or Path("runs", FOLDER, "comparison")
        pages.append(stream_page(found, place))
        _by_size(found, place)
    return pages


def _by_size(found: Sequence[Sequence[ProbeResult]], place: Path) -> None:
    """Collapse of layers against the size of the models, in words and as JSON."""
    each = [one for results in found for one in results if one.probe == Collapse.name]
    if len(each) < 2:
        return
    seen = collapse_by_size(each)
    for words in seen.words:
        typer.echo(f"- collapse by size: {words}", err=True)
    data = {
        "models": [one.subject.label for one in each],
        "findings": [one.resolved() for one in seen.findings],
        "words": list(seen.words),
    }
    write_atomic(place / "collapse_by_size.json", json.dumps(data, indent=1) + "\n")
