"""``depthbench generate``: text from a trained trial."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer

from depthbench.cli.edits import Program, Repeat, Skip, Swap
from depthbench.config import SEEDS, Frozen
from depthbench.data.dataset import default_cache, find_dataset
from depthbench.data.sources import Document
from depthbench.data.tokenizer import HUB_FILE, Tokenizer
from depthbench.errors import DepthbenchError
from depthbench.evals.generate import generate_under
from depthbench.evals.programs import PLAIN, Asked, edits_of
from depthbench.hub.own_folder import is_own
from depthbench.machine import choose_device, prepare_process
from depthbench.nn.generate import Sampling, generate
from depthbench.nn.model import Model
from depthbench.probes.own import OwnSubject
from depthbench.train.load import load_trial

EXAMPLE = """Example:

depthbench generate runs/demo/trials/0123456789ab --prompt "def main" --tokens 200 --temperature 0.8

depthbench generate runs/demo/trials/0123456789ab --prompt "def main" --skip 2
"""


class Generated(Frozen):
    """What ``generate --json`` prints."""

    schema_version: Literal[1] = 1
    prompt: str
    text: str
    """What is new."""
    tokens: int
    """That are new, the one that ends a document counted."""
    ended: bool
    """Whether the document ended."""
    program: str
    blocks: tuple[int, ...]
    sampling: Sampling


def register(app: typer.Typer) -> None:
    """Add the command ``generate`` to ``app``."""
    app.command("generate", epilog=EXAMPLE)(text)


def text(
    trial: Annotated[
        Path,
        typer.Argument(help="Folder of a trial, with its weights, or of depthbench convert."),
    ],
    prompt: Annotated[str, typer.Option("--prompt", help="What to continue.")] = "",
    tokens: Annotated[
        int, typer.Option("--tokens", min=1, max=1_000_000, help="New tokens at most.")
    ] = 200,
    temperature: Annotated[
        float, typer.Option("--temperature", help="0 takes the most likely token.")
    ] = 0.0,
    top_k: Annotated[int | None, typer.Option("--top-k", help="Only so many tokens.")] = None,
    top_p: Annotated[float | None, typer.Option("--top-p", help="Only so much chance.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, max=SEEDS - 1)] = 0,
    skip: Skip = None,
    swap: Swap = None,
    repeat: Repeat = None,
    program: Program = None,
    device: Annotated[str, typer.Option("--device", help="cpu, cuda or auto.")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Continue a text with a trained model, as a new document, until that document ends."""
    prepare_process()
    sampling = Sampling.parse(
        {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}, "sampling"
    )
    place = choose_device(device)
    model, coder = _opened(trial)
    given = coder.encode(Document("the prompt", prompt.encode(errors="surrogateescape")))
    start = [coder.document, *given.ids.tolist()]
    asked = Asked(skip=skip, swap=swap, repeat=repeat, program=program)
    [edit] = edits_of(asked, model.config.shape.layers)
    how: dict[str, Any] = {"sampling": sampling, "stop": coder.document, "vocab": coder.vocab}
    if edit.label == PLAIN:
        prompts = torch.tensor([start], device=place)
        found = generate(model.to(place), prompts, tokens, **how)[0]
    else:
        subject = OwnSubject(model.to(place), str(trial))
        found = generate_under(subject, edit.program, start, tokens, **how)
    new = found[len(start) :].tolist()
    said = coder.decode(new)
    if as_json:
        answer = Generated(
            prompt=prompt,
            text=said,
            tokens=len(new),
            ended=coder.document in new,
            program=edit.label,
            blocks=tuple(edit.blocks),
            sampling=sampling,
        )
        typer.echo(json.dumps(answer.resolved(), ensure_ascii=False))
    else:
        typer.echo(prompt + said)


def _opened(folder: Path) -> tuple[Model, Tokenizer]:
    """The model and its tokenizer: a trial's, or those of a folder for transformers."""
    if (folder / "checkpoints").is_dir() or not is_own(folder):
        model, config = load_trial(folder)
        return model, find_dataset(config.data_hash, default_cache()).tokenizer()
    # transformers takes seconds to import
    from depthbench.hub.own_folder import read_own
    from depthbench.probes.pretrained_text import coder_of

    model, tokenizer = read_own(folder, torch.float32)
    if tokenizer is None:
        raise DepthbenchError(
            f"{folder} holds no tokenizer. Save the {HUB_FILE} that it was trained with there"
        )
    return model, coder_of(tokenizer, str(folder))
