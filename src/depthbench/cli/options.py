"""Options that several commands share."""

from typing import Annotated

import typer

Log = Annotated[
    str | None,
    typer.Option("--log", help="Also send metrics to tensorboard, wandb or trackio; with commas."),
]
TextField = Annotated[str, typer.Option(help="Key or column that holds the text.")]
Blocks = Annotated[str | None, typer.Option(help="Where blocks are: model.layers.")]
FinalNorm = Annotated[str | None, typer.Option(help="Where the final norm is: model.norm.")]
HeadName = Annotated[str | None, typer.Option(help="Where the head is: lm_head.")]
