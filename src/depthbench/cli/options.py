"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from depthbench.config import SEEDS

Log = Annotated[
    str | None,
    typer.Option("--log", help="Also send metrics to tensorboard, wandb or trackio; with commas."),
]
TextField = Annotated[str, typer.Option(help="Key or column that holds the text.")]
Blocks = Annotated[str | None, typer.Option(help="Where blocks are: model.layers.")]
FinalNorm = Annotated[str | None, typer.Option(help="Where the final norm is: model.norm.")]
HeadName = Annotated[str | None, typer.Option(help="Where the head is: lm_head.")]

Data = Annotated[
    list[str] | None,
    typer.Option("--data", help="Text instead of the model's own validation text; repeatable."),
]
Tokens = Annotated[str, typer.Option("--tokens", help="Tokens of text: 4096, 64k, 1M.")]
Length = Annotated[
    int, typer.Option("--length", min=2, help="Tokens of each document that are read.")
]
Workers = Annotated[int, typer.Option("--workers", min=1, help="Processes; each loads the model.")]
Results = Annotated[
    Path | None,
    typer.Option("--out", help="Folder of the results; beside the model unless given."),
]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda or auto.")]
Dtype = Annotated[str, typer.Option("--dtype", help="float32, float64 or bfloat16.")]
Seed = Annotated[int, typer.Option("--seed", min=0, max=SEEDS - 1)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
