"""What a stream could know of a token: four kinds of label, from the token to the document."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from depthbench.data.sentences import CLOSING
from depthbench.data.tokenizer import Tokenizer
from depthbench.errors import DepthbenchError
from depthbench.probes.batch import Batch
from depthbench.probes.text import Text

Kind = Literal["token", "chunk", "sentence", "task"]
KINDS: tuple[Kind, ...] = ("token", "chunk", "sentence", "task")
MEANING: dict[Kind, str] = {
    "token": "class of the next token",
    "chunk": "class of the first token of the phrase that the token lies in",
    "sentence": "whether the token ends its sentence, or how far from its start it is",
    "task": "domain of the document, or the document itself where there is one domain",
}
PAUSES = ",;:.!?…\n。，、；：！？"
"""Characters at the end of a token that end a phrase."""
BOUNDS = (4, 16, 64)
"""Tokens since the start of the sentence at which the classes of its position begin."""


@dataclass(frozen=True)
class Labels:
    """Sampled tokens, in the order of rows and positions, and what is known of them."""

    positions: tuple[tuple[NDArray[np.int64], NDArray[np.int64]], ...]
    """By batch: rows and positions of the sampled tokens."""
    documents: NDArray[np.int64]
    domains: NDArray[np.int64]
    held_out: NDArray[np.bool_]
    """Tokens of documents that no classifier is fitted on."""
    classes: dict[Kind, NDArray[np.int64]]
    """Kinds that these texts have labels of."""
    within: NDArray[np.bool_]
    """As `held_out`, but by half of each document: for labels that are documents."""
    missing: dict[Kind, str]
    """Why there is no label of the other kinds."""

    @property
    def count(self) -> int:
        """Sampled tokens."""
        return len(self.documents)

    def tested(self, kind: Kind) -> NDArray[np.bool_]:
        """Which tokens a classifier of ``kind`` is tested on."""
        by_document = kind == "task" and len(np.unique(self.domains)) < 2
        return self.within if by_document else self.held_out


def labels_of(text: Text, every: int, classes: int) -> Labels:
    """Labels of every ``every``-th token that has a next one; at most ``classes`` of a kind.

    Rare classes are one together. Every other document of a domain is held out. Raises
    `DepthbenchError` unless two documents or more are there.
    """
    if len(text.domain_of) < 2:
        raise DepthbenchError(
            "one document cannot be held against another. Give more text, or more --tokens"
        )
    coder = text.coder
    ends = frozenset[int]() if coder is None else frozenset(coder.sentence_ends)
    pauses = None if coder is None else pauses_of(coder)
    found: dict[Kind, list[int]] = {kind: [] for kind in KINDS}
    documents: list[int] = []
    late: list[bool] = []
    positions: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
    for batch in text.batches:
        rows, places = _places(batch, every)
        positions.append((rows, places))
        for row in range(batch.rows):
            here = places[rows == row]
            tokens = batch.tokens[row].tolist()
            start = int(batch.valid[row].int().argmax())
            found["token"] += [tokens[place + 1] for place in here]
            found["chunk"] += _firsts(tokens, start, here, pauses or frozenset())
            found["sentence"] += _sentences(tokens, start, here, ends)
            documents += [batch.documents[row]] * len(here)
            middle = start + int(batch.valid[row].sum()) / 2
            late += (here >= middle).tolist()
    return _labels(text, tuple(positions), found, documents, late, classes, pauses, ends)


def pauses_of(coder: Tokenizer) -> frozenset[int]:
    """Tokens whose text ends a phrase, closing quotes and brackets aside."""
    found = set[int]()
    for number in range(coder.vocab):
        if number != coder.document:
            text = coder.decode([number]).rstrip(" \t" + CLOSING)
            if text.endswith(tuple(PAUSES)):
                found.add(number)
    return frozenset(found)


def _labels(
    text: Text,
    positions: tuple[tuple[NDArray[np.int64], NDArray[np.int64]], ...],
    found: dict[Kind, list[int]],
    documents: list[int],
    late: list[bool],
    most: int,
    pauses: frozenset[int] | None,
    ends: frozenset[int],
) -> Labels:
    names = list(dict.fromkeys(text.domain_of))
    of_document = np.array([names.index(one) for one in text.domain_of])
    each = np.array(documents)
    held_out = _every_other(of_document)[each]
    missing: dict[Kind, str] = {}
    if not pauses:
        missing["chunk"] = "no token of this tokenizer is known to end a phrase"
    if not ends:
        missing["sentence"] = "no token of this tokenizer is known to end a sentence"
    classes: dict[Kind, NDArray[np.int64]] = {
        kind: _common(np.array(found[kind]), held_out, most)
        for kind in ("token", "chunk")
        if kind not in missing
    }
    if "sentence" not in missing:
        classes["sentence"] = np.array(found["sentence"])
    within = np.array(late)
    classes["task"] = of_document[each] if len(names) > 1 else _common(each, within, most)
    for kind in list(classes):
        if len(np.unique(classes[kind][~held_out])) < 2:
            del classes[kind]
            missing[kind] = "all sampled tokens are of one class"
    return Labels(positions, each, of_document[each], held_out, classes, within, missing)


def _places(batch: Batch, every: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and positions of every ``every``-th predicted token of each row."""
    rows: list[int] = []
    places: list[int] = []
    for row, predicted in enumerate(batch.predicted.tolist()):
        here = [place for place, one in enumerate(predicted) if one][::every]
        rows += [row] * len(here)
        places += here
    return np.array(rows, np.int64), np.array(places, np.int64)


def _firsts(
    tokens: Sequence[int], start: int, places: NDArray[np.int64], pauses: frozenset[int]
) -> list[int]:
    """First token of the phrase of each place."""
    first, firsts = start, dict[int, int]()
    for place in range(start, len(tokens)):
        firsts[place] = tokens[first]
        if tokens[place] in pauses:
            first = place + 1
    return [firsts[place] for place in places.tolist()]


def _sentences(
    tokens: Sequence[int], start: int, places: NDArray[np.int64], ends: frozenset[int]
) -> list[int]:
    """0 for a token that ends its sentence; else 1 and more, by the distance from its start."""
    first, classes = start, dict[int, int]()
    for place in range(start, len(tokens)):
        ending = tokens[place] in ends
        far = sum(place - first >= bound for bound in BOUNDS)
        classes[place] = 0 if ending else 1 + far
        if ending:
            first = place + 1
    return [classes[place] for place in places.tolist()]


def _every_other(domains: NDArray[np.int64]) -> NDArray[np.bool_]:
    """The second, fourth … document of each domain."""
    seen = Counter[int]()
    found = []
    for domain in domains.tolist():
        found.append(seen[domain] % 2 == 1)
        seen[domain] += 1
    return np.array(found)


def _common(values: NDArray[np.int64], held_out: NDArray[np.bool_], most: int) -> NDArray[np.int64]:
    """The most common values of the tokens that are fitted on, by rank; 0 for all others."""
    counts = Counter(values[~held_out].tolist())
    ranks = {value: 1 + rank for rank, (value, _) in enumerate(counts.most_common(most - 1))}
    return np.array([ranks.get(value, 0) for value in values.tolist()])
