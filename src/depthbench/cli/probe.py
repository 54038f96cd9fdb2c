"""``depthbench probe``: how much of its depth a model uses."""

import json
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from depthbench.cli.console import wide_console
from depthbench.cli.options import (
    AsJson,
    Blocks,
    Data,
    Device,
    Dtype,
    FinalNorm,
    HeadName,
    Length,
    Seed,
    TextField,
    Tokens,
    Workers,
)
from depthbench.cli.run import interrupt
from depthbench.cli.targets import Target, targets
from depthbench.errors import DepthbenchError
from depthbench.machine import prepare_process
from depthbench.probes import parse_probes
from depthbench.probes.load import Opened, Parts, folder_of, load, open_model
from depthbench.probes.probe import Probe
from depthbench.probes.result import Number, ProbeResult
from depthbench.probes.run import kept_results, run_probes
from depthbench.probes.study import FOLDER
from depthbench.probes.subject import Subject
from depthbench.probes.text import SHORTEST, Text, TextConfig

EXAMPLE = """Examples:

depthbench probe runs/run --tokens 16k

depthbench probe runs/demo

depthbench probe smollm2.gguf --probes depth,lens,prune --tokens 4k

depthbench probe --compare runs/a runs/b HuggingFaceTB/SmolLM2-135M --data texts/
"""
WIDE = 110
TEXT = TextConfig.model_fields


def register(app: typer.Typer) -> None:
    """Add the command ``probe`` to ``app``."""
    app.command("probe", epilog=EXAMPLE)(probe)


def probe(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            help="A run, trial or study of ours, a Hugging Face folder or name, a .gguf file, or "
            "an OLMo-core checkpoint.",
        ),
    ],
    probes: Annotated[str, typer.Option("--probes", help="all, or names with commas.")] = "all",
    compare: Annotated[
        bool, typer.Option("--compare", help="Draw all models side by side on one scale.")
    ] = False,
    data: Data = None,
    text_field: TextField = TEXT["text_field"].default,
    tokens: Tokens = "16k",
    length: Length = TEXT["length"].default,
    start: Annotated[
        str, typer.Option("--start", help="Document token before each text: model, always, never.")
    ] = "model",
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder of the results; runs/probes/... unless given."),
    ] = None,
    workers: Workers = 1,
    blocks: Blocks = None,
    norm: FinalNorm = None,
    head: HeadName = None,
    device: Device = "cpu",
    dtype: Dtype = "float32",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> int:
    """Measure how a model uses its depth: what each block does, and what is lost without it.

    Finished probes are kept, so the same command goes on after Ctrl-C.
    """
    prepare_process()
    signal.signal(signal.SIGTERM, interrupt)
    chosen = [one.model_copy(update={"seed": seed}) for one in parse_probes(probes)]
    config = TextConfig.parse(
        {
            "paths": tuple(data or ()),
            "text_field": text_field,
            "tokens": count_of(tokens),
            "length": length,
            "start": start,
        },
        "probe",
    )
    parts = Parts(blocks=blocks, norm=norm, head=head)
    if compare and len(models) < 2 and not (folder_of(models[0]) / "trials").is_dir():
        raise DepthbenchError("--compare needs two models or more, or a study. Name another one")
    todo = list(targets(models, out, FOLDER))
    console = Console(stderr=True)
    found: list[list[ProbeResult]] = []
    kept: list[list[ProbeResult]] = []
    try:
        for one in todo:
            make = partial(open_model, one.source, device=device, dtype=dtype, parts=parts)
            subject, text = opened_with_text(make, config, console)
            have, want = text.facts.tokens, config.tokens
            if have < want // 2:
                short = f"the text has {have} tokens of the {want} that were asked for"
                say_on(console, f"{subject.facts.label}: {short}")
            found.append(measured(subject, text, chosen, one.folder, make, workers, console))
            kept.append(kept_results(one.folder, found[-1], partial(say_on, console)))
    except KeyboardInterrupt:
        console.print("Stopped: what is measured is kept. The same command goes on.")
        return 130
    answer(found, _pages(kept, todo, compare, out), as_json)
    return 0


