"""`depthbench run` and `depthbench demo`."""

import json
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from rich.console import Console

from depthbench.cli.dry_run import check_options, dry_run
from depthbench.cli.options import Log
from depthbench.cli.progress import StudyProgress
from depthbench.config import SEEDS, override
from depthbench.machine import prepare_process
from depthbench.studies import read_study
from depthbench.study.config import StudyConfig
from depthbench.study.engine import Place
from depthbench.study.engines import ENGINES
from depthbench.study.findings import Concluded
from depthbench.study.run import Study, open_study, train_study
from depthbench.study.store import Row
from depthbench.study.words import counted
from depthbench.train.trackers import parse_trackers

Out = Annotated[Path, typer.Option("--out", help="Folder that studies are written to.")]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers", min=1, help="Trials at once, at most; default: all there is room for."
    ),
]
EngineName = Annotated[
    str, typer.Option("--engine", help=f"What runs the trials: {', '.join(ENGINES)}.")
]
Address = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        help="Head node of a running Ray cluster (host:port, or auto); default: one is started "
        "on this machine for the time of the study.",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed", min=0, max=SEEDS - 1, help="Run with this seed only, instead of the file's."
    ),
]
Device = Annotated[str | None, typer.Option("--device", help="cpu, cuda or auto.")]
Dtype = Annotated[str | None, typer.Option("--dtype", help="float32, bfloat16 or auto.")]
Compile = Annotated[
    bool, typer.Option("--compile", help="Compile blocks with torch.compile: for long runs.")
]
Data = Annotated[
    list[str] | None,
    typer.Option("--data", help="Your own text: a file, folder or glob; once for each domain."),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume", help="Continue a folder whose config has changed; finished trials are kept."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="One line for every trial.")]
Published = Annotated[
    bool, typer.Option("--published", help="Lay the published 400M curves under ours.")
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Train nothing: print tokens, FLOPs, memory, time and money."),
]
Spec = Annotated[
    str | None,
    typer.Option(
        "--device-spec", help="With --dry-run: model times on h100, this, or a device's .json."
    ),
]
Price = Annotated[
    float | None,
    typer.Option("--price", min=0, help="With --dry-run: of an hour of one device, in EUR."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Settings to change, such as train.tokens=2e5."),
]


def register(app: typer.Typer) -> None:
    """Add `run` and `demo`."""
    app.command("run")(run)
    app.command("demo")(demo)


def run(
    study: Annotated[
        str,
        typer.Argument(help="A study file, or one of the package: demo, pocket, published-400m."),
    ],
    overrides: Overrides = None,
    data: Data = None,
    out: Out = Path("runs"),
    resume: Resume = False,
    workers: Workers = None,
    engine: EngineName = "local",
    ray_address: Address = None,
    seed: Seed = None,
    device: Device = None,
    dtype: Dtype = None,
    compile_blocks: Compile = False,
    published: Published = False,
    as_json: Json = False,
    verbose: Verbose = False,
    log: Log = None,
    dry: DryRun = False,
    device_spec: Spec = None,
    price: Price = None,
) -> int:
    """Run a study: search each design's learning rate, train all shapes, write the report.

    What is finished is never trained again: run the same command to continue after Ctrl-C.

    Example: depthbench run pocket train.tokens=200_000 --workers 2
    """
    check_options(dry, device_spec, price)
    tables = override(read_study(study), overrides or [])
    for key, value in (("device", device), ("dtype", dtype)):
        if value is not None:
            tables = override(tables, [f'train.{key}="{value}"'])
    if compile_blocks:
        tables = override(tables, ["train.compile=true"])
    if seed is not None:
        tables["seeds"] = [seed]
    if data:
        tables["data"] = _own_text(tables.get("data"), data)
    config = StudyConfig.parse(tables, study)
    if dry:
        return dry_run(config, out, device_spec, price, as_json)
    place = Place(engine, workers, ray_address, parse_trackers(log))
    return _run(config, out, resume, place, published, as_json, verbose)


def demo(
    overrides: Overrides = None,
    data: Data = None,
    out: Out = Path("runs"),
    resume: Resume = False,
    workers: Workers = None,
    engine: EngineName = "local",
    ray_address: Address = None,
    seed: Seed = None,
    device: Device = None,
    dtype: Dtype = None,
    compile_blocks: Compile = False,
    as_json: Json = False,
    verbose: Verbose = False,
    log: Log = None,
) -> int:
    """Minutes on two cores, no download: three designs, three shapes of 0.5 M parameters.

    Example: depthbench demo
    """
    return run(
        "demo",
        overrides=overrides,
        data=data,
        out=out,
        resume=resume,
        workers=workers,
        engine=engine,
        ray_address=ray_address,
        seed=seed,
        device=device,
        dtype=dtype,
        compile_blocks=compile_blocks,
        as_json=as_json,
        verbose=verbose,
        log=log,
    )


def _own_text(table: Any, paths: list[str]) -> Any:
    """The table ``data`` with ``paths`` in place of domains of the installed corpus."""
    if table is not None and not isinstance(table, dict):
        return table
    return {k: v for k, v in (table or {}).items() if k != "domains"} | {"paths": paths}


def _run(
    config: StudyConfig,
    out: Path,
    resume: bool,
    place: Place,
    published: bool,
    as_json: bool,
    verbose: bool,
) -> int:
    prepare_process()
    console = Console(stderr=True)
    signal.signal(signal.SIGTERM, interrupt)
    with console.status("preparing") as status:
        study = open_study(
            config, out, resume=resume, place=place, say=lambda text: status.update(text)
        )
    try:
        rows = train_all(study, place, console, verbose)
    except KeyboardInterrupt:
        done = len(study.settled())
        console.print(
            f"Stopped: {done} of {study.resolved.trials} trials are finished and kept. "
            "The same command continues.",
            highlight=False,
            soft_wrap=True,
        )
        return 130
    return _conclude(study, rows, published, as_json)


def interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt


def train_all(study: Study, place: Place, console: Console, verbose: bool) -> list[Row]:
    """Train what is missing, with bars on a terminal and a line for each trial that failed."""
    total, settled = study.resolved.trials, study.settled()
    already = len(settled)
    if already and console.is_terminal:
        console.print(f"{already} of {total} trials are already finished", highlight=False)

    def finished(row: Row) -> None:
        progress.finished(row)
        if verbose or row.status == "failed":
            console.print(line_of(row), highlight=False, markup=False, soft_wrap=True)

    tokens = study.resolved.study.train.tokens
    with StudyProgress(total, tokens, settled, console) as progress:
        return train_study(study, place=place, finished=finished, watch=progress.watch)


def line_of(row: Row) -> str:
    end = f"{row.loss.bits_per_byte:.3f} bits per byte" if row.loss else row.reason
    return (
        f"{row.id} {row.label} L{row.shape.layers} d{row.shape.width} "
        f"lr {row.learning_rate:g} seed {row.seed}: {row.status}, {end}"
    )


def _conclude(study: Study, rows: list[Row], published: bool, as_json: bool) -> int:
    # plotting libraries take a second to import, and every trial's process imports this module
    from depthbench.cli.conclusion import read_verdict, tell_verdict
    from depthbench.report.html import write_report

    files = write_report(study.folder, published=published)
    verdict = read_verdict(files.verdict)
    failed = sum(row.status == "failed" for row in rows)
    if as_json:
        typer.echo(
            json.dumps(Concluded(verdict=verdict, report=str(files.html)).resolved(), indent=2)
        )
    else:
        tell_verdict(verdict, files.html)
    if failed:
        print(f"{counted(failed, 'trial')} failed; the same command tries again", file=sys.stderr)
    return 1 if failed else 0
