"""``depthbench data``: prepare token shards from text of any size, and look at them."""

import json
import time
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from depthbench.cli.console import wide_console
from depthbench.cli.options import TextField
from depthbench.data.config import PrepareConfig
from depthbench.data.inspect import Inspected, inspect_folder
from depthbench.data.manifest import Manifest, Prepared
from depthbench.data.scale import Seen, prepare_folder
from depthbench.files import user_path

EXAMPLE = """Examples:

depthbench data prepare 'corpus/**/*.parquet' notes.jsonl --tokenizer bpe --vocab 8192 --out data

depthbench data prepare hf:HuggingFaceFW/fineweb-edu:sample-10BT --megabytes 2000 --out edu

depthbench data inspect edu

depthbench run pocket data.prepared=edu
"""
PREPARE = """Examples:

depthbench data prepare 'corpus/**/*.parquet' --tokenizer tokenizer.json --out data

depthbench data prepare hf:HuggingFaceFW/fineweb-edu:sample-10BT --megabytes 2000 --out edu
"""
INSPECT = """Example:

depthbench data inspect data --json
"""
WIDE = 140
"""Columns of the table where the output is no terminal that knows its own."""
PATIENCE = 2.0
"""Seconds before a progress bar appears."""
SAMPLE = 160
"""Characters of a sample in the table's width."""

Paths = Annotated[
    list[str],
    typer.Argument(
        help="Files, folders or globs (text, .jsonl, .parquet), or hf:NAME[:SUBSET[:SPLIT]] of "
        "Hugging Face; one domain each."
    ),
]
Out = Annotated[Path, typer.Option("--out", help="Folder for the shards and their manifest.")]
TokenizerName = Annotated[
    str,
    typer.Option(
        "--tokenizer",
        help="bytes, bpe (trained on the text), a tokenizers .json, a folder with a "
        "tokenizer.json, or hf:NAME.",
    ),
]
Vocab = Annotated[int | None, typer.Option(help="Tokens of a trained bpe.", show_default="2048")]
Fraction = Annotated[
    float, typer.Option(help="Share of the documents that is kept for validation.")
]
Megabytes = Annotated[
    float | None, typer.Option(help="Read only so much text of each domain, in 10^6 bytes.")
]
ShardTokens = Annotated[
    int | None, typer.Option(help="Tokens in a shard.", show_default="134217728")
]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Processes; default: one a core.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Add the group ``data`` to ``app``."""
    group = typer.Typer(
        help="Turn text into token shards, and look at them.",
        epilog=EXAMPLE,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    group.command("prepare", epilog=PREPARE)(prepare)
    group.command("inspect", epilog=INSPECT)(inspect)
    app.add_typer(group, name="data")


def prepare(
    paths: Paths,
    out: Out,
    tokenizer: TokenizerName = "bytes",
    vocab: Vocab = None,
    text_field: TextField = "text",
    validation_fraction: Fraction = 0.1,
    megabytes: Megabytes = None,
    shard_tokens: ShardTokens = None,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Tokenise text in parallel into shards that a study trains on (data.prepared=FOLDER).

    Documents are deduplicated by content, and split by a hash of it. Run the same command again
    after Ctrl-C or a crash: it goes on, and the files are those of an undisturbed run.
    """
    given = {
        "paths": paths,
        "tokenizer": tokenizer,
        "vocab": vocab,
        "text_field": text_field,
        "validation_fraction": validation_fraction,
        "megabytes": megabytes,
        "shard_tokens": shard_tokens,
    }
    config = PrepareConfig.parse({k: v for k, v in given.items() if v is not None})
    started = time.monotonic()
    with Bar(Console(stderr=True)) as bar:
        manifest = prepare_folder(config, user_path(str(out)), workers=workers, say=bar.show)
    if as_json:
        seconds = time.monotonic() - started
        place = {"folder": str(out), "seconds": seconds, "resumed_tokens": bar.seen.resumed}
        answer = Prepared.parse(place | _totals(manifest), "data prepare")
        typer.echo(json.dumps(answer.resolved(), indent=2, ensure_ascii=False))
        return
    totals = _totals(manifest)
    dropped = f", {totals['duplicates']:,} duplicates dropped" if totals["duplicates"] else ""
    typer.echo(
        f"{out}: {totals['documents']:,} documents, {totals['tokens']:,} tokens, "
        f"{totals['bytes']:,} bytes of text{dropped}; hash {manifest.hash}"
    )
    for domain in manifest.domains:
        for note in domain.notes:
            typer.echo(f"- {domain.name}: {note}")


