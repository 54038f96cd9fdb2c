"""Tokenise a corpus once into shards and a manifest."""

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from depthbench.config import digest_of
from depthbench.data import installed, own, tokenizer
from depthbench.data.config import DataConfig
from depthbench.data.entropy import unigram_nats
from depthbench.data.manifest import FILE, DomainFacts, Manifest, data_hash, document_policy
from depthbench.data.selection import Selection, select
from depthbench.data.shards import token_dtype, write_shard
from depthbench.data.sources import Document, Source
from depthbench.files import write_atomic

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Corpus:
    """Domains that are known but not yet read."""

    domains: tuple[str, ...]
    origin: dict[str, str]
    fingerprint: str
    sources: Callable[[str], list[Source]]


def find_corpus(config: DataConfig) -> Corpus:
    """The installed corpus, or the user's files; reads no text.

    Raises `DepthbenchError` for paths that are missing or match nothing.
    """
    if not config.paths:
        versions = installed.fingerprint(config.domains)
        return Corpus(config.domains, versions, digest_of(versions), installed.sources)
    found = {domain.name: domain for domain in own.expand(config.paths, config.text_field)}
    prints = [domain.fingerprint for domain in found.values()]
    origin = {
        name: f"{domain.given} ({len(domain.sources)} files)" for name, domain in found.items()
    }
    return Corpus(tuple(found), origin, digest_of(prints), lambda name: found[name].sources)


def build(config: DataConfig, corpus: Corpus, folder: Path, progress: Progress) -> None:
    """Write the shards of ``corpus`` to ``folder``, and its manifest last.

    Content depends on config and corpus alone, so processes that build at the same time replace
    files by equal ones. All text is held in memory; ``megabytes`` caps it.

    Raises `DepthbenchError` for text that cannot be used or a folder that cannot be written.
    """
    seen: set[bytes] = set()
    selections: list[Selection] = []
    for name in corpus.domains:
        progress(f"reading {name}")
        sources = corpus.sources(name)
        selections.append(select(name, sources, config.validation_fraction, config.megabytes, seen))
    if config.tokenizer == "bpe":
        progress(f"training a BPE of {config.vocab} tokens")
    coder = tokenizer.make(config, [selection.train for selection in selections])
    facts: list[DomainFacts] = []
    for number, selection in enumerate(selections):
        progress(f"tokenising {selection.name}")
        facts.append(_write_domain(selection, coder, folder, number))
    tokenizer_hash = None
    if coder.json is not None:
        write_atomic(folder / "tokenizer.json", coder.json)
        tokenizer_hash = hashlib.sha256(coder.json.encode()).hexdigest()
    manifest = manifest_of(
        config.resolved(), coder, tokenizer_hash, facts, corpus.origin, corpus.fingerprint
    )
    write_atomic(folder / FILE, manifest.model_dump_json(indent=1) + "\n")


def manifest_of(
    settings: dict[str, Any],
    coder: tokenizer.Tokenizer,
    tokenizer_hash: str | None,
    facts: Sequence[DomainFacts],
    origin: dict[str, str],
    fingerprint: str,
) -> Manifest:
    """All that is known of a dataset whose shards are written."""
    return Manifest(
        hash=data_hash(settings, tokenizer_hash, facts),
        config=settings,
        tokenizer=coder.description,
        tokenizer_hash=tokenizer_hash,
        vocab=coder.vocab,
        ln_vocab=math.log(coder.vocab),
        document_token=coder.document,
        document_policy=document_policy(coder.document),
        sentence_ends=coder.sentence_ends,
        fingerprint=fingerprint,
        origin=origin,
        domains=tuple(facts),
    )


def _write_domain(
    selection: Selection, coder: tokenizer.Tokenizer, folder: Path, number: int
) -> DomainFacts:
    dtype = token_dtype(coder.vocab)
    counts = np.zeros(coder.vocab, np.int64)
    lengths: list[int] = []

    def counted() -> Iterator[NDArray[np.int64]]:
        for document in selection.train:
            ids, _ = with_document_token(document, coder)
            counts[:] += np.bincount(ids, minlength=len(counts))
            lengths.append(len(ids))
            yield ids

    def file(kind: str) -> Path:
        return folder / f"{number:02d}.{kind}.bin"

    train = write_shard(file("train"), counted(), dtype)
    train_lengths = write_shard(file("train-lengths"), [np.array(lengths)], "<u4")
    encoded = [with_document_token(document, coder) for document in selection.validation]
    validation = write_shard(file("validation"), (ids for ids, _ in encoded), dtype)
    validation_lengths = write_shard(
        file("validation-lengths"), [np.array([len(ids) for ids, _ in encoded])], "<u4"
    )
    sizes = write_shard(file("validation-sizes"), (sizes for _, sizes in encoded), "<u4")
    train_bytes = sum(len(document.data) for document in selection.train)
    entropy = unigram_nats(counts)
    return DomainFacts(
        name=selection.name,
        split=selection.split,
        documents=selection.documents,
        duplicates=selection.duplicates,
        train_documents=len(selection.train),
        validation_documents=len(selection.validation),
        train_tokens=int(counts.sum()),
        validation_tokens=sum(len(ids) for ids, _ in encoded),
        train_bytes=train_bytes,
        validation_bytes=sum(len(document.data) for document in selection.validation),
        unigram_nats_per_token=entropy,
        unigram_bits_per_byte=entropy * int(counts.sum()) / (math.log(2) * train_bytes),
        train=(train,),
        train_lengths=(train_lengths,),
        validation=(validation,),
        validation_lengths=(validation_lengths,),
        validation_sizes=(sizes,),
        notes=tuple(selection.notes),
    )


def with_document_token(
    document: Document, coder: tokenizer.Tokenizer
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Token ids of a document behind its document token, and the bytes of each."""
    encoded = coder.encode(document)
    return (
        np.concatenate([[coder.document], encoded.ids]),
        np.concatenate([[0], encoded.sizes]),
    )
