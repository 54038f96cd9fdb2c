"""Models and readers for the tests of evaluations."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import TemplateProcessing

from depthbench.check.subject import random_model
from depthbench.data.tokenizer import ByteTokenizer
from depthbench.designs import parse_design
from depthbench.evals.measure import Machinery
from depthbench.evals.programs import Edit
from depthbench.marks import Marks
from depthbench.nn.model import Model, ModelConfig
from depthbench.probes.own import OwnSubject
from depthbench.probes.program import plain
from depthbench.probes.reader import Reader
from depthbench.shapes import Shape
from tests.probes.tiny import GROUPED, random_of


def bytes_model(design: Any = "prenorm", layers: int = 4, seed: int = 0) -> Model:
    """Random, in float64, over bytes and the document token."""
    shape = Shape(layers=layers, width=16, heads=2, kv_heads=2, ffn=24, vocab=257)
    marks = Marks(document=256)
    config = ModelConfig(shape=shape, design=parse_design(design), marks=marks)
    return random_model(config, seed).eval()


def reader_of() -> Reader:
    """Bytes, with a document token."""
    coder = ByteTokenizer()
    return Reader(
        coder, lambda policy: None if policy == "never" else coder.document, None, coder.vocab
    )


def machinery_of(model: Model, edits: Sequence[Edit] = (), **settings: Any) -> Machinery:
    """The plain program unless ``edits`` are given."""
    subject = OwnSubject(model, "test")
    every = list(edits) or [Edit("plain", plain(subject.layers))]
    return Machinery(subject, every, **settings)


def byte_llama(folder: Path, rows: int, *, begins: bool = False, **changes: Any) -> Any:
    """A tiny LLaMA of ``rows`` rows, written beside a tokenizer of 259 tokens over bytes.

    ``begins``: the tokenizer puts ``<s>`` in front of a text by itself.
    """
    words = {sign: n + 3 for n, sign in enumerate(sorted(ByteLevel.alphabet()))}
    words |= {"<pad>": 0, "<s>": 1, "</s>": 2}
    inner = tokenizers.Tokenizer(BPE(vocab=words, merges=[]))
    inner.pre_tokenizer = ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    inner.add_special_tokens(["<pad>", "<s>", "</s>"])
    if begins:
        inner.post_processor = TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    coder = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )
    coder.save_pretrained(folder)
    settings = GROUPED | {"vocab_size": rows, "max_position_embeddings": 48} | changes
    model = random_of(transformers.LlamaConfig(**settings))
    model.save_pretrained(folder)
    return model.eval()


@torch.no_grad()
def loss_at(model: Model, row: Sequence[int], place: int, blocks: Sequence[int]) -> float:
    """``-ln p(row[place] | row[:place])`` by the model's own forward."""
    logits = model(torch.tensor([list(row[:place])]), program=list(blocks))[0, -1]
    return float(torch.logsumexp(logits, 0) - logits[row[place]])