def inspect(
    folder: Annotated[Path, typer.Argument(help="Folder of a prepared dataset.")],
    as_json: AsJson = False,
) -> None:
    """Counts, entropy and sample text of a prepared dataset; every shard's hash is checked."""
    found = inspect_folder(user_path(str(folder)))
    if as_json:
        typer.echo(json.dumps(found.resolved(), indent=2, ensure_ascii=False))
        return
    console = wide_console(WIDE)
    console.print(facts_table(found))
    console.print(sides_table(found))
    for side in found.sides:
        text = shown(side.sample)[:SAMPLE]
        console.print(f"{side.domain}, {side.side}: {text}", markup=False, highlight=False)


def shown(text: str) -> str:
    """``text`` in one line that no terminal obeys: what cannot be printed is escaped."""
    return "".join(
        one if one.isprintable() and one != "\\" else one.encode("unicode_escape").decode()
        for one in text
    )


def facts_table(found: Inspected) -> Table:
    """What holds for the whole dataset."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    rows = {
        "folder": found.folder,
        "hash": found.hash,
        "tokenizer": found.tokenizer,
        "tokenizer hash": found.tokenizer_hash or "none",
        "vocabulary": f"{found.vocab:,} tokens, ln(V) = {found.ln_vocab:.4f} nats per token",
        "document token": str(found.document_token),
    }
    rows |= {f"origin of {name}": words for name, words in found.origin.items()}
    rows |= {f"duplicates in {name}": f"{n:,} dropped" for name, n in found.duplicates.items()}
    rows |= {f"note on {name}": "; ".join(notes) for name, notes in found.notes.items()}
    for name, words in rows.items():
        table.add_row(escape(shown(name)), escape(shown(words)))
    return table


def sides_table(found: Inspected) -> Table:
    """A line for each side of each domain."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("domain", "side"):
        table.add_column(heading)
    headings = ("documents", "tokens", "bytes", "bytes/token", "longest", "shards")
    for heading in (*headings, "unigram nats/token", "bits/byte"):
        table.add_column(heading, justify="right")
    for side in found.sides:
        numbers = (side.documents, side.tokens, side.bytes)
        table.add_row(
            escape(shown(side.domain)),
            side.side,
            *(f"{n:,}" for n in numbers),
            f"{side.bytes / side.tokens:.2f}",
            f"{side.longest:,}",
            str(side.shards),
            f"{side.unigram_nats_per_token:.4f}",
            f"{side.unigram_bits_per_byte:.4f}",
        )
    return table


def _totals(manifest: Manifest) -> dict[str, Any]:
    domains = manifest.domains
    return {
        "hash": manifest.hash,
        "documents": sum(d.documents for d in domains),
        "duplicates": sum(d.duplicates for d in domains),
        "tokens": sum(d.train_tokens + d.validation_tokens for d in domains),
        "bytes": sum(d.train_bytes + d.validation_bytes for d in domains),
        "vocab": manifest.vocab,
        "ln_vocab": manifest.ln_vocab,
        "domains": [d.resolved() for d in domains],
    }


class Bar:
    """Progress on a terminal, once it takes longer than two seconds; silent elsewhere."""

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[facts]}"),
        )
        self.progress = Progress(*columns, console=console, transient=True)
        self.task = self.progress.add_task("reading", total=None, facts="")
        self.there = console.is_terminal
        self.started = time.monotonic()
        self.running = False
        self.seen = Seen()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.running:
            self.progress.stop()

    def show(self, seen: Seen) -> None:
        """The state of now."""
        self.seen = seen
        seconds = time.monotonic() - self.started
        if not self.there or seconds < PATIENCE:
            return
        if not self.running:
            self.progress.start()
            self.running = True
        speed = (seen.tokens - seen.resumed) / seconds
        facts = f"{seen.documents:,} documents, {seen.tokens:,} tokens, {speed:,.0f} tokens/s"
        self.progress.update(
            self.task,
            description=seen.step,
            total=seen.total,
            completed=seen.read if seen.total else 0,
            facts=facts,
        )
