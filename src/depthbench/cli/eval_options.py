"""Options of ``depthbench eval``."""

from typing import Annotated

import typer

from depthbench.evals.published import PUBLISHED

Texts = Annotated[
    list[str] | None,
    typer.Option("--data", help="A file or folder of text, one domain each; repeatable."),
]
PairFiles = Annotated[
    list[str] | None,
    typer.Option("--pairs", help="JSONL of prompts and answers; repeatable."),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help=f"Published sets with commas: {', '.join(PUBLISHED)}. NAME@REVISION of the Hugging "
        "Face Hub, or NAME=FOLDER with a copy; repeatable.",
    ),
]
RowLength = Annotated[
    int | None,
    typer.Option("--length", min=2, help="Tokens of a row; as the model was trained, at most 512."),
]
Stride = Annotated[
    int | None,
    typer.Option("--stride", min=1, help="Tokens from row to row; half of --length unless given."),
]
BosPolicy = Annotated[
    str, typer.Option("--bos", help="Token that begins a text: always, document or never.")
]
Most = Annotated[
    str, typer.Option("--tokens", help="Tokens of each domain at most: 4096, 64k, 1M.")
]
PromptField = Annotated[str, typer.Option("--prompt-field", help="Key of the prompt in --pairs.")]
AnswerField = Annotated[str, typer.Option("--answer-field", help="Key of the answer in --pairs.")]
Join = Annotated[str, typer.Option("--join", help="Tokenise prompt and answer apart or together.")]
OwnTask = Annotated[
    bool, typer.Option("--task", help="The questions of the task that it was trained on.")
]
HarnessTasks = Annotated[
    list[str] | None,
    typer.Option("--lm-eval", help="A task of the lm-evaluation-harness; repeatable."),
]
IncludePath = Annotated[
    str | None, typer.Option("--include-path", help="Folder of --lm-eval tasks of your own.")
]
Limit = Annotated[
    int | None, typer.Option("--limit", min=1, help="Questions of each --set and --lm-eval task.")
]
Sweep = Annotated[
    str | None, typer.Option("--sweep", help="Every block in turn: skip, swap or repeat.")
]
Rows = Annotated[int, typer.Option("--batch", min=1, help="Rows that run together.")]
