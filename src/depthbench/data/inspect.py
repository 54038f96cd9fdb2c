"""What is in a prepared dataset, in numbers and in text."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from depthbench.config import Frozen
from depthbench.data.dataset import Dataset
from depthbench.data.entropy import unigram_nats
from depthbench.data.manifest import DomainFacts, Side
from depthbench.data.shards import Numbers
from depthbench.data.tokenizer import Tokenizer

SAMPLE_TOKENS = 200
CHUNK = 2**22


class SideFacts(Frozen):
    """One side of one domain."""

    domain: str
    side: Side
    documents: int
    tokens: int
    bytes: int
    shards: int
    longest: int
    """Tokens of the longest document."""
    unigram_nats_per_token: float
    unigram_bits_per_byte: float
    sample: str
    """Beginning of the first document."""


class Inspected(Frozen):
    """A dataset; its shards were compared with the manifest's hashes."""

    folder: str
    hash: str
    tokenizer: str
    tokenizer_hash: str | None
    vocab: int
    ln_vocab: float
    """Nats per token of a uniform guess."""
    document_token: int
    sides: tuple[SideFacts, ...]
    duplicates: dict[str, int]
    """By domain."""
    origin: dict[str, str]
    notes: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class _Part:
    """What `_side` needs of one side of one domain."""

    facts: DomainFacts
    side: Side
    tokens: Numbers
    lengths: Numbers


def inspect_folder(folder: Path) -> Inspected:
    """Read and check every shard of the dataset in ``folder``.

    Raises `DepthbenchError` if there is none, or one is not what the manifest says.
    """
    dataset = Dataset.open(folder)
    manifest, coder = dataset.manifest, dataset.tokenizer()
    sides: tuple[Side, Side] = ("train", "validation")
    parts = [
        _Part(facts, side, dataset.tokens(side)[number], dataset.lengths(side)[number])
        for number, facts in enumerate(manifest.domains)
        for side in sides
    ]
    return Inspected(
        folder=str(folder),
        hash=manifest.hash,
        tokenizer=manifest.tokenizer,
        tokenizer_hash=manifest.tokenizer_hash,
        vocab=manifest.vocab,
        ln_vocab=manifest.ln_vocab,
        document_token=manifest.document_token,
        sides=tuple(_side(part, coder) for part in parts),
        duplicates={facts.name: facts.duplicates for facts in manifest.domains},
        origin=manifest.origin,
        notes={facts.name: facts.notes for facts in manifest.domains if facts.notes},
    )


def _side(part: _Part, coder: Tokenizer) -> SideFacts:
    tokens, facts = part.tokens, part.facts
    counts = np.zeros(coder.vocab, np.int64)
    for start in range(0, len(tokens), CHUNK):
        chunk = tokens.window(start, min(CHUNK, len(tokens) - start))
        counts += np.bincount(chunk, minlength=len(counts))
    text = facts.train_bytes if part.side == "train" else facts.validation_bytes
    nats = unigram_nats(counts)
    lengths = part.lengths.window(0, len(part.lengths))
    start = tokens.window(0, min(int(lengths[0]), SAMPLE_TOKENS))
    return SideFacts(
        domain=facts.name,
        side=part.side,
        documents=len(lengths),
        tokens=len(tokens),
        bytes=text,
        shards=len(tokens.parts),
        longest=int(lengths.max()),
        unigram_nats_per_token=nats,
        unigram_bits_per_byte=nats * len(tokens) / (math.log(2) * text),
        sample=coder.decode(start.tolist()),
    )
