"""``depthbench eval tasks``: models trained from scratch on tasks that need depth."""

import json
import signal
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from depthbench.cli.console import wide_console
from depthbench.cli.numbers import numbers
from depthbench.cli.options import AsJson
from depthbench.cli.probe import count_of, progress_of
from depthbench.cli.run import interrupt, train_all
from depthbench.data.dataset import default_cache
from depthbench.evals.episodes import episodes
from depthbench.evals.task_study import TaskStudyConfig, tested
from depthbench.evals.tasks import TaskConfig
from depthbench.machine import prepare_process
from depthbench.study.engine import Place
from depthbench.study.run import Study, open_study
from depthbench.study.store import Row

EXAMPLE = """Examples:

depthbench eval tasks --task khop --designs prenorm,hc,attnres --params 300k --depths 2,8 --seeds 3

depthbench eval tasks --task brackets --ks 1,2,4,8
"""
TASK = TaskConfig.model_fields
STUDY = TaskStudyConfig.model_fields
WIDE = 110


def tasks(
    task: Annotated[
        str, typer.Option("--task", help="khop, arithmetic, brackets or pointers.")
    ] = "khop",
    designs: Annotated[str, typer.Option("--designs", help="With commas.")] = "prenorm,hc,attnres",
    params: Annotated[
        str, typer.Option("--params", help="Parameters of every model, such as 300k.")
    ] = STUDY["params"].default,
    depths: Annotated[str, typer.Option("--depths", help="Layers, with commas.")] = "2,8",
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Models of each shape.")] = 3,
    ks: Annotated[str, typer.Option("--ks", help="Steps of the questions.")] = "1,2,3,4",
    size: Annotated[
        int | None, typer.Option("--size", help="Letters, modulus, or kinds of brackets.")
    ] = None,
    questions: Annotated[
        int, typer.Option("--questions", min=1, help="Of each k, to train on.")
    ] = TASK["train"].default,
    tests: Annotated[
        int, typer.Option("--tests", min=1, help="Others of each k at most, to test with.")
    ] = TASK["test"].default,
    tokens: Annotated[str, typer.Option("--tokens", help="Training tokens of each model.")] = "1M",
    rates: Annotated[
        str, typer.Option("--learning-rate", help="Peak; several with commas are searched.")
    ] = "3e-3",
    sequences: Annotated[
        int, typer.Option("--sequences", min=1, help="Questions of a batch.")
    ] = STUDY["sequences"].default,
    name: Annotated[str | None, typer.Option("--name", help="Of the study's folder.")] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder of studies.")] = Path("runs"),
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Models at once; all cores unless given.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on in a folder whose settings have changed.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Train designs from scratch on a task whose answers take k steps, and test them.

    What is finished is kept: the same command goes on after Ctrl-C.
    """
    prepare_process()
    signal.signal(signal.SIGTERM, interrupt)
    given = {"task": task, "ks": numbers("ks", ks, int), "size": size}
    config = TaskStudyConfig.parse(
        {
            "name": name,
            "task": given | {"train": questions, "test": tests},
            "designs": tuple(designs.split(",")),
            "params": params,
            "depths": numbers("depths", depths, int),
            "seeds": seeds,
            "learning_rates": numbers("learning-rate", rates, float),
            "tokens": count_of(tokens),
            "sequences": sequences,
        },
        "eval tasks",
    )
    console = Console(stderr=True)
    with console.status("preparing"):
        dataset = episodes(config.task, default_cache())
        study = open_study(config.study(dataset), out, resume=resume)
    try:
        train_all(study, Place(workers=workers), console, False)
    except KeyboardInterrupt:
        console.print("Stopped: what is finished is kept. The same command goes on.")
        return 130
    return _test(study, console, as_json)


def _test(study: Study, console: Console, as_json: bool) -> int:
    # plotting takes a second to import
    from depthbench.report import write_report
    from depthbench.report.task_figure import write_task_figure

    with progress_of(console, study.resolved.study.name) as hear:
        for _ in tested(study, 64, hear):
            pass
    rows = study.store.rows()
    pages = write_task_figure(rows, study.folder, study.resolved.study.title)
    pages.append(write_report(study.folder).html)
    if as_json:
        typer.echo(json.dumps([row.resolved() for row in rows], indent=1))
        return 0
    out = wide_console(WIDE)
    out.print(_table(rows))
    for page in pages:
        out.print(f"Written: {page}", markup=False, highlight=False, soft_wrap=True)
    return 1 if any(row.status == "failed" for row in rows) else 0


def _table(rows: list[Row]) -> Table:
    """One line a trial."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("design")
    ks = list(dict.fromkeys(k for row in rows for k in row.accuracy))
    for heading in ("layers", "rate", "seed", *ks):
        table.add_column(heading, justify="right")
    for row in rows:
        cells = [str(row.shape.layers), f"{row.learning_rate:g}", str(row.seed)]
        for k in ks:
            one = row.accuracy.get(k)
            cells.append("–" if one is None else f"{one.share:.3f} [{one.low:.3f}, {one.high:.3f}]")
        table.add_row(escape(row.label), *(escape(cell) for cell in cells))
    return table
