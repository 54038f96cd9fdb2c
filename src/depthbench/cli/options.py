"""Options that several commands share."""

from typing import Annotated

import typer

Log = Annotated[
    str | None,
    typer.Option("--log", help="Also send metrics to tensorboard, wandb or trackio; with commas."),
]
