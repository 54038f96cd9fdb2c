"""Small subjects and texts for the tests of probes."""

from collections.abc import Sequence
from typing import Any

import torch

from depthbench.check.subject import random_model
from depthbench.designs import parse_design
from depthbench.marks import Marks
from depthbench.nn.model import Model, ModelConfig
from depthbench.probes.batch import Batch
from depthbench.probes.lab import Alone, Lab
from depthbench.probes.own import OwnSubject
from depthbench.probes.text import Text, TextFacts
from depthbench.probes.walk import Limits
from depthbench.shapes import Shape

VOCAB = 99


def random_own(design: Any = "prenorm", layers: int = 6, width: int = 32, seed: int = 0) -> Model:
    """In float64, with every parameter random."""
    shape = Shape(layers=layers, width=width, heads=4, kv_heads=2, ffn=24, vocab=VOCAB)
    marks = Marks(document=0, sentence_ends=(3, 4))
    config = ModelConfig(shape=shape, design=parse_design(design), marks=marks)
    return random_model(config, seed).eval()


def rows(lengths: Sequence[int], seed: int = 0) -> list[list[int]]:
    """Random tokens."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(1, VOCAB, (n,), generator=generator).tolist() for n in lengths]


def text_of(batches: Sequence[Batch]) -> Text:
    """A text of these batches."""
    facts = TextFacts(
        hash=str(hash(tuple(batch.tokens.numpy().tobytes() for batch in batches)))[:12],
        origin="random",
        domains=("random",),
        documents=sum(batch.rows for batch in batches),
        tokens=sum(int(batch.valid.sum()) for batch in batches),
        predicted=sum(int(batch.predicted.sum()) for batch in batches),
        bytes=None,
        length=max(batch.tokens.shape[1] for batch in batches),
        start_token=None,
    )
    return Text(tuple(batches), facts, ("random",) * facts.documents)


def in_batches(texts: Sequence[Sequence[int]], size: int, *, left: bool = False) -> Text:
    """Texts, ``size`` of them in a batch, padded on the right or ``left``."""
    numbers = range(0, len(texts), size)
    return text_of(
        [
            Batch.of_rows(
                texts[n : n + size],
                [[1] * len(one) for one in texts[n : n + size]],
                range(n, min(n + size, len(texts))),
                left=left,
            )
            for n in numbers
        ]
    )


def lab_of(model: Model, text: Text, limits: Limits | None = None) -> Lab:
    """Alone and without a folder."""
    subject = OwnSubject(model, "test")
    return Lab(subject, text, Alone(subject, text, limits or Limits()))
