"""From tokenised units to the shards of a domain: the cap, duplicates, the split.

All of it follows from the documents' order, sizes and hashes, so it is the same however the units
were cut and whoever tokenised them.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from depthbench.data.entropy import unigram_nats
from depthbench.data.journal import Journal
from depthbench.data.manifest import DomainFacts, Shard, Side
from depthbench.data.shards import Dtype, write_shard
from depthbench.data.unit import RECORD, validates
from depthbench.errors import DepthbenchError

Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Rules:
    """What decides which documents go where."""

    validation_fraction: float
    budget: float | None
    """Bytes of text of each domain that are read; None = all."""
    shard_tokens: int
    dtype: Dtype
    vocab: int


@dataclass(frozen=True)
class Documents:
    """All documents of one domain that are read, in input order."""

    name: str
    keys: list[str]
    """Of its units."""
    unit: Indices
    """Number of each document's unit, in ``keys``."""
    records: NDArray[Any]
    notes: tuple[str, ...]
    kept: Mask
    """No copy of an earlier document of any domain."""
    validating: Mask

    def of(self, side: Side) -> Indices:
        """Numbers of the kept documents of a side."""
        chosen = self.validating if side == "validation" else ~self.validating
        return np.flatnonzero(self.kept & chosen)

    def counts(self, side: Side) -> tuple[int, int, int]:
        """Documents, tokens and bytes of a side."""
        records = self.records[self.of(side)]
        return len(records), int(records["tokens"].sum()), int(records["bytes"].sum())


def assemble(
    names: list[str], journal: Journal, rules: Rules, wrote: Callable[[int], None]
) -> list[DomainFacts]:
    """Write the shards of all domains, and say what they hold.

    ``wrote`` is told the tokens of each shard. Raises `DepthbenchError` if a side of a domain
    would be empty, or a shard cannot be written.
    """
    read = [_read(number, name, journal, rules) for number, name in enumerate(names)]
    ends = np.cumsum([len(domain.records) for domain in read])
    first = first_of_each(np.concatenate([domain.records["hash"] for domain in read]))
    domains = [
        replace(domain, kept=kept)
        for domain, kept in zip(read, np.split(first, ends[:-1]), strict=True)
    ]
    for domain in domains:
        _refuse_empty_side(domain, rules.validation_fraction)
    return [
        Assembly(number, domain, journal, rules, wrote).write()
        for number, domain in enumerate(domains)
    ]


def _read(number: int, name: str, journal: Journal, rules: Rules) -> Documents:
    """A domain's records up to the cap, with nothing dropped."""
    keys = sorted(key for key in journal.units if key.startswith(f"{number:02d}-"))
    parts, used, read, left_out, why = [np.zeros(0, RECORD)], 0, 0, 0, None
    for key in keys:
        if rules.budget is not None and read >= rules.budget:
            break
        facts = journal.units[key]
        parts.append(journal.records(key))
        read += facts["bytes"]
        left_out += facts["left_out"]
        why = why or facts["first_left_out"]
        used += 1
    units = np.repeat(np.arange(used), [len(part) for part in parts[1:]])
    records = np.concatenate(parts)
    if rules.budget is not None:
        before = np.cumsum(records["bytes"]) - records["bytes"]
        units, records = units[before < rules.budget], records[before < rules.budget]
    notes = (f"left out, files and documents: {left_out}; the first: {why}",) if left_out else ()
    validating = validates(records["hash"], rules.validation_fraction)
    kept = np.ones(len(records), bool)
    return Documents(name, keys[:used], units, records, notes, kept, validating)


