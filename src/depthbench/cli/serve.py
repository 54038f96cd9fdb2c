"""``depthbench serve``: the pages of running studies on this machine."""

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = """Examples:

depthbench serve runs

depthbench serve runs/demo --port 0
"""


def register(app: typer.Typer) -> None:
    """Add the command ``serve`` to ``app``."""
    app.command("serve", epilog=EXAMPLE)(serve)


def serve(
    runs: Annotated[Path, typer.Argument(help="A study, or a folder of studies.")] = Path("runs"),
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="0 takes one that is free.")
    ] = 8770,
) -> int:
    """Show studies in a browser while they run; the pages follow as trials finish.

    Only this machine can reach it, and it writes nothing. Ctrl-C ends it.
    """
    from depthbench.serve.pages import Pages
    from depthbench.serve.server import Server

    with Server(Pages(runs), port) as server:
        typer.echo(f"Studies in {runs}: {server.address} (Ctrl-C ends this)")
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            # the way to leave
            return 0
    return 0
