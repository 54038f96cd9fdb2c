"""``depthbench prune``: a model without the blocks that matter least."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from depthbench.cli.options import Blocks, FinalNorm, HeadName, TextField
from depthbench.cli.probe import count_of, progress_of
from depthbench.errors import DepthbenchError
from depthbench.files import write_atomic
from depthbench.machine import prepare_process
from depthbench.probes.heal import HealConfig
from depthbench.probes.load import Parts, load, open_model
from depthbench.probes.prune import Pruned, PrunedInto, prune
from depthbench.probes.text import TextConfig

EXAMPLE = """Examples:

depthbench prune runs/run --keep 3 --out smaller

depthbench prune HuggingFaceTB/SmolLM2-135M --keep 24 --by angular --out smol24 --heal 200
"""
HEAL = HealConfig.model_fields
TEXT = TextConfig.model_fields


def register(app: typer.Typer) -> None:
    """Add the command ``prune`` to ``app``."""
    app.command("prune", epilog=EXAMPLE)(smaller)


def smaller(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A run or trial of ours, a Hugging Face folder or name, a .gguf file, or an "
            "OLMo-core checkpoint.",
        ),
    ],
    keep: Annotated[int, typer.Option("--keep", help="Blocks that stay.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of the smaller model.")],
    by: Annotated[str, typer.Option("--by", help="loss, angular, causal or permutation.")] = "loss",
    data: Annotated[
        list[str] | None,
        typer.Option("--data", help="Text to choose and measure on; repeatable."),
    ] = None,
    text_field: TextField = TEXT["text_field"].default,
    tokens: Annotated[str, typer.Option("--tokens", help="Tokens of text: 4096, 64k.")] = "8k",
    length: Annotated[
        int, typer.Option("--length", min=2, help="Tokens of each document that are read.")
    ] = TEXT["length"].default,
    heal: Annotated[
        int, typer.Option("--heal", min=0, help="Steps of training afterwards, on half the text.")
    ] = 0,
    rate: Annotated[
        float, typer.Option("--learning-rate", help="Peak of the healing steps.")
    ] = HEAL["learning_rate"].default,
    blocks: Blocks = None,
    norm: FinalNorm = None,
    head: HeadName = None,
    device: Annotated[str, typer.Option("--device", help="cpu, cuda or auto.")] = "cpu",
    dtype: Annotated[str, typer.Option("--dtype", help="float32 or bfloat16.")] = "float32",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Leave out blocks, and write what is left as a model in the same format.

    Losses are those of the text before, after and, with --heal, after some training.
    """
    prepare_process()
    _check_empty(out)
    config = HealConfig.parse({"steps": heal, "learning_rate": rate}, "prune")
    asked = {
        "paths": tuple(data or ()),
        "text_field": text_field,
        "tokens": count_of(tokens),
        "length": length,
    }
    text_config = TextConfig.parse(asked, "prune")
    parts = Parts(blocks=blocks, norm=norm, head=head)
    console = Console(stderr=True)
    with console.status("loading"):
        opened = open_model(model, device=device, dtype=dtype, parts=parts)
        text = opened.text(text_config)
    with progress_of(console, opened.subject.facts.label) as hear:
        small, found = prune(opened.subject, text, keep, by, config, hear)
    small.write(out)
    write_atomic(out / "prune.json", found.model_dump_json(indent=1) + "\n")
    _check_written(out, small.facts.weights_hash if not heal else None, device, dtype)
    if as_json:
        typer.echo(json.dumps(PrunedInto(**dict(found), folder=str(out)).resolved(), indent=1))
    else:
        _tell(found, out)


def _check_empty(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DepthbenchError(f"{out} exists and is not empty. Name a new folder with --out")


def _check_written(out: Path, weights_hash: str | None, device: str, dtype: str) -> None:
    """Read the folder back: what was written is what was measured."""
    found = load(out, device=device, dtype=dtype).facts.weights_hash
    if weights_hash is not None and found != weights_hash:
        raise DepthbenchError(
            f"{out} does not hold what was measured (weights {found}, not {weights_hash}). "
            "Its disk may be at fault: write it again, elsewhere"
        )


def _tell(found: Pruned, out: Path) -> None:
    left = ", ".join(map(str, found.left_out))
    rows = [
        ("before", found.loss_before, found.bits_per_byte_before),
        ("after", found.loss_after, found.bits_per_byte_after),
    ]
    if found.loss_healed is not None:
        words = f"healed, {found.heal.steps} steps"
        rows.append((words, found.loss_healed, found.bits_per_byte_healed))
    typer.echo(f"Left out by {found.by}: blocks {left}; {len(found.kept)} stay.")
    for words, nats, bits in rows:
        per_byte = "" if bits is None else f", {bits:.4f} bits per byte"
        typer.echo(f"{words}: {nats:.4f} nats per token{per_byte}")
    typer.echo(f"Model: {out}")
