"""From any form that we read to a LLaMA folder or our own, and the check of what is there."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch

from depthbench.config import Frozen
from depthbench.designs.base import DesignConfig
from depthbench.errors import DepthbenchError
from depthbench.hub.card import card_of
from depthbench.hub.folder import check_new
from depthbench.hub.llama import export_llama
from depthbench.hub.own_folder import read_model, write_own
from depthbench.hub.source import Source, open_source
from depthbench.hub.upcycle import Distance, distance, upcycled
from depthbench.nn.model import Model
from depthbench.probes.hf_quiet import quiet

Form = Literal["llama", "depthbench"]
ROWS, LENGTH = 2, 16
"""Random tokens on which both are compared."""
SAME = {torch.float64: 1e-5, torch.float32: 1e-4}
"""Largest difference of logits, over the largest; LLaMA norms in float32 whatever the weights."""
COARSE = 0.05
"""The same for bfloat16: a few units of 2^-8, at every site."""


class Converted(Frozen):
    """What was written."""

    source: str
    folder: str
    form: Form
    design: str
    parameters: int
    tokenizer: bool
    distance: float
    """Largest difference of logits between what was read and what was written, over the largest
    logit, on random tokens."""
    notes: tuple[str, ...]
    upcycled: Distance | None = None
    """From what was read to the model of another design that begins with its weights."""


def convert(
    given: str,
    folder: str | Path,
    to: Form,
    dtype: torch.dtype = torch.float32,
    design: DesignConfig | None = None,
) -> Converted:
    """Read ``given``, write it to ``folder`` in another form, read that and compare the logits.

    With a ``design`` what is written is a model of that design with the weights of ``given``; see
    `depthbench.hub.upcycle`. Raises `DepthbenchError` for what cannot be read or said in that
    form, and if what was written is another function.
    """
    place = Path(folder)
    check_new(place)
    source = open_source(given, dtype)
    apart = None
    if design is not None:
        made = upcycled(source.model, design)
        apart = distance(source.model, made)
        source = replace(source, model=made)
    model, notes = source.model, list(source.notes)
    _check_numbers(model, given)
    if source.missing is not None:
        notes.append(source.missing)
    if to == "llama":
        if model.documents_apart:
            notes.append("a LLaMA does not keep documents apart: give it one at a time")
        export_llama(model, place, source.tokenizer, context=source.context, **_more(source, to))
    else:
        write_own(model, place, source.tokenizer, **_more(source, to))
    try:
        apart_from_read = _checked(source, place, to)
    except DepthbenchError:
        # a folder that is not the model must not be taken for it later
        shutil.rmtree(place)
        raise
    return Converted(
        source=given,
        folder=str(place),
        form=to,
        design=model.config.design.name,
        parameters=sum(one.numel() for one in model.parameters()),
        tokenizer=source.tokenizer is not None,
        distance=apart_from_read,
        notes=tuple(notes),
        upcycled=apart,
    )


def _more(source: Source, to: Form) -> dict[str, Any]:
    return {"unused": source.unused, "notes": source.notes, "card": card_of(source, to)}


def _check_numbers(model: Model, given: str) -> None:
    for name, one in model.named_parameters():
        if not one.isfinite().all():
            raise DepthbenchError(
                f"{given}: {name} holds values that are no finite numbers, so nothing was written. "
                "Take an earlier checkpoint"
            )


@torch.no_grad()
def _checked(source: Source, folder: Path, to: Form) -> float:
    model, dtype = source.model, source.model.embed.weight.dtype
    generator = torch.Generator().manual_seed(0)
    vocab = model.config.shape.vocab
    tokens = torch.randint(vocab, (ROWS, LENGTH), generator=generator)
    if model.documents_apart and to == "llama":
        # one document, as a LLaMA takes it
        tokens = torch.where(tokens == model.config.marks.document, (tokens + 1) % vocab, tokens)
    expected, found = model(tokens), _logits(folder, to, tokens, dtype)
    apart = ((found - expected).abs().max() / expected.abs().max()).item()
    if not apart <= SAME.get(dtype, COARSE):
        raise DepthbenchError(
            f"{folder} is not the model that was read: logits differ by {apart:.1e} of the "
            "largest. Its disk may be at fault: write it again, elsewhere"
        )
    return apart


def _logits(folder: Path, to: Form, tokens: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if to == "depthbench":
        return read_model(folder, dtype)(tokens)
    with quiet():
        from transformers import AutoModelForCausalLM

        return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)(tokens).logits
