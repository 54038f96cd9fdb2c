"""``depthbench init``: a study file with comments."""

import json
import tomllib
from pathlib import Path
from typing import Annotated

import typer

from depthbench.cli.options import AsJson
from depthbench.cores import cores

EXAMPLE = """Examples:

depthbench init mine.toml --minutes 20

depthbench init mine.toml --designs prenorm,mhc --params 1M --depths 2,6,12 --data texts/
"""


def register(app: typer.Typer) -> None:
    """Add the command ``init`` to ``app``."""
    app.command("init", epilog=EXAMPLE)(init)


def init(
    file: Annotated[Path, typer.Argument(help="The new file; its stem names the study.")],
    designs: Annotated[
        str, typer.Option("--designs", help="With commas; see depthbench designs.")
    ] = "prenorm,hc,attnres",
    params: Annotated[str, typer.Option("--params", help="Of every model: 500k, 2M.")] = "500k",
    depths: Annotated[str, typer.Option("--depths", help="Layers, with commas.")] = "2,4,12",
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Models of each shape.")] = 1,
    minutes: Annotated[float, typer.Option("--minutes", help="For the whole study.")] = 30.0,
    data: Annotated[list[str] | None, typer.Option("--data", help="Own text; repeatable.")] = None,
    as_json: AsJson = False,
) -> int:
    """Write a study file with comments, for your budget and this machine.

    Training tokens are reckoned from a few training steps of every model.
    """
    from rich.console import Console

    from depthbench.cli.numbers import numbers
    from depthbench.data.dataset import default_cache
    from depthbench.machine import prepare_process
    from depthbench.quantities import count_text, seconds_text
    from depthbench.study.config import StudyConfig
    from depthbench.study.draft import (
        DraftConfig,
        Drafted,
        Pace,
        check_new,
        draft_text,
        measure_pace,
        tokens_for,
        write_new,
    )

    prepare_process()
    check_new(file)
    config = DraftConfig.parse(
        {
            "name": file.stem,
            "designs": tuple(one.strip() for one in designs.split(",")),
            "params": params,
            "depths": numbers("depths", depths, int),
            "seeds": seeds,
            "minutes": minutes,
            "paths": tuple(data or ()),
        },
        "init",
    )
    workers = cores()
    bare = draft_text(config, file, 1_000_000, Pace(trials=1, seconds_per_token=1.0), workers)
    study = StudyConfig.parse(tomllib.loads(bare), "init")
    with Console(stderr=True).status("preparing") as status:
        pace = measure_pace(study, default_cache(), status.update)
    tokens = tokens_for(minutes, pace, workers)
    seconds = tokens * pace.seconds_per_token / workers
    write_new(file, draft_text(config, file, tokens, pace, workers))
    if as_json:
        answer = Drafted(file=str(file), trials=pace.trials, tokens=tokens, seconds=seconds)
        typer.echo(json.dumps(answer.resolved(), indent=1))
        return 0
    text = f"{pace.trials} trials of {count_text(tokens)} tokens, about {seconds_text(seconds)}"
    typer.echo(f"{file}: {text}")
    typer.echo(f"Next: depthbench run {file}")
    return 0
