"""Prepared token shards: opening, sampling, fixed validation sets."""

import json
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from depthbench.config import digest_of
from depthbench.data.build import Progress, build, find_corpus
from depthbench.data.config import DataConfig
from depthbench.data.entropy import unigram_nats
from depthbench.data.manifest import FILE, FORMAT, DomainFacts, Manifest, Side
from depthbench.data.shards import Numbers
from depthbench.data.tokenizer import ByteTokenizer, Tokenizer, identity, read
from depthbench.errors import DepthbenchError
from depthbench.files import user_path, write_atomic

WORD = 2**64
IGNORED = -100
"""In place of a target that does not count, as torch's cross entropy knows it."""


@dataclass(frozen=True)
class ValidationSet:
    """Fixed windows of one domain; ``targets`` are ``inputs`` shifted by one."""

    inputs: Tensor
    """(n, t) int64."""
    targets: Tensor
    """(n, t) int64; `IGNORED` in questions of a task."""
    target_bytes: Tensor
    """(n, t) int64: bytes of text of each target, 0 for the document token and what is ignored."""
    unigram_bits_per_byte: float
    """Entropy of these targets under their own unigram distribution, over their bytes."""


class Dataset:
    """Memory-mapped tokens of every domain, and the manifest that describes them."""

    def __init__(self, folder: Path, manifest: Manifest, content: bool = True) -> None:
        self.folder = folder
        self.manifest = manifest
        self.vocab = manifest.vocab
        domains = manifest.domains
        self._train = [Numbers(folder, domain.train, content) for domain in domains]
        self._validation = [Numbers(folder, domain.validation, content) for domain in domains]
        self._sizes = [Numbers(folder, domain.validation_sizes, content) for domain in domains]

    @classmethod
    def open(cls, folder: Path, content: bool = True) -> Self:
        """The dataset in ``folder``.

        ``content = False`` trusts what is in the shards, which reading them all would check.
        Raises `DepthbenchError` if the manifest is missing or a shard differs from it.
        """
        return cls(folder, Manifest.load(folder), content)

    def lengths(self, side: Side) -> list[Numbers]:
        """Tokens of each document of a side, by domain; checked now."""
        domains = self.manifest.domains
        shards = [d.train_lengths if side == "train" else d.validation_lengths for d in domains]
        return [Numbers(self.folder, files) for files in shards]

    def tokens(self, side: Side) -> list[Numbers]:
        """All tokens of a side, by domain."""
        return self._train if side == "train" else self._validation

    def sizes(self, domain: int) -> Numbers:
        """Bytes of text of each validation token of a domain."""
        return self._sizes[domain]

    def tokenizer(self) -> Tokenizer:
        """What the shards were written with."""
        if self.manifest.tokenizer_hash is None:
            return ByteTokenizer()
        return read(self.folder / "tokenizer.json")

    def batch(
        self,
        seed: int,
        step: int,
        sequences: int,
        length: int,
        rows: Sequence[int] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Inputs and targets (``sequences``, ``length``), int64; targets are shifted by one.

        A pure function of its arguments and the tokens: Philox with the key (seed, step) draws
        start positions uniformly over the training tokens of all domains. ``rows`` are those of
        the batch to read; all unless given. Of a task, each sequence is one whole question with
        its answer, and targets within the question are `IGNORED`.

        Raises `DepthbenchError` if a domain is too short for one sequence.
        """
        pace = self._pace(length)
        starts = [
            _room(domain, "training", len(tokens), length) // pace + (pace > 1)
            for domain, tokens in zip(self.manifest.domains, self._train, strict=True)
        ]
        ends = np.cumsum(starts)
        total = int(ends[-1])
        philox = np.random.Philox(key=np.array([seed % WORD, step % WORD], np.uint64))
        # multiply-shift on raw words: numpy may change how `integers` draws, not the raw stream
        words = philox.random_raw(sequences)
        drawn = [int(word) * total // WORD for word in (words if rows is None else words[rows])]
        windows = np.empty((len(drawn), length + 1), np.int64)
        for row, position in enumerate(drawn):
            domain = int(np.searchsorted(ends, position, side="right"))
            start = pace * (position - int(ends[domain]) + starts[domain])
            windows[row] = self._train[domain].window(start, length + 1)
        inputs, targets = _shift(windows)
        return inputs, self._counted(inputs, targets)

    def _pace(self, length: int) -> int:
        """Tokens between two places where a sequence can start.

        Raises `DepthbenchError` for sequences that are no whole question of a task.
        """
        facts = self.manifest.episodes
        if facts is None:
            return 1
        if length != facts.tokens - 1:
            raise DepthbenchError(
                f"train.length = {length}: the questions of this task have {facts.tokens - 1} "
                f"tokens with their answers. Use train.length={facts.tokens - 1}"
            )
        return facts.tokens

    def _counted(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """``targets`` with `IGNORED` where they belong to the question of a task."""
        facts = self.manifest.episodes
        if facts is None:
            return targets
        return targets.where((inputs == facts.mark).cumsum(1) > 0, IGNORED)

    def validation(self, length: int, tokens: int) -> dict[str, ValidationSet]:
        """Per domain: evenly spread windows without overlap, at most ``tokens`` targets.

        Raises `DepthbenchError` if a domain, or ``tokens``, is too short for one window.
        """
        if tokens < length:
            raise DepthbenchError(
                f"validation tokens = {tokens} is less than one sequence of {length}: "
                f"ask for at least {length}"
            )
        return {
            domain.name: self._validation_of(number, length, tokens)
            for number, domain in enumerate(self.manifest.domains)
        }

    def _validation_of(self, number: int, length: int, tokens: int) -> ValidationSet:
        domain = self.manifest.domains[number]
        ids, sizes = self._validation[number], self._sizes[number]
        _room(domain, "validation", len(ids), length)
        pace, targets = self._pace(length), len(ids) - 1
        count = min(tokens, targets) // length
        places = targets if pace == 1 else len(ids) // pace
        count = min(count, places)
        starts = [pace * (index * places // count) for index in range(count)]
        inputs, shifted = _shift(_windows(ids, starts, length))
        _, target_bytes = _shift(_windows(sizes, starts, length))
        shifted = self._counted(inputs, shifted)
        known = shifted != IGNORED
        target_bytes = target_bytes.where(known, 0)
        counts = np.bincount(shifted[known].numpy(), minlength=self.vocab)
        total_bytes = int(target_bytes.sum())
        if not total_bytes:
            raise DepthbenchError(
                f"domain '{domain.name}': the validation targets hold no text, only document "
                "tokens. Ask for more validation tokens"
            )
        bits = unigram_nats(counts) * int(known.sum()) / (math.log(2) * total_bytes)
        return ValidationSet(inputs, shifted, target_bytes, bits)


def _windows(tokens: Numbers, starts: list[int], length: int) -> NDArray[np.int64]:
    return np.stack([tokens.window(start, length + 1) for start in starts])


def _shift(windows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    both = torch.from_numpy(windows)
    return both[:, :-1].contiguous(), both[:, 1:].contiguous()


def _room(domain: DomainFacts, side: str, tokens: int, length: int) -> int:
    """Number of positions at which a sequence of ``length`` and its target can start."""
    if tokens <= length:
        raise DepthbenchError(
            f"domain '{domain.name}' has {tokens} {side} tokens, but a sequence of {length} needs "
            f"{length + 1}. Give more text, shorter sequences or another validation_fraction"
        )
    return tokens - length


def prepare(config: DataConfig, cache: Path, progress: Progress | None = None) -> Dataset:
    """Open the dataset of ``config`` in ``cache``; build it if it is new, altered or incomplete.

    With ``prepared`` it is that folder's, and the cache remembers where it is. Otherwise the
    folder is named by config, tokenizer and a fingerprint of the sources: versions for the
    installed corpus; path, size and time of change for your own files.

    Raises `DepthbenchError` for any text, tokenizer or folder that cannot be used.
    """
    say = progress or _silent
    if config.prepared is not None:
        say("checking the prepared data")
        return _open_prepared(user_path(config.prepared), cache)
    corpus = find_corpus(config)
    key = [FORMAT, config.resolved(), identity(config.tokenizer), corpus.fingerprint]
    folder = cache / digest_of(key)
    try:
        return Dataset.open(folder)
    except DepthbenchError:
        say(f"preparing {', '.join(corpus.domains)}")
    build(config, corpus, folder, say)
    return Dataset.open(folder)


def find_dataset(data_hash: str, cache: Path) -> Dataset:
    """The prepared dataset in ``cache`` whose manifest has this hash.

    Raises `DepthbenchError` if there is none.
    """
    for folder in [path.parent for path in sorted(cache.glob(f"*/{FILE}"))] + _elsewhere(
        data_hash, cache
    ):
        try:
            if Manifest.load(folder).hash == data_hash:
                return Dataset.open(folder)
        except DepthbenchError:
            continue
    raise DepthbenchError(
        f"the prepared data {data_hash} is not in {cache} any more, and with it the tokenizer. "
        "Run the study's command again, or set DEPTHBENCH_CACHE to where it is"
    )


def _open_prepared(folder: Path, cache: Path) -> Dataset:
    try:
        found = Dataset.open(folder)
    except DepthbenchError as error:
        raise DepthbenchError(f"data.prepared: {error}") from None
    place = {"folder": str(folder.resolve())}
    write_atomic(cache / "prepared" / f"{found.manifest.hash}.json", json.dumps(place) + "\n")
    return found


def _elsewhere(data_hash: str, cache: Path) -> list[Path]:
    """Where prepared data of this hash was last seen outside the cache."""
    try:
        text = (cache / "prepared" / f"{data_hash}.json").read_text(encoding="utf-8")
        return [Path(json.loads(text)["folder"])]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _silent(_: str) -> None: ...


def default_cache() -> Path:
    """``$DEPTHBENCH_CACHE``, or ``depthbench`` in the user's cache folder of this platform."""
    chosen = os.environ.get("DEPTHBENCH_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        root = Path(local) if local else Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        root = Path.home() / "Library" / "Caches"
    else:
        xdg = os.environ.get("XDG_CACHE_HOME")
        root = Path(xdg) if xdg else Path.home() / ".cache"
    return root / "depthbench"