def first_of_each(hashes: NDArray[np.uint64]) -> Mask:
    """Which of ``hashes`` (n, 2) appear for the first time."""
    order = np.lexsort((hashes[:, 1], hashes[:, 0]))
    ordered = hashes[order]
    new = np.ones(len(hashes), bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    found = np.zeros(len(hashes), bool)
    # the sort is stable: of equal ones the first in input order comes first
    found[order[new]] = True
    return found


def _refuse_empty_side(domain: Documents, fraction: float) -> None:
    total = int(domain.kept.sum())
    if not total:
        why = f" ({domain.notes[0]})" if domain.notes else ""
        raise DepthbenchError(
            f"domain '{domain.name}' holds no readable text that no earlier domain has{why}. "
            "Name text, .jsonl or .parquet files, or leave it out"
        )
    if total == 1:
        raise DepthbenchError(
            f"domain '{domain.name}' is a single document, but training and validation need one "
            "each. Cut it into documents (JSONL, one a line), or use data.paths of a study, "
            "which keeps its end for validation"
        )
    shares = domain.records["hash"][domain.kept, 0] / 2.0**64
    if not len(domain.of("validation")):
        raise DepthbenchError(
            f"domain '{domain.name}': none of its {total} documents falls to validation at "
            f"validation_fraction = {fraction:g}. {_remedy(float(shares.min()))}"
        )
    if not len(domain.of("train")):
        raise DepthbenchError(
            f"domain '{domain.name}': all of its {total} documents fall to validation at "
            f"validation_fraction = {fraction:g}. Give more documents, or less than "
            f"{float(shares.max()):.3g}"
        )


def _remedy(least: float) -> str:
    enough = math.ceil(least * 1000 + 1) / 1000
    return (
        f"Set it to {enough:g}, or give more documents" if enough <= 0.5 else "Give more documents"
    )


@final
class Assembly:
    """Writes one domain."""

    def __init__(
        self,
        number: int,
        documents: Documents,
        journal: Journal,
        rules: Rules,
        wrote: Callable[[int], None],
    ) -> None:
        self.number, self.documents, self.journal = number, documents, journal
        self.rules, self.wrote = rules, wrote
        self.counts = np.zeros(rules.vocab, np.int64)

    def write(self) -> DomainFacts:
        """All shards of both sides."""
        documents = self.documents
        train = [self._shard("train", *part) for part in self._parts("train")]
        validation = [self._shard("validation", *part) for part in self._parts("validation")]
        train_documents, train_tokens, train_bytes = documents.counts("train")
        validation_documents, validation_tokens, validation_bytes = documents.counts("validation")
        entropy = unigram_nats(self.counts)
        kept = train_documents + validation_documents
        return DomainFacts(
            name=documents.name,
            split="document",
            documents=kept,
            duplicates=len(documents.records) - kept,
            train_documents=train_documents,
            validation_documents=validation_documents,
            train_tokens=train_tokens,
            validation_tokens=validation_tokens,
            train_bytes=train_bytes,
            validation_bytes=validation_bytes,
            unigram_nats_per_token=entropy,
            unigram_bits_per_byte=entropy * train_tokens / (math.log(2) * train_bytes),
            train=tuple(files[0] for files in train),
            train_lengths=tuple(files[1] for files in train),
            validation=tuple(files[0] for files in validation),
            validation_lengths=tuple(files[1] for files in validation),
            validation_sizes=tuple(files[2] for files in validation),
            notes=documents.notes,
        )

    def _parts(self, side: Side) -> Iterator[tuple[int, Indices]]:
        """Number and documents of every shard."""
        chosen = self.documents.of(side)
        lengths = self.documents.records["tokens"][chosen].astype(np.int64)
        place = (np.cumsum(lengths) - lengths) // self.rules.shard_tokens
        cuts = np.flatnonzero(np.diff(place)) + 1
        yield from enumerate(np.split(chosen, cuts))

    def _shard(self, side: Side, part: int, chosen: Indices) -> list[Shard]:
        """Files of one shard: tokens, lengths, and in validation sizes."""
        name = f"{self.number:02d}.{side}.{part:05d}"
        before = self.journal.shard(name)
        if before is None:
            found = [self._file(side, part, self._tokens(chosen), self.rules.dtype)]
            lengths = self.documents.records["tokens"][chosen]
            found.append(self._file(f"{side}-lengths", part, iter([lengths]), "<u4"))
            if side == "validation":
                found.append(self._file(f"{side}-sizes", part, self._sizes(chosen), "<u4"))
            self.journal.add_shard(name, found)
        else:
            found = before
        if side == "train":
            tokens = np.memmap(self.journal.target / found[0].file, found[0].dtype, "r")
            for start in range(0, len(tokens), 2**24):
                chunk = tokens[start : start + 2**24]
                self.counts += np.bincount(chunk, minlength=len(self.counts))
        self.wrote(int(self.documents.records["tokens"][chosen].sum()))
        return found

    def _file(self, kind: str, part: int, chunks: Iterator[NDArray[Any]], dtype: Dtype) -> Shard:
        path = self.journal.target / f"{self.number:02d}.{kind}.{part:05d}.bin"
        return write_shard(path, chunks, dtype, beside=self.journal.folder)

    def _tokens(self, chosen: Indices) -> Iterator[NDArray[Any]]:
        for key, mask in self._by_unit(chosen):
            tokens, _ = self.journal.arrays(key)
            lengths = self.journal.records(key)["tokens"]
            yield tokens[np.repeat(_padded(mask, len(lengths)), lengths)]

    def _sizes(self, chosen: Indices) -> Iterator[NDArray[Any]]:
        for key, mask in self._by_unit(chosen):
            _, sizes = self.journal.arrays(key)
            records = self.journal.records(key)
            validating = validates(records["hash"], self.rules.validation_fraction)
            kept = _padded(mask, len(records))[validating]
            yield sizes[np.repeat(kept, records["tokens"][validating])]

    def _by_unit(self, chosen: Indices) -> Iterator[tuple[str, Mask]]:
        """Key of each unit that holds some of the ``chosen``, and which of its documents they are.

        The mask ends with the last document that is read, if the cap ends the unit early.
        """
        unit = self.documents.unit
        for number in range(unit[chosen[0]], unit[chosen[-1]] + 1):
            start, end = np.searchsorted(unit, [number, number + 1])
            inside = chosen[(chosen >= start) & (chosen < end)]
            if len(inside):
                mask = np.zeros(end - start, bool)
                mask[inside - start] = True
                yield self.documents.keys[number], mask


def _padded(mask: Mask, length: int) -> Mask:
    return np.concatenate([mask, np.zeros(length - len(mask), bool)])
