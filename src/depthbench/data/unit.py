"""One unit of work: documents become tokens, with what later decides which of them are kept."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from depthbench.data.shards import Dtype
from depthbench.data.sources import Document, Source, UnreadableFile
from depthbench.data.tokenizer import ByteTokenizer, Tokenizer, read

RECORD = np.dtype([("hash", "<u8", 2), ("bytes", "<u8"), ("tokens", "<u4")])
"""A document: the first 16 bytes of its SHA-256, its bytes, its tokens with the document token."""
BATCH_BYTES = 2**18
"""Text that is given to the tokenizer at once."""


@dataclass(frozen=True)
class Unit:
    """Sources to read, and where they stand."""

    domain: int
    number: int
    sources: tuple[Source, ...]

    @property
    def key(self) -> str:
        """Name of its file."""
        return f"{self.domain:02d}-{self.number:06d}"


@dataclass(frozen=True)
class Job:
    """What a worker must know besides its units."""

    tokenizer: Path | None
    """None for bytes."""
    dtype: Dtype
    validation_fraction: float

    def coder(self) -> Tokenizer:
        """The tokenizer."""
        return ByteTokenizer() if self.tokenizer is None else read(self.tokenizer)


@dataclass(frozen=True)
class Made:
    """The documents of a unit in input order, duplicates included."""

    records: NDArray[Any]
    tokens: NDArray[Any]
    sizes: NDArray[Any]
    """Bytes of every token of the documents that validate."""
    left_out: tuple[str, ...]
    """Why files and documents were left out."""


def tokenise(unit: Unit, job: Job, coder: Tokenizer) -> Made:
    """Read and tokenise a unit.

    Raises `DepthbenchError` for text that cannot be used.
    """
    left_out: list[str] = []
    records: list[tuple[tuple[int, int], int, int]] = []
    tokens: list[NDArray[Any]] = []
    sizes: list[NDArray[Any]] = []
    for batch in _batches(_documents(unit, coder, left_out)):
        hashes = hashes_of(batch)
        chosen = validates(hashes, job.validation_fraction)
        sized = iter(coder.encode_many(list(compress(batch, chosen))))
        others = iter(coder.ids_of(list(compress(batch, ~chosen))))
        for document, words, kept in zip(batch, hashes.tolist(), chosen, strict=True):
            if kept:
                coded = next(sized)
                ids = coded.ids
                sizes += [np.zeros(1, "<u4"), coded.sizes.astype("<u4")]
            else:
                ids = next(others)
            records.append((tuple(words), len(document.data), len(ids) + 1))
            tokens += [np.array([coder.document], job.dtype), ids.astype(job.dtype)]
    return Made(
        np.array(records, RECORD),
        np.concatenate([np.zeros(0, job.dtype), *tokens]),
        np.concatenate([np.zeros(0, "<u4"), *sizes]),
        tuple(left_out),
    )


def hashes_of(documents: Sequence[Document]) -> NDArray[np.uint64]:
    """(n, 2) words of the documents' SHA-256."""
    digests = [hashlib.sha256(document.data).digest()[:16] for document in documents]
    return np.frombuffer(b"".join(digests), "<u8").reshape(-1, 2)


def validates(hashes: NDArray[np.uint64], fraction: float) -> NDArray[np.bool_]:
    """Which documents are kept for validation: (n, 2) words of their hashes, to (n,)."""
    return hashes[:, 0] < np.uint64(min(fraction * 2.0**64, 2.0**64 - 2**11))


def _documents(unit: Unit, coder: Tokenizer, left_out: list[str]) -> Iterator[Document]:
    for source in unit.sources:
        try:
            for document in source.read():
                if coder.json is not None and not _is_unicode(document.data):
                    left_out.append(f"{document.name} is no valid UTF-8")
                    continue
                yield document
        except UnreadableFile as error:
            if not source.lenient:
                raise
            left_out.append(str(error))


def _is_unicode(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _batches(documents: Iterator[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    held = 0
    for document in documents:
        batch.append(document)
        held += len(document.data)
        if held >= BATCH_BYTES:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch
