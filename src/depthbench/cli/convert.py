"""``depthbench convert``: models in and out of other packages' formats."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer
from rich.console import Console

from depthbench.designs import parse_design
from depthbench.errors import DepthbenchError, unknown
from depthbench.machine import prepare_process
from depthbench.probes.load import DTYPES

if TYPE_CHECKING:
    from depthbench.hub.upcycle import Distance

EXAMPLE = """Examples:

depthbench convert runs/run llama --to llama

depthbench convert SmolLM2-135M.gguf smol --to depthbench

depthbench convert runs/demo/trials/0123456789ab hc --to hf

depthbench convert SmolLM2-135M.gguf smol-hc --to depthbench --design hc
"""
FORMS = {"llama": "llama", "hf": "depthbench", "depthbench": "depthbench"}


def register(app: typer.Typer) -> None:
    """Add the command ``convert`` to ``app``."""
    app.command("convert", epilog=EXAMPLE)(converted)


def converted(
    model: Annotated[
        str,
        typer.Argument(
            metavar="IN",
            help="A run or trial of ours, a folder that this command wrote, a LLaMA, Mistral, "
            "Qwen 2, Qwen 3 or OLMo 2 folder or name (owner/model), a .gguf file of one, or an "
            "OLMo-core checkpoint.",
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A new folder.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="llama: a plain LlamaForCausalLM, for prenorm, or the family that has its norms "
            "and biases. hf, or depthbench: our own model for transformers and for depthbench "
            "probe and generate.",
        ),
    ],
    design: Annotated[
        str | None,
        typer.Option(
            "--design",
            help="Begin a model of this design with the weights of a pre-norm one (upcycling); "
            "train it on with depthbench train --init OUT.",
        ),
    ] = None,
    dtype: Annotated[
        str, typer.Option("--dtype", help="float32, float64 or bfloat16.")
    ] = "float32",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write a model in another format, with its tokenizer and a card.

    What was written is read again, and its logits are compared.
    """
    if to not in FORMS:
        raise unknown("--to", to, FORMS)
    if dtype not in DTYPES:
        raise unknown("dtype", dtype, DTYPES)
    chosen = None if design is None else parse_design(design)
    if chosen is not None and FORMS[to] == "llama" and chosen.name != "prenorm":
        raise DepthbenchError(
            f"--design {design}: a LLaMA is a pre-norm model. Write it with --to depthbench"
        )
    prepare_process()
    # transformers takes seconds to import
    from depthbench.hub.convert import convert

    with Console(stderr=True).status("converting"):
        form = cast("Literal['llama', 'depthbench']", FORMS[to])
        found = convert(model, out, form, DTYPES[dtype], chosen)
    if as_json:
        typer.echo(json.dumps(found.resolved(), indent=1))
        return
    for note in found.notes:
        typer.echo(f"Note: {note}")
    if not found.tokenizer:
        typer.echo("Note: no tokenizer was found, so none was written")
    if found.upcycled is not None:
        typer.echo(_begun(found.design, found.upcycled))
    typer.echo(f"Read again: logits differ by {found.distance:.1e} of the largest.")
    typer.echo(f"Model: {out}")


def _begun(design: str, apart: "Distance") -> str:
    so = "equal up to rounding and norm_eps" if apart.promised is not None else "not its equal"
    return (
        f"Begins as a model of '{design}', {so}: on random tokens its logits differ from the "
        f"source's by up to {apart.largest:.1e} ({apart.relative:.1e} of their norm)."
    )