def count_of(text: str, field: str = "tokens") -> int:
    """``4096``, ``64k`` = 65536, ``1M`` = 1048576.

    Raises `DepthbenchError` for anything else, and for fewer tokens than a row has.
    """
    unit = {"k": 2**10, "m": 2**20}.get(text[-1:].lower(), 1)
    number = text[:-1] if unit > 1 else text
    try:
        given = float(number) * unit
        count = round(given)
    except (ValueError, OverflowError):
        raise DepthbenchError(
            f"{field} = '{text}' is no number. Write it as 4096, 64k or 1M"
        ) from None
    if count != given:
        raise DepthbenchError(f"{field} = '{text}' is no whole number. Write it as 4096, 64k or 1M")
    if count < SHORTEST:
        raise DepthbenchError(
            f"{field} = '{text}': at least {SHORTEST} are needed, one to read and one to predict. "
            f"Ask for more, such as --{field} 4096"
        )
    return count


def opened_with_text(
    make: "partial[Opened]", config: TextConfig, console: Console
) -> tuple[Subject, Text]:
    """A model, and the text that it is to read."""
    with console.status("loading"):
        opened = make()
        return opened.subject, opened.text(config)


def measured(
    subject: Subject,
    text: Text,
    probes: Sequence[Probe],
    folder: Path,
    make: "partial[Opened]",
    workers: int,
    console: Console,
) -> list[ProbeResult]:
    """Results of ``probes``, with a bar on a terminal; workers load the model as ``make`` does."""
    label = subject.facts.label
    with progress_of(console, label) as hear:
        return run_probes(
            subject,
            text,
            probes,
            folder,
            make=partial(load, *make.args, **make.keywords),
            workers=workers,
            progress=hear,
            say=lambda words: say_on(console, f"{label}: {words}"),
        )


def say_on(console: Console, words: str) -> None:
    """One line, as it is."""
    console.print(words, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def progress_of(console: Console, label: str) -> Iterator["Bars"]:
    """Bars of tasks on a terminal; silent elsewhere."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    bars = Progress(
        *columns,
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bars:
        yield Bars(bars, escape(label))


class Bars:
    """A bar for the task that is measured now."""

    def __init__(self, bars: Progress, label: str) -> None:
        self.bars, self.label = bars, label
        self.task = bars.add_task(label, total=None)

    def __call__(self, name: str, done: int, total: int) -> None:
        self.bars.update(
            self.task, description=f"{self.label}: {name}", completed=done, total=total
        )


def _pages(
    kept: Sequence[Sequence[ProbeResult]],
    targets: Sequence[Target],
    compare: bool,
    out: Path | None,
) -> list[Path]:
    """A page a model, one of each study's models side by side, the studies' reports anew."""
    # plotting libraries take a second to import
    from depthbench.report import write_report
    from depthbench.report.probes import write_probes

    pages: list[Path] = []
    studies: dict[tuple[Path, Path], list[Sequence[ProbeResult]]] = {}
    for results, target in zip(kept, targets, strict=True):
        if not results:
            continue
        pages.append(write_probes([results], target.folder))
        if target.study is not None and target.page is not None:
            studies.setdefault((target.study, target.page), []).append(results)
    for (study, place), groups in studies.items():
        pages.append(write_probes(groups, place))
        if out is None:
            pages.append(write_report(study).html)
    if compare and sum(map(bool, kept)) > 1:
        pages.append(write_probes(kept, out or Path("runs", FOLDER, "comparison")))
    return list(dict.fromkeys(pages))


def answer(found: Sequence[Sequence[ProbeResult]], pages: Sequence[Path], as_json: bool) -> None:
    """Print what was found, and where its pages are."""
    if as_json:
        every = [[one.resolved() for one in results] for results in found]
        typer.echo(json.dumps(every if len(every) > 1 else every[0], indent=1))
        return
    console = wide_console(WIDE)
    for results in found:
        if results:
            console.print(numbers_table(results))
        for result in results:
            for words in result.words:
                console.print(f"- {result.probe}: {words}", markup=False, highlight=False)
    for page in pages:
        console.print(f"Report: {page}", markup=False, highlight=False, soft_wrap=True)


def numbers_table(results: Sequence[ProbeResult]) -> Table:
    """All single numbers of a model's probes."""
    facts, text = results[0].subject, results[0].text
    title = f"{facts.label} ({facts.source}), {text.tokens:,} tokens of {text.origin}"
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", title=escape(title))
    for heading in ("probe", "what"):
        table.add_column(heading)
    every = [one for result in results for one in result.findings if isinstance(one, Number)]
    other = any(one.span for one in every)
    for heading in ("value", "95 % interval" + ", or as said" * other, "unit"):
        table.add_column(heading, justify="right", no_wrap=heading != "unit")
    for result in results:
        for one in result.findings:
            if isinstance(one, Number):
                table.add_row(
                    result.probe,
                    escape(one.title),
                    one.shown,
                    escape(one.shown_span),
                    escape(one.unit),
                )
    return table
