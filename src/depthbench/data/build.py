"""Tokenise a corpus once into shards and a manifest."""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from depthbench.config import digest_of
from depthbench.data import installed, own, tokenizer
from depthbench.data.config import DataConfig
from depthbench.data.loss import unigram_nats
from depthbench.data.manifest import FILE, DomainFacts, Manifest, Shard, document_policy
from depthbench.data.selection import Selection, select
from depthbench.data.sources import Document, Source
from depthbench.errors import DepthbenchError
from depthbench.files import save_atomic, write_atomic

Dtype = Literal["<u2", "<u4"]
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
    manifest = Manifest(
        hash=_hash(config, tokenizer_hash, facts),
        config=config.resolved(),
        tokenizer=coder.description,
        tokenizer_hash=tokenizer_hash,
        vocab=coder.vocab,
        ln_vocab=math.log(coder.vocab),
        document_token=coder.document,
        document_policy=document_policy(coder.document),
        sentence_ends=coder.sentence_ends,
        origin=corpus.origin,
        domains=tuple(facts),
    )
    write_atomic(folder / FILE, manifest.model_dump_json(indent=1) + "\n")


def _hash(config: DataConfig, tokenizer_hash: str | None, facts: list[DomainFacts]) -> str:
    # without paths: the same text gives the same hash in another folder
    settings = {k: v for k, v in config.resolved().items() if k not in {"paths", "tokenizer"}}
    shards = [
        [f.name, f.train.sha256, f.validation.sha256, f.validation_sizes.sha256] for f in facts
    ]
    identity = [settings, tokenizer_hash, shards]
    return digest_of(identity) + digest_of([identity, "second half"])[:4]


def _write_domain(
    selection: Selection, coder: tokenizer.Tokenizer, folder: Path, number: int
) -> DomainFacts:
    dtype: Dtype = "<u2" if coder.vocab <= 2**16 else "<u4"
    counts = np.zeros(coder.vocab, np.int64)
    ids = _counted(selection.train, coder, counts)
    train = _write_shard(folder / f"{number:02d}.train.bin", ids, dtype)
    encoded = [_with_document_token(document, coder) for document in selection.validation]
    validation = _write_shard(
        folder / f"{number:02d}.validation.bin", (ids for ids, _ in encoded), dtype
    )
    sizes = _write_shard(
        folder / f"{number:02d}.validation-sizes.bin", (sizes for _, sizes in encoded), "<u4"
    )
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
        train=train,
        validation=validation,
        validation_sizes=sizes,
        notes=tuple(selection.notes),
    )


def _counted(
    documents: list[Document], coder: tokenizer.Tokenizer, counts: NDArray[np.int64]
) -> Iterator[NDArray[np.int64]]:
    for document in documents:
        ids, _ = _with_document_token(document, coder)
        counts += np.bincount(ids, minlength=len(counts))
        yield ids


def _with_document_token(
    document: Document, coder: tokenizer.Tokenizer
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    encoded = coder.encode(document)
    return (
        np.concatenate([[coder.document], encoded.ids]),
        np.concatenate([[0], encoded.sizes]),
    )


def _write_shard(path: Path, chunks: Iterable[NDArray[np.int64]], dtype: Dtype) -> Shard:
    digest = hashlib.sha256()
    size = 0

    def save(temporary: str) -> None:
        nonlocal size
        with Path(temporary).open("wb") as file:
            for chunk in chunks:
                data = chunk.astype(dtype).tobytes()
                digest.update(data)
                size += len(data)
                file.write(data)

    save_atomic(path, save)
    return Shard(file=path.name, dtype=dtype, size=size, sha256=digest.hexdigest())


def check_shard(folder: Path, shard: Shard) -> Path:
    """Path of ``shard``, once its size and hash agree with the manifest.

    Raises `DepthbenchError` if they do not.
    """
    path = folder / shard.file
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DepthbenchError(
            f"{path} cannot be read: {error.strerror or error}. Prepare the data again"
        ) from None
    if path.stat().st_size != shard.size or found != shard.sha256:
        raise DepthbenchError(
            f"{path} is not what the manifest says (size or hash differs): prepare the data again"
        )
    return path
