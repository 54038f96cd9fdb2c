"""Loss by domain on text."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

from pydantic import Field

from depthbench.config import Frozen
from depthbench.data.build import find_corpus
from depthbench.data.config import DataConfig
from depthbench.data.selection import unsplit
from depthbench.errors import DepthbenchError
from depthbench.evals.measure import Machinery, Rows, losses, measure
from depthbench.evals.result import Measured
from depthbench.evals.windows import Window, WindowConfig, windows_of
from depthbench.probes.reader import Reader
from depthbench.probes.text import Piece, coded, pieces_of_shards


class DomainConfig(Frozen):
    """Which text, and how it is cut."""

    paths: tuple[str, ...] = ()
    """Files, folders or globs, one domain each; empty = the validation text that the model was
    trained beside, or the installed corpus."""
    text_field: str = "text"
    """Key or column of JSONL and Parquet files."""
    tokens: int = Field(default=65536, ge=2)
    """Tokens of each domain at most; the last document is cut to fit."""
    windows: WindowConfig = WindowConfig()
    """How rows are cut."""


def measure_domains(
    machinery: Machinery, reader: Reader, config: DomainConfig
) -> Iterator[Measured]:
    """Every domain under every program, and all of them together where there are several.

    Raises `DepthbenchError` for text that is missing or cannot be read, and for rows that are
    longer than the model reads.
    """
    check_vocabulary(reader)
    windows = config.windows.fitted(reader.trained or reader.longest)
    config = config.model_copy(update={"windows": windows})
    check_length(reader, windows.row)
    bos = bos_of(reader, config.windows)
    found = [
        _rows(name, pieces, config, bos, reader) for name, pieces in _pieces(reader, config).items()
    ]
    if len(found) > 1:
        found.append(_together(found))
    for rows in found:
        yield from measure(machinery, rows, losses)


def bos_of(reader: Reader, config: WindowConfig) -> int | None:
    """The token in front; None for ``never``.

    Raises `DepthbenchError` where the tokenizer has none.
    """
    if config.bos == "never":
        return None
    found = reader.start("always")
    if found is None:
        raise DepthbenchError(
            f"bos = {config.bos}: the model's tokenizer has no token that begins a text. Use --bos "
            "never"
        )
    return found


def check_length(reader: Reader, length: int) -> None:
    """Raise `DepthbenchError` for rows that are longer than the model reads."""
    if reader.longest is not None and length > reader.longest:
        raise DepthbenchError(
            f"length = {length}: the model has {reader.longest} positions. Ask for at most as many "
            f"with --length {reader.longest}"
        )


def check_vocabulary(reader: Reader) -> None:
    """Raise `DepthbenchError` for a tokenizer with more tokens than the model has rows."""
    if reader.known is not None and reader.known > reader.words:
        raise DepthbenchError(
            f"the tokenizer has {reader.known} tokens, but the model's embedding has "
            f"{reader.words} rows: they do not belong together. Put the tokenizer that the model "
            "was trained with beside it, or give the embedding rows for its new tokens"
        )


def policy_of(reader: Reader) -> dict[str, Any]:
    """What every policy says of the tokenizer and of rows that are no token."""
    return {"tokenizer": reader.coder.description, "rows_left_out": _left_out(reader)}


def notes_of(reader: Reader) -> list[str]:
    """That rows of the head are left out of the softmax, where some are."""
    count = _left_out(reader)
    if not count:
        return []
    return [
        f"the head has {count} rows more than the tokenizer has tokens ({reader.known}): they are "
        "left out of the softmax"
    ]


def _left_out(reader: Reader) -> int:
    return 0 if reader.known is None else reader.words - reader.known


def _pieces(reader: Reader, config: DomainConfig) -> dict[str, Iterator[Piece]]:
    if not config.paths and reader.dataset is not None:
        names = [domain.name for domain in reader.dataset.manifest.domains]
        return {
            name: pieces_of_shards(reader.dataset, number, bare=True)
            for number, name in enumerate(names)
        }
    given = {"paths": config.paths, "text_field": config.text_field} if config.paths else {}
    corpus = find_corpus(DataConfig.parse(given))
    # of the installed corpus no more is read than may be needed
    megabytes = None if config.paths else max(0.25, 40 * config.tokens / 1e6)
    return {
        name: coded(name, unsplit(name, corpus.sources(name), megabytes, set()), reader.coder)
        for name in corpus.domains
    }


def _rows(
    name: str, pieces: Iterator[Piece], config: DomainConfig, bos: int | None, reader: Reader
) -> Rows:
    windows: list[Window] = []
    left, read, exact, cut = config.tokens, 0, True, False
    for number, piece in enumerate(pieces):
        if left <= 0:
            cut = True
            break
        ids = piece.ids[:left].tolist()
        exact = exact and piece.sizes is not None
        cut = cut or len(ids) < len(piece.ids)
        sizes = [0] * len(ids) if piece.sizes is None else piece.sizes[:left].tolist()
        left -= len(ids)
        read += sum(sizes)
        windows += windows_of(ids, sizes, config.windows, bos, number)
    if not windows:
        raise DepthbenchError(f"domain '{name}' holds no token to score. Give more text")
    check_words(windows, reader)
    notes = [] if exact else ["the tokenizer does not keep text byte for byte: no bits per byte"]
    notes += notes_of(reader)
    if cut:
        notes.append(f"the first {config.tokens} tokens of the text alone")
    counts = {"bytes_read": read} if exact else {}
    policy, known = _policy(config, bos, reader), reader.known
    return Rows("domain", name, windows, policy, exact, counts, tuple(notes), known)


def check_words(windows: list[Window], reader: Reader) -> None:
    """Raise `DepthbenchError` for a token that the model does not know."""
    largest = max(max(one.ids) for one in windows)
    if largest >= reader.words:
        raise DepthbenchError(
            f"the tokenizer gives token {largest}, but the model's embedding has {reader.words} "
            "rows: they do not belong together"
        )


def _policy(config: DomainConfig, bos: int | None, reader: Reader) -> dict[str, Any]:
    windows = config.windows
    return {
        "length": windows.row,
        "stride": windows.step,
        "bos": windows.bos,
        "bos_token": bos,
        "tokens": config.tokens,
        **policy_of(reader),
    }


def _together(found: list[Rows]) -> Rows:
    """All domains as one, with a number of its own for each document."""
    windows: list[Window] = []
    for one in found:
        first = 1 + max((window.document for window in windows), default=-1)
        windows += [
            Window(window.ids, window.first, first + window.document, window.bytes)
            for window in one.windows
        ]
    exact = all(one.bytes_known for one in found)
    counts = {"bytes_read": sum(one.counts["bytes_read"] for one in found)} if exact else {}
    notes = tuple(dict.fromkeys(chain.from_iterable(one.notes for one in found)))
    first = found[0]
    return Rows("domain", "all domains", windows, first.policy, exact, counts, notes, first.known)
