"""``depthbench streams merge``: a checkpoint with fewer streams."""

import json
import signal
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from depthbench.cli.console import wide_console
from depthbench.cli.options import AsJson, Data, Device, Length, Seed, TextField, Tokens
from depthbench.cli.probe import progress_of, say_on
from depthbench.cli.run import interrupt
from depthbench.cli.streams_ablate import TEXT, stream_page, text_config
from depthbench.cli.streams_models import check_text, check_tokens, check_trial, refuse_study
from depthbench.errors import DepthbenchError
from depthbench.machine import prepare_process
from depthbench.probes.load import load
from depthbench.probes.run import read_results
from depthbench.streams import FOLDER
from depthbench.streams.bench import open_bench
from depthbench.streams.merge import WAYS, way_class
from depthbench.streams.merge.measure import ROUNDS
from depthbench.streams.merge.merged import Merged, MergedInto
from depthbench.streams.merge.plan import Alike, nearest_pairs, pairs_of
from depthbench.streams.merge.result import NAME, lines_of, words_of
from depthbench.streams.merge.run import check_free, merge

MERGE = """Examples:

depthbench streams merge runs/run --into 2 --way weight --out smaller

depthbench streams merge runs/run --pairs 3:1 --way copies --out exact
"""


def register(group: typer.Typer) -> None:
    """Add the command ``merge`` to ``group``."""
    group.command("merge", epilog=MERGE)(smaller)


def smaller(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A run or trial of ours.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of the merged model.")],
    way: Annotated[
        str, typer.Option("--way", help=f"{', '.join(WAYS)}: see docs/streams.md.")
    ] = "weight",
    into: Annotated[
        int | None,
        typer.Option("--into", help="Streams that are left; the most alike are merged."),
    ] = None,
    pairs: Annotated[
        str | None,
        typer.Option("--pairs", help="Instead: which goes into which, such as 3:1,2:0."),
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", min=1, help="Of training; the way's own unless given.")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", help="Peak rate over that of training; the way's own unless given."),
    ] = None,
    samples: Annotated[
        int, typer.Option("--samples", min=1, help="Sequences that norm gains are made from.")
    ] = 256,
    data: Data = None,
    text_field: TextField = TEXT["text_field"].default,
    tokens: Tokens = "16k",
    length: Length = TEXT["length"].default,
    device: Device = "cpu",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> int:
    """Merge streams, train on as the way wants, and write a normal checkpoint with fewer of them.

    A merge that was stopped or killed goes on when it is asked for again.
    """
    prepare_process()
    signal.signal(signal.SIGTERM, interrupt)
    check_free(out)
    config = text_config(data, text_field, tokens, length)
    check_tokens(config.tokens)
    refuse_study(model)
    check_trial(model)
    chosen = way_class(way)
    asked = {"steps": steps, "rate": rate}
    given = {name: one for name, one in asked.items() if one is not None}
    own = chosen(seed=seed)
    if own.tune is None and given:
        raise DepthbenchError(f"--way {way} trains nothing: leave {', '.join(given)} out")
    if own.tune is not None and given:
        own = chosen.parse({"seed": seed, "tune": {**own.tune.resolved(), **given}}, "merge")
    if into is None and pairs is None:
        raise DepthbenchError("name either --into (streams that are left) or --pairs")
    if into is not None and pairs is not None:
        raise DepthbenchError(
            f"--into {into} and --pairs {pairs} both say what is merged: leave one of them out"
        )
    console = Console(stderr=True)
    with console.status("loading"):
        bench = open_bench(model, config, device)
        count = bench.subject.facts.streams
        if count == 1:
            raise DepthbenchError(
                f"{bench.subject.facts.label}: the model has one residual stream, so there is "
                "nothing to merge"
            )
        check_text(bench.subject, bench.text, config.tokens)
        alike = Alike.measured(bench.lab())
        plan = pairs_of(pairs, count) if pairs is not None else nearest_pairs(alike, into or 0)
    total = 0 if own.tune is None else own.tune.steps
    try:
        with progress_of(console, bench.subject.facts.label) as hear:
            found = merge(
                bench,
                own,
                plan,
                out,
                alike=alike,
                samples=samples,
                hear=lambda step, _: hear("merging", step, total),
                say=partial(say_on, console),
            )
    except KeyboardInterrupt:
        console.print("Stopped: the same command goes on.")
        return 130
    _check_written(out, found, device)
    page = stream_page([read_results(out / FOLDER, {NAME})], out / FOLDER)
    if as_json:
        typer.echo(json.dumps(MergedInto(**dict(found), folder=str(out)).resolved(), indent=1))
    else:
        _tell(found, out, page)
    return 0


def _check_written(out: Path, found: Merged, device: str) -> None:
    """Read the folder back: what was written is what was measured."""
    written = load(out, device=device).facts.weights_hash
    if written != found.weights_hash:
        raise DepthbenchError(
            f"{out} does not hold what was measured (weights {written}, not "
            f"{found.weights_hash}). Its disk may be at fault: write it again, elsewhere"
        )


def _tell(found: Merged, out: Path, page: Path) -> None:
    first, *others = words_of(found)
    typer.echo(first)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("")
    for heading in ("before", "after", "change"):
        table.add_column(heading, justify="right")
    for line in lines_of(found):
        title = line.title if line.unit == line.title else f"{line.title}, {line.unit}"
        table.add_row(title, line.shown(line.before), line.shown(line.after), line.shown_change)
    wide_console(100).print(table)
    typer.echo(f"In brackets: the slowest and the fastest of {ROUNDS} rounds.")
    for words in others:
        typer.echo(words)
    typer.echo(f"Model: {out}")
    typer.echo(f"Report: {page}")
