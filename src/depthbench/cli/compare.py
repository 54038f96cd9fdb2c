"""``depthbench compare``: two runs on the same batches, seed by seed."""

import json
import signal
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from depthbench.cli.console import wide_console
from depthbench.cli.options import Log
from depthbench.cli.progress import StudyProgress
from depthbench.cli.run import Device, Dtype, Out, Overrides, Verbose, Workers, interrupt, line_of
from depthbench.machine import prepare_process
from depthbench.study.compare import (
    CompareConfig,
    Comparison,
    open_comparison,
    train_comparison,
)
from depthbench.study.contrast import Compared
from depthbench.study.engine import Place
from depthbench.study.sides import folder_name, parse_sides
from depthbench.study.single import RunConfig
from depthbench.study.store import Row
from depthbench.study.words import counted
from depthbench.train.trackers import parse_trackers

EXAMPLE = """Examples:

depthbench compare prenorm hc --seeds 3 shape.layers=8 train.tokens=2e5

depthbench compare a.toml b.toml

depthbench compare hc "hc mix=false learning_rate=1e-3"
"""
SIDE = 'A design, a run\'s .toml file, or either with settings: "hc mix=false".'
UNNAMED = RunConfig().name
DEFAULTS = CompareConfig.model_fields


def register(app: typer.Typer) -> None:
    """Add the command ``compare`` to ``app``."""
    app.command("compare", epilog=EXAMPLE)(compare)


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help=SIDE)],
    b: Annotated[str, typer.Argument(metavar="B", help=SIDE)],
    overrides: Overrides = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Pairs of trials.")] = 3,
    tolerance: Annotated[
        float,
        typer.Option("--tolerance", min=0, help="Share by which parameter totals may differ."),
    ] = DEFAULTS["parameter_tolerance"].default,
    fit: Annotated[
        bool, typer.Option("--fit/--no-fit", help="Narrow the larger side's feed-forward to fit.")
    ] = True,
    window: Annotated[
        int | None, typer.Option("--window", min=1, help="Steps that a point is the mean of.")
    ] = None,
    out: Out = Path("runs"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on in a folder whose config has changed.")
    ] = False,
    workers: Workers = None,
    device: Device = None,
    dtype: Dtype = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print comparison.json.")] = False,
    verbose: Verbose = False,
    log: Log = None,
) -> int:
    """Train A and B with the same seeds, data order and shared start, and compare them.

    Says which one has the lower loss only if three seeds show it beyond their noise. Unequal
    budgets are refused. Finished trials are kept: the same command goes on.
    """
    prepare_process()
    place = Place(workers=workers, log=parse_trackers(log))
    shared = list(overrides or [])
    shared += [f'train.{k}="{v}"' for k, v in (("device", device), ("dtype", dtype)) if v]
    (one, other), labels = parse_sides(a, b, shared)
    named = one.name == other.name != UNNAMED
    config = CompareConfig.parse(
        {
            "name": one.name if named else folder_name(labels),
            "labels": labels,
            "a": one.model_copy(update={"name": UNNAMED}),
            "b": other.model_copy(update={"name": UNNAMED}),
            "seeds": tuple(one.seed + number for number in range(seeds)),
            "parameter_tolerance": tolerance,
            "fit": fit,
            "window": window,
        },
        "compare",
    )
    console = Console(stderr=True)
    signal.signal(signal.SIGTERM, interrupt)
    with console.status("preparing") as status:
        comparison = open_comparison(
            config, out, resume=resume, say=lambda text: status.update(text)
        )
    for note in comparison.resolved.notes:
        console.print(f"{note}.", highlight=False, markup=False, soft_wrap=True)
    try:
        rows = _train(comparison, place, console, verbose)
    except KeyboardInterrupt:
        done, total = len(comparison.settled()), len(comparison.planned())
        console.print(
            f"Stopped: {done} of {total} trials are finished and kept. The same command goes on.",
            highlight=False,
            soft_wrap=True,
        )
        return 130
    return _conclude(comparison, rows, as_json, console)


def _train(comparison: Comparison, place: Place, console: Console, verbose: bool) -> list[Row]:
    def finished(row: Row) -> None:
        progress.finished(row)
        if verbose or row.status == "failed":
            console.print(line_of(row), highlight=False, markup=False, soft_wrap=True)

    total, tokens = len(comparison.planned()), comparison.config.a.train.tokens
    with StudyProgress(total, tokens, comparison.settled(), console) as progress:
        return train_comparison(comparison, place=place, finished=finished, watch=progress.watch)


def _conclude(comparison: Comparison, rows: list[Row], as_json: bool, console: Console) -> int:
    # plotting libraries take a second to import, and every trial's process imports this module
    from depthbench.report.compare import WIDE, comparison_table, write_comparison

    found, files = write_comparison(comparison)
    if as_json:
        answer = Compared(**dict(found), report=str(files.html))
        typer.echo(json.dumps(answer.resolved(), indent=2))
    else:
        screen = wide_console(WIDE)
        screen.print(comparison_table(found))
        screen.print(found.sentence, markup=False, highlight=False)
        for text in (*found.warnings, *found.facts):
            screen.print(f"- {text}", markup=False, highlight=False)
        screen.print(f"\nReport: {files.html}", markup=False, highlight=False, soft_wrap=True)
    failed = sum(row.status == "failed" for row in rows)
    if failed:
        text = f"{counted(failed, 'trial')} failed; the same command tries again"
        console.print(text, highlight=False, markup=False, soft_wrap=True)
    return 1 if failed else 0
