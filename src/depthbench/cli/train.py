"""``depthbench train``: one model, with checkpoints that training goes on from."""

import json
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from depthbench.cli.options import Log
from depthbench.cli.run import interrupt
from depthbench.config import SEEDS, override, read_toml
from depthbench.data.dataset import Dataset, default_cache, prepare
from depthbench.errors import DepthbenchError
from depthbench.machine import prepare_process
from depthbench.study.claim import LOCK, OWNER
from depthbench.study.run import explicit, locked
from depthbench.study.single import RunConfig, train_single
from depthbench.study.store import Row
from depthbench.study.words import counted
from depthbench.train.group import joined
from depthbench.train.outcome import Outcome, Stopped
from depthbench.train.stop import Stop
from depthbench.train.team import Team
from depthbench.train.trackers import parse_trackers

EXAMPLE = """Examples:

depthbench train design=hc shape.layers=8 shape.width=64 train.tokens=2e6

depthbench train mine.toml train.save_every=100 --resume never

depthbench train --init runs/converted data.paths=["mine.txt"] data.tokenizer=runs/converted

torchrun --nproc_per_node 2 -m depthbench train design=attnres parallel=fsdp
"""


def register(app: typer.Typer) -> None:
    """Add the command ``train`` to ``app``."""
    app.command("train", epilog=EXAMPLE)(train)


def train(
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE.toml] [KEY=VALUE]...", help="A run's file, and settings."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder that runs are written to.")] = Path(
        "runs"
    ),
    resume: Annotated[
        str, typer.Option("--resume", help="auto, never, or the folder of a checkpoint.")
    ] = "auto",
    init: Annotated[
        str | None,
        typer.Option("--init", help="Folder of a run or a converted model to begin with."),
    ] = None,
    device: Annotated[str | None, typer.Option("--device", help="cpu, cuda or auto.")] = None,
    dtype: Annotated[str | None, typer.Option("--dtype", help="float32, bfloat16 or auto.")] = None,
    compile_blocks: Annotated[
        bool, typer.Option("--compile", help="Compile blocks with torch.compile: for long runs.")
    ] = False,
    seed: Annotated[int | None, typer.Option("--seed", min=0, max=SEEDS - 1)] = None,
    log: Log = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Train one model. Ctrl-C or SIGTERM saves and ends; the same command goes on.

    Under torchrun its processes train one model together. A run that diverges is a result too:
    the exit code is 0, and the result's status says so.
    """
    given = [*(settings or []), *(["train.compile=true"] if compile_blocks else [])]
    given += [] if init is None else [f"init={json.dumps(init)}"]
    try:
        signal.signal(signal.SIGTERM, interrupt)
        prepare_process()
        config, trackers = _config(given, device, dtype, seed), parse_trackers(log)
        with joined(config.parallel, config.train.device) as team:
            _train(config, out / config.name, _resume(resume), trackers, team, as_json)
    except KeyboardInterrupt:
        # training hears of signals by its own handler
        if as_json:
            typer.echo(json.dumps(Stopped(steps=None).resolved(), indent=2))
        else:
            typer.echo("Stopped before training began; the same command starts it")
    return 0


def _train(
    config: RunConfig,
    folder: Path,
    resume: bool | Path,
    trackers: Sequence[str],
    team: Team,
    as_json: bool,
) -> None:
    console = Console(stderr=True, quiet=not team.main)
    with console.status("preparing") as status:
        dataset = _prepared(config, team, lambda text: status.update(text))
    stop = Stop()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    lock = locked(folder) if team.main else nullcontext()
    with _nothing_left(folder), lock, _progress(console) as progress:
        bar = progress.add_task(config.name, total=config.train.steps)
        outcome, row = train_single(
            config,
            dataset,
            folder,
            resume=resume,
            stop=stop,
            log=trackers,
            report=lambda steps, _: progress.update(bar, completed=steps),
            team=team,
        )
    for note in outcome.notes:
        console.print(note, highlight=False, markup=False, soft_wrap=True)
    if team.main:
        _tell(outcome, row, folder, as_json)


@contextmanager
def _nothing_left(folder: Path) -> Iterator[None]:
    """What is refused before anything begins leaves no folder behind."""
    there = folder.exists()
    try:
        yield
    except DepthbenchError:
        if not there and {path.name for path in folder.glob("*")} <= {LOCK, OWNER}:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _prepared(config: RunConfig, team: Team, say: Callable[[str], None]) -> Dataset:
    """The data: the main process prepares it, then all open it."""
    folder = prepare(config.data, default_cache(), say).folder if team.main else None
    return Dataset.open(team.told(folder or Path()), content=team.main)


def _config(
    settings: list[str], device: str | None, dtype: str | None, seed: int | None
) -> RunConfig:
    files = [one for one in settings if "=" not in one]
    tables = read_toml(Path(files[0])) if files else {}
    tables = override(tables, [*files[1:], *(one for one in settings if "=" in one)])
    for key, value in (("train.device", device), ("train.dtype", dtype)):
        if value is not None:
            tables = override(tables, [f'{key}="{value}"'])
    if seed is not None:
        tables["seed"] = seed
    config = RunConfig.parse(tables, files[0] if files else "train")
    return config.model_copy(update={"train": explicit(config.train)})


def _resume(text: str) -> bool | Path:
    return {"auto": True, "never": False}.get(text, Path(text))


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _tell(outcome: Outcome, row: Row | None, folder: Path, as_json: bool) -> None:
    if as_json:
        answer = Stopped(steps=outcome.steps) if row is None else row
        typer.echo(json.dumps(answer.resolved(), indent=2))
        return
    if row is None:
        typer.echo(f"{outcome.reason}; the same command goes on from there. Folder: {folder}")
        return
    loss = "" if row.loss is None else f", {row.loss.bits_per_byte:.3f} bits per byte"
    reason = "" if row.reason is None else f": {row.reason}"
    typer.echo(
        f"{row.label}: {row.status}{reason}{loss}, {counted(row.steps, 'step')}. Folder: {folder}"
    )
