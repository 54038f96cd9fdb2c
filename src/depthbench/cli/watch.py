"""``depthbench watch``: a run or a study while it goes on."""

import json
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from depthbench.watch.place import View, Watched
from depthbench.watch.screen import picture

EXAMPLE = """Examples:

depthbench watch runs/run

depthbench watch runs/demo --once --json
"""


def register(app: typer.Typer) -> None:
    """Add the command ``watch`` to ``app``."""
    app.command("watch", epilog=EXAMPLE)(watch)


def watch(
    run: Annotated[Path, typer.Argument(help="Folder of a run, of a trial or of a study.")],
    once: Annotated[
        bool, typer.Option("--once", help="Print one view; so without a terminal.")
    ] = False,
    every: Annotated[float, typer.Option("--every", min=0.1, help="Seconds between looks.")] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one view as JSON.")] = False,
) -> None:
    """Show loss, learning rate, speed, time left and findings until the run ends.

    Reads the folder only: start it and end it (Ctrl-C) whenever you like.
    """
    watched, console = Watched(run), Console()
    if as_json:
        typer.echo(json.dumps(watched.look().resolved(), indent=2))
        return
    if once or not console.is_terminal:
        console.print(picture(watched.look()))
        return
    try:
        _follow(watched, console, every)
    except KeyboardInterrupt:
        # the way to leave: the run is not touched
        return


def _follow(watched: Watched, console: Console, every: float) -> View:
    """Show it until it is over; the last view stays on the screen."""
    view = watched.look()
    with Live(picture(view), console=console, auto_refresh=False) as live:
        while not view.over:
            time.sleep(every)
            view = watched.look()
            live.update(picture(view), refresh=True)
    return view
