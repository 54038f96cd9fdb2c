"""From sources to the two sides of a domain: order, cap, duplicates, split.

Every decision is a hash of a document's name or content, so it is the same on every machine.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Literal

from depthbench.data.sources import Document, Source, UnreadableFile
from depthbench.errors import DepthbenchError

Split = Literal["document", "position"]


@dataclass
class Selection:
    """Documents of one domain on both sides, in hash order."""

    name: str
    train: list[Document] = field(default_factory=list)
    validation: list[Document] = field(default_factory=list)
    documents: int = 0
    duplicates: int = 0
    split: Split = "document"
    notes: list[str] = field(default_factory=list)


def select(
    name: str,
    sources: list[Source],
    validation_fraction: float,
    megabytes: float | None,
    seen: set[bytes],
) -> Selection:
    """Read ``sources`` and split them by document.

    Files come in the order of their name's hash, documents of one file too, until ``megabytes``
    (10^6 bytes) are reached; the last document is cut to fit. A document whose content is in
    ``seen`` (which grows) is dropped. If one side would stay empty, every document is split by
    position: its end goes to validation.

    Raises `DepthbenchError` if there is no text, or too little to have two sides.
    """
    selection = Selection(name)
    kept = _kept(selection, sources, megabytes, seen)
    for document in kept:
        validates = _fraction(f"split:{document.name}") < validation_fraction
        (selection.validation if validates else selection.train).append(document)
    if not selection.validation or not selection.train:
        _split_by_position(selection, kept, validation_fraction)
    return selection


def unsplit(
    name: str, sources: list[Source], megabytes: float | None, seen: set[bytes]
) -> list[Document]:
    """The documents of `select`, whole and in its order, where none is trained on.

    Raises `DepthbenchError` if there is no text.
    """
    return _kept(Selection(name), sources, megabytes, seen)


def _kept(
    selection: Selection, sources: list[Source], megabytes: float | None, seen: set[bytes]
) -> list[Document]:
    budget = None if megabytes is None else max(1, round(megabytes * 1e6))
    kept = list(_take(selection, sources, budget, seen))
    selection.documents = len(kept)
    if not kept:
        raise DepthbenchError(
            f"domain '{selection.name}' holds no readable text{_first(selection.notes)}. "
            "Name text, .jsonl or .parquet files"
        )
    return kept


def _take(
    selection: Selection, sources: list[Source], budget: int | None, seen: set[bytes]
) -> Iterator[Document]:
    skipped: list[str] = []
    for source in sorted(sources, key=lambda source: _fraction(f"order:{source.name}")):
        if budget == 0:
            break
        try:
            documents = _in_order(selection, source, budget, seen)
        except UnreadableFile as error:
            if not source.lenient:
                raise
            skipped.append(str(error))
            continue
        for document in documents:
            if budget is None:
                yield document
                continue
            if len(document.data) > budget:
                document = Document(document.name, document.data[: cut_at(document.data, budget)])
                selection.notes.append(f"'{document.name}' is cut to fit megabytes")
                budget = len(document.data)
            budget -= len(document.data)
            if document.data:
                yield document
    if skipped:
        selection.notes.append(f"{len(skipped)} files are left out, the first: {skipped[0]}")


def _in_order(
    selection: Selection, source: Source, budget: int | None, seen: set[bytes]
) -> list[Document]:
    """New documents of ``source`` in hash order: the first that fill ``budget``, or all."""
    heap: list[tuple[float, str, bytes, Document]] = []
    total = 0
    for document in source.read():
        content = hashlib.sha256(document.data).digest()
        if content in seen:
            selection.duplicates += 1
            continue
        seen.add(content)
        heappush(heap, (-_fraction(f"order:{document.name}"), document.name, content, document))
        total += len(document.data)
        # so a file far larger than the cap is never held in memory
        while budget is not None and total - len(heap[0][3].data) >= budget:
            _, _, evicted, last = heappop(heap)
            seen.discard(evicted)
            total -= len(last.data)
    return [entry[3] for entry in sorted(heap, key=lambda entry: (-entry[0], entry[1]))]


def _split_by_position(selection: Selection, kept: list[Document], fraction: float) -> None:
    selection.train, selection.validation = [], []
    for document in kept:
        data = document.data
        goal = round(len(data) * (1 - fraction))
        line_end = data.rfind(b"\n", goal - max(1, goal // 10), goal) + 1
        cut = line_end or cut_at(data, goal)
        if 0 < cut < len(data):
            selection.train.append(Document(f"{document.name}[:{cut}]", data[:cut]))
            selection.validation.append(Document(f"{document.name}[{cut}:]", data[cut:]))
    if not selection.train:
        size = sum(len(document.data) for document in kept)
        raise DepthbenchError(
            f"domain '{selection.name}' has {size} bytes of text: too short for a training and a "
            "validation part. Give more text or a larger validation_fraction"
        )
    selection.split = "position"
    selection.notes.append(
        "split by position: the documents are too few for both sides, so the end of each is "
        "kept for validation"
    )


def cut_at(data: bytes, goal: int) -> int:
    """The last boundary of a UTF-8 character at or before ``goal``."""
    for cut in range(goal, max(goal - 4, 0), -1):
        if cut >= len(data) or data[cut] & 0xC0 != 0x80:
            return cut
    return goal


def _fraction(text: str) -> float:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def _first(notes: list[str]) -> str:
    return f" ({notes[0]})" if notes else ""
