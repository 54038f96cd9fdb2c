"""Speed of `depthbench data prepare` against the tokenizer library alone, on the same text.

    python benchmarks/data.py [--quick] [--json FILE]

Both use two processes of one thread with the same tokenizer. The library's have the text in memory
and throw the ids away; prepare reads files, hashes, deduplicates, counts and writes shards. Both
run in turn, round after round, in wall time and in CPU time of all processes; the start of the
processes is left out for the library and counted for prepare. A busy machine blurs wall times and
leaves CPU times.
"""

import json
import multiprocessing
import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.parquet as pq
import tokenizers
import typer
from rich.console import Console
from rich.table import Table

from depthbench.data.config import PrepareConfig
from depthbench.data.installed import sources
from depthbench.data.scale import prepare_folder
from depthbench.data.sources import Document, UnreadableFile
from depthbench.data.tokenizer import train_bpe
from depthbench.files import write_atomic

PROCESSES = 2
VOCAB = 8192
BATCH = 1000
"""Documents that the library is given at once, as `datasets.map` does."""


@dataclass
class Figures:
    """One kind of file; seconds are medians."""

    kind: str
    megabytes: float
    documents: int
    tokens: int
    library_seconds: float
    prepare_seconds: float
    library_tokens_per_second: float
    prepare_tokens_per_second: float
    share: float
    """Library's wall time over prepare's: median of the rounds' own ratios."""
    cpu_share: float
    """The same of CPU times."""


@dataclass
class Spent:
    """One run; seconds."""

    wall: float
    cpu: float


def corpus(megabytes: float) -> list[str]:
    """Different documents of about 3 kB, from the installed corpus and over again with a number."""
    found: list[str] = []
    for domain in ("code", "math", "prose"):
        for source in sources(domain):
            try:
                texts = [document.data.decode(errors="replace") for document in source.read()]
            except UnreadableFile:
                continue
            found += [text[i : i + 3000] for text in texts for i in range(0, len(text), 3000)]
    made: list[str] = []
    size, turn = 0.0, 0
    while size < megabytes * 1e6:
        for text in found:
            made.append(f"{turn} {text}")
            size += len(made[-1])
            if size >= megabytes * 1e6:
                break
        turn += 1
    return made


def alone(channel: Connection, tokenizer: str, texts: list[str]) -> None:
    """A process that tokenises its half each time it is told to."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    inner = tokenizers.Tokenizer.from_file(tokenizer)
    while channel.recv():
        tokens, started = 0, time.process_time()
        for start in range(0, len(texts), BATCH):
            batch = inner.encode_batch_fast(texts[start : start + BATCH], add_special_tokens=False)
            tokens += sum(len(coded) for coded in batch)
        channel.send((tokens, time.process_time() - started))


@contextmanager
def library(tokenizer: Path, texts: list[str]) -> Iterator[list[Connection]]:
    """The library's processes, ready."""
    context = multiprocessing.get_context("spawn")
    ends: list[Connection] = []
    running = []
    for number in range(PROCESSES):
        ours, theirs = context.Pipe()
        part = texts[number::PROCESSES]
        process = context.Process(target=alone, args=(theirs, str(tokenizer), part), daemon=True)
        process.start()
        ends.append(ours)
        running.append(process)
    try:
        yield ends
    finally:
        for process in running:
            process.kill()
            process.join()


def library_run(ends: list[Connection]) -> tuple[Spent, int]:
    """Time of all processes, and the tokens they made."""
    started = time.perf_counter()
    for end in ends:
        end.send(True)
    answers = [end.recv() for end in ends]
    wall = time.perf_counter() - started
    return Spent(wall, sum(cpu for _, cpu in answers)), sum(tokens for tokens, _ in answers)


def cpu_seconds() -> float:
    """Of this process and of all that it has started and that have ended."""
    own, ended = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime


def prepare_run(paths: list[Path], tokenizer: Path, out: Path) -> Spent:
    """Time of the whole command's work, processes started and shards written."""
    shutil.rmtree(out, ignore_errors=True)
    config = PrepareConfig(paths=tuple(map(str, paths)), tokenizer=str(tokenizer))
    started, before = time.perf_counter(), cpu_seconds()
    prepare_folder(config, out, workers=PROCESSES)
    return Spent(time.perf_counter() - started, cpu_seconds() - before)


def written(folder: Path, kind: str, texts: list[str]) -> list[Path]:
    """The text in two files of a kind."""
    folder.mkdir()
    paths = [folder / f"{number}.{kind}" for number in range(2)]
    for number, path in enumerate(paths):
        half = texts[number::2]
        if kind == "parquet":
            pq.write_table(pa.table({"text": half}), path, row_group_size=1000)
        else:
            path.write_text("\n".join(json.dumps({"text": t}) for t in half), encoding="utf-8")
    return paths


def measure(kind: str, texts: list[str], tokenizer: Path, folder: Path, rounds: int) -> Figures:
    """Both in turn, after one round to warm up."""
    paths = written(folder / kind, kind, texts)
    spent: list[tuple[Spent, Spent]] = []
    with library(tokenizer, texts) as ends:
        _, tokens = library_run(ends)
        for _ in range(rounds):
            theirs, _ = library_run(ends)
            spent.append((theirs, prepare_run(paths, tokenizer, folder / "out")))
    alone_seconds = statistics.median(theirs.wall for theirs, _ in spent)
    ours = statistics.median(one.wall for _, one in spent)
    return Figures(
        kind=kind,
        megabytes=sum(len(text.encode()) for text in texts) / 1e6,
        documents=len(texts),
        tokens=tokens,
        library_seconds=alone_seconds,
        prepare_seconds=ours,
        library_tokens_per_second=tokens / alone_seconds,
        prepare_tokens_per_second=tokens / ours,
        share=statistics.median(theirs.wall / one.wall for theirs, one in spent),
        cpu_share=statistics.median(theirs.cpu / one.cpu for theirs, one in spent),
    )


def main(
    quick: Annotated[bool, typer.Option("--quick", help="Less text and fewer rounds.")] = False,
    out: Annotated[Path | None, typer.Option("--json", help="Write the figures there.")] = None,
) -> None:
    """Measure, and print the figures side by side."""
    texts = corpus(10 if quick else 40)
    table = Table("files", "MB", "tokens", "library tokens/s", "prepare tokens/s", "share", "CPU")
    figures: list[Figures] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        coder = train_bpe([[Document("a", text.encode()) for text in texts[:2000]]], VOCAB)
        tokenizer = folder / "tokenizer.json"
        write_atomic(tokenizer, coder.json)
        for kind in ("parquet", "jsonl"):
            one = measure(kind, texts, tokenizer, folder, 2 if quick else 5)
            figures.append(one)
            table.add_row(
                kind,
                f"{one.megabytes:.0f}",
                f"{one.tokens:,}",
                f"{one.library_tokens_per_second:,.0f}",
                f"{one.prepare_tokens_per_second:,.0f}",
                f"{one.share:.2f}",
                f"{one.cpu_share:.2f}",
            )
    Console().print(table)
    if out is not None:
        write_atomic(out, json.dumps([asdict(one) for one in figures], indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
