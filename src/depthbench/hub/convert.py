"""From any form that we read to a LLaMA folder or our own, and the check of what is there."""

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
    if source.missing is not None:
        notes.append(source.missing)
    if to == "llama":
        if model.documents_apart:
            notes.append("a LLaMA does not keep documents apart: give it one at a time")
        export_llama(model, place, source.tokenizer, context=source.context, **_more(source, to))
    else:
        write_own(model, place, source.tokenizer, **_more(source, to))
    return Converted(
        source=given,
        folder=str(place),
        form=to,
        design=model.config.design.name,
        parameters=sum(one.numel() for one in model.parameters()),
        tokenizer=source.tokenizer is not None,
        distance=_checked(source, place, to),
        notes=tuple(notes),
        upcycled=apart,
    )


def _more(source: Source, to: Form) -> dict[str, Any]:
    return {"unused": source.unused, "notes": source.notes, "card": card_of(source, to)}


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
