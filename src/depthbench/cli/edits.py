"""Options that say which blocks run."""

from typing import Annotated

import typer

Skip = Annotated[str | None, typer.Option("--skip", help="Blocks to leave out: 10 or 3,4.")]
Swap = Annotated[str | None, typer.Option("--swap", help="Two blocks in each other's place: 3,9.")]
Repeat = Annotated[str | None, typer.Option("--repeat", help="A block that runs twice: 5.")]
Program = Annotated[
    str | None, typer.Option("--program", help="All blocks that run, in order: 0-9,12-23.")
]
