"""The documents that probes read, as batches of equal rows."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from depthbench.config import Frozen
from depthbench.data.build import find_corpus
from depthbench.data.config import DOMAINS, DataConfig
from depthbench.data.dataset import Dataset
from depthbench.data.selection import unsplit
from depthbench.data.sources import Document
from depthbench.data.tokenizer import NotUnicode, Tokenizer
from depthbench.errors import DepthbenchError
from depthbench.probes.batch import Batch

SHORTEST = 2
"""Tokens of a row: one is read and one predicted."""


class TextConfig(Frozen):
    """How much of which text."""

    paths: tuple[str, ...] = ()
    """Files, folders or globs, one domain each; empty = the validation text that the model was
    trained beside, or the installed corpus."""
    domains: tuple[str, ...] = DOMAINS
    """Of the installed corpus."""
    text_field: str = "text"
    """Key or column of JSONL and Parquet files."""
    tokens: int = Field(default=65536, ge=SHORTEST)
    """Tokens in all, shared evenly by the domains; the last row is cut to fit."""
    length: int = Field(default=256, ge=SHORTEST)
    """Tokens of a row: the beginning of one document."""
    rows: int = Field(default=2, ge=1)
    """Rows of a batch."""
    start: Literal["model", "always", "never"] = "model"
    """Whether the document token is put in front of every row; ``model``: as the model had it."""


class TextFacts(Frozen):
    """What every result says of the text."""

    hash: str
    """Of all tokens."""
    origin: str
    domains: tuple[str, ...]
    documents: int
    tokens: int
    predicted: int
    """Tokens with a loss."""
    bytes: int | None
    """Of these; None where the tokenizer does not keep text byte for byte."""
    length: int
    start_token: int | None
    """In front of every row; None = rows start with text."""


@dataclass(frozen=True)
class Text:
    """Batches in order, and what is known of them."""

    batches: tuple[Batch, ...]
    facts: TextFacts
    domain_of: tuple[str, ...]
    """Domain of each document, by its number."""
    coder: Tokenizer | None = None
    """What made the tokens; None where nobody says."""

    def domains_of(self, batches: Iterable[int]) -> list[str]:
        """Domain of each row of ``batches``, by their numbers."""
        rows = (number for one in batches for number in self.batches[one].documents)
        return [self.domain_of[number] for number in rows]


@dataclass(frozen=True)
class Piece:
    """Beginning of a document."""

    domain: str
    ids: NDArray[np.int64]
    sizes: NDArray[np.int64] | None


def text_of_dataset(dataset: Dataset, config: TextConfig) -> Text:
    """Validation documents of the data that a model was trained on, each from its start token."""
    facts = dataset.manifest
    pieces = {
        domain.name: pieces_of_shards(dataset, number, config.length, bare=config.start == "never")
        for number, domain in enumerate(facts.domains)
    }
    origin = f"validation documents of data {facts.hash}"
    bare = config.start == "never"
    coder = dataset.tokenizer()
    return batched(pieces, config, origin, None if bare else facts.document_token, coder)


def text_of_files(config: TextConfig, coder: Tokenizer, start: int | None) -> Text:
    """Documents of ``config`` under a tokenizer; ``start`` is the token in front of each row.

    Raises `DepthbenchError` for text that is missing or cannot be used.
    """
    given = {"paths": config.paths, "text_field": config.text_field}
    if not config.paths:
        given = {"domains": config.domains}
    corpus = find_corpus(DataConfig.parse(given))
    each, seen = config.tokens // len(corpus.domains), set[bytes]()
    pieces: dict[str, Iterator[Piece]] = {}
    for name in corpus.domains:
        # several times what is needed: documents may be shorter or longer than a row
        megabytes = max(0.25, 40 * each / 1e6)
        documents = unsplit(name, corpus.sources(name), megabytes, seen)
        pieces[name] = coded(name, documents, coder, start, config.length)
    origin = ", ".join(config.paths) or "the installed corpus"
    return batched(pieces, config, origin, start, coder)


def batched(
    pieces: dict[str, Iterator[Piece]],
    config: TextConfig,
    origin: str,
    start: int | None,
    coder: Tokenizer | None = None,
) -> Text:
    """Pieces of each domain in turn, until the tokens are used up; then in batches.

    Raises `DepthbenchError` where a domain holds no document of two tokens.
    """
    share = config.tokens // len(pieces)
    if share < SHORTEST:
        raise DepthbenchError(
            f"tokens = {config.tokens} is too little for {len(pieces)} domains. "
            f"Ask for at least {SHORTEST * len(pieces)}"
        )
    chosen = {name: _fill(name, each, share) for name, each in pieces.items()}
    order = [
        chosen[name][row]
        for row in range(max(map(len, chosen.values())))
        for name in chosen
        if row < len(chosen[name])
    ]
    numbers = range(0, len(order), config.rows)
    batches = tuple(_batch(order[n : n + config.rows], n) for n in numbers)
    facts = _facts(order, batches, config, origin, start)
    return Text(batches, facts, _domains(order), coder)


def _domains(order: Sequence[Piece]) -> tuple[str, ...]:
    return tuple(piece.domain for piece in order)


def _facts(
    order: Sequence[Piece],
    batches: Sequence[Batch],
    config: TextConfig,
    origin: str,
    start: int | None,
) -> TextFacts:
    digest = hashlib.sha256()
    for piece in order:
        digest.update(f"{piece.domain} {len(piece.ids)} ".encode() + piece.ids.tobytes())
    sized = [piece.sizes for piece in order if piece.sizes is not None]
    total = int(sum(one[1:].sum() for one in sized)) if len(sized) == len(order) else None
    return TextFacts(
        hash=digest.hexdigest()[:16],
        origin=origin,
        domains=tuple(dict.fromkeys(_domains(order))),
        documents=len(order),
        tokens=sum(len(piece.ids) for piece in order),
        predicted=sum(int(batch.predicted.sum()) for batch in batches),
        bytes=total,
        length=config.length,
        start_token=start,
    )


def _fill(name: str, pieces: Iterator[Piece], share: int) -> list[Piece]:
    found: list[Piece] = []
    left = share
    for piece in pieces:
        if left < SHORTEST:
            break
        sizes = None if piece.sizes is None else piece.sizes[:left]
        cut = Piece(piece.domain, piece.ids[:left], sizes)
        if len(cut.ids) >= SHORTEST:
            found.append(cut)
            left -= len(cut.ids)
    if not found:
        raise DepthbenchError(
            f"domain '{name}' holds no document of {SHORTEST} tokens. Give more text"
        )
    return found


def _batch(pieces: Sequence[Piece], first: int) -> Batch:
    sizes = [np.zeros_like(piece.ids) if piece.sizes is None else piece.sizes for piece in pieces]
    return Batch.of_rows(
        [piece.ids.tolist() for piece in pieces],
        [one.tolist() for one in sizes],
        range(first, first + len(pieces)),
    )


def pieces_of_shards(
    dataset: Dataset, number: int, length: int | None = None, *, bare: bool
) -> Iterator[Piece]:
    """The first ``length`` tokens (None = all) of each validation document of a domain.

    ``bare`` leaves out the token that starts a document.
    """
    ids, sizes = dataset.tokens("validation")[number], dataset.sizes(number)
    lengths = dataset.lengths("validation")[number]
    name, start = dataset.manifest.domains[number].name, 0
    # every document begins with its token
    ahead = int(bare)
    for size in lengths.window(0, len(lengths)).tolist():
        kept = size - ahead if length is None else min(size - ahead, length)
        if kept > 0:
            yield Piece(name, ids.window(start + ahead, kept), sizes.window(start + ahead, kept))
        start += size


def coded(
    name: str,
    documents: Sequence[Document],
    coder: Tokenizer,
    start: int | None = None,
    length: int | None = None,
) -> Iterator[Piece]:
    """The first ``length`` tokens (None = all) of each document, behind ``start``.

    Raises `DepthbenchError` for text that the tokenizer cannot read.
    """
    for document in documents:
        try:
            coded = coder.encode(document)
            ids, sizes = coded.ids, coded.sizes
        except NotUnicode as error:
            # the tokenizer is the model's: no other can be chosen
            raise DepthbenchError(
                f"{error.fact}. Save the text as UTF-8, or name other text with --data"
            ) from None
        except DepthbenchError:
            ids, sizes = coder.inexact_ids(document), None
        if start is not None:
            ids = np.concatenate([[start], ids])
            sizes = None if sizes is None else np.concatenate([[0], sizes])
        yield Piece(name, ids[:length], None if sizes is None else sizes[:length])
