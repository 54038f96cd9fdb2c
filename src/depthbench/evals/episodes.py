"""Questions of a task as prepared data that models train on, one domain for each ``k``."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from depthbench.config import digest_of
from depthbench.data.build import manifest_of
from depthbench.data.dataset import Dataset
from depthbench.data.entropy import unigram_nats
from depthbench.data.manifest import FILE, DomainFacts, Episodes
from depthbench.data.shards import token_dtype, write_shard
from depthbench.data.tokenizer import ByteTokenizer
from depthbench.errors import DepthbenchError
from depthbench.evals.tasks import MARK, PAD, TaskConfig, questions, task_of
from depthbench.files import write_atomic

FORMAT = 1
"""Of what is written: another one is made anew."""


def episodes(config: TaskConfig, cache: Path) -> Dataset:
    """The data of a task in ``cache``, made if it is not there.

    Every document is one question with its answer, padded on the left to one length. Raises
    `DepthbenchError` where there are not as many different questions.
    """
    folder = cache / f"task-{digest_of([FORMAT, config.resolved()])}"
    try:
        return Dataset.open(folder)
    except DepthbenchError:
        _write(config, folder)
    return Dataset.open(folder)


def k_of(domain: str) -> int:
    """The number of steps that a domain is named by."""
    return int(domain.rpartition(" ")[2])


def _write(config: TaskConfig, folder: Path) -> None:
    coder, task = ByteTokenizer(), task_of(config)
    room = max(task.longest(k) for k in config.ks) + len(MARK)
    facts: list[DomainFacts] = []
    for number, k in enumerate(config.ks):
        sides = [_coded(pairs, room, coder.document) for pairs in questions(config, k)]
        facts.append(_domain(folder, number, k, sides[0], sides[1]))
    manifest = manifest_of(
        {"task": config.resolved()},
        coder,
        None,
        facts,
        {config.task: "made from its seed"},
        digest_of(config.resolved()),
    )
    one = Episodes(tokens=room + 1, mark=ord(MARK), task=config.resolved())
    manifest = manifest.model_copy(update={"episodes": one})
    write_atomic(folder / FILE, manifest.model_dump_json(indent=1) + "\n")


def _coded(pairs: list[tuple[str, str]], room: int, document: int) -> NDArray[np.int64]:
    """(n, room + 1): the document token, padding, question, mark and answer."""
    texts = [f"{question}{MARK}{answer}".rjust(room, PAD) for question, answer in pairs]
    ids = np.frombuffer("".join(texts).encode(), np.uint8).reshape(len(pairs), room)
    return np.pad(ids.astype(np.int64), ((0, 0), (1, 0)), constant_values=document)


def _domain(
    folder: Path, number: int, k: int, train: NDArray[np.int64], test: NDArray[np.int64]
) -> DomainFacts:
    dtype = token_dtype(257)

    def written(kind: str, rows: NDArray[np.int64]) -> tuple:
        return (write_shard(folder / f"{number:02d}.{kind}.bin", [rows.ravel()], dtype),)

    def lengths(kind: str, rows: NDArray[np.int64]) -> tuple:
        sizes = np.full(len(rows), rows.shape[1])
        return (write_shard(folder / f"{number:02d}.{kind}-lengths.bin", [sizes], "<u4"),)

    sizes = np.ones_like(test)
    sizes[:, 0] = 0
    entropy = unigram_nats(np.bincount(train.ravel()))
    train_bytes, test_bytes = train[:, 1:].size, test[:, 1:].size
    return DomainFacts(
        name=f"k = {k}",
        split="document",
        documents=len(train) + len(test),
        duplicates=0,
        train_documents=len(train),
        validation_documents=len(test),
        train_tokens=train.size,
        validation_tokens=test.size,
        train_bytes=train_bytes,
        validation_bytes=test_bytes,
        unigram_nats_per_token=entropy,
        unigram_bits_per_byte=entropy * train.size / (np.log(2) * train_bytes),
        train=written("train", train),
        train_lengths=lengths("train", train),
        validation=written("validation", test),
        validation_lengths=lengths("validation", test),
        validation_sizes=(
            write_shard(folder / f"{number:02d}.validation-sizes.bin", [sizes.ravel()], "<u4"),
        ),
    )
