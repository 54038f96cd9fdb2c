"""``depthbench eval MODEL``: losses, answers and tasks of a model."""

import importlib.util
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from depthbench.cli import eval_options as opt
from depthbench.cli.console import wide_console
from depthbench.cli.edits import Program, Repeat, Skip, Swap
from depthbench.cli.options import (
    AsJson,
    Blocks,
    Device,
    Dtype,
    FinalNorm,
    HeadName,
    Results,
    Seed,
    TextField,
)
from depthbench.cli.probe import count_of, progress_of, say_on
from depthbench.cli.targets import Target, targets
from depthbench.config import Frozen
from depthbench.errors import DepthbenchError
from depthbench.evals.accuracy import measure_task
from depthbench.evals.domains import DomainConfig, measure_domains
from depthbench.evals.measure import Machinery
from depthbench.evals.pairs import PairsConfig, measure_pairs
from depthbench.evals.programs import Asked, edits_of
from depthbench.evals.result import FILE, FOLDER, Evaluation, Measured, merged
from depthbench.evals.sets import SetsConfig, measure_sets
from depthbench.evals.sweep import Sweep, sweeps_of
from depthbench.evals.windows import WindowConfig
from depthbench.machine import prepare_process
from depthbench.probes.load import Opened, Parts, open_model
from depthbench.probes.reader import Reader

if TYPE_CHECKING:
    from depthbench.evals.harness import HarnessConfig

EXAMPLE = """Examples:

depthbench eval runs/run --data novels/ --data code/ --length 1024 --stride 512

depthbench eval smollm2.gguf --pairs questions.jsonl --skip 10

depthbench eval runs/run --set gsm8k,humaneval --limit 200

depthbench eval runs/run --sweep skip

depthbench eval models/llama --lm-eval my_quiz --include-path tasks/

depthbench eval tasks --task khop --designs prenorm,hc --depths 2,8
"""
MODEL = (
    "A run, trial or study of ours, a Hugging Face folder or name, a .gguf file, or an OLMo-core "
    "checkpoint."
)
WIDE = 110
WINDOWS = WindowConfig.model_fields
PAIRS = PairsConfig.model_fields
Settings = TypeVar("Settings", bound=Frozen)


@dataclass(frozen=True)
class Wanted:
    """What is evaluated."""

    domains: DomainConfig | None
    pairs: PairsConfig | None
    sets: SetsConfig | None
    task: bool
    harness: "HarnessConfig | None"
    edits: Asked
    batch: int
    seed: int


def models(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL)],
    data: opt.Texts = None,
    pairs: opt.PairFiles = None,
    sets: opt.Sets = None,
    length: opt.RowLength = None,
    stride: opt.Stride = None,
    bos: opt.BosPolicy = WINDOWS["bos"].default,
    tokens: opt.Most = "64k",
    text_field: TextField = "text",
    prompt_field: opt.PromptField = PAIRS["prompt"].default,
    answer_field: opt.AnswerField = PAIRS["answer"].default,
    join: opt.Join = PAIRS["join"].default,
    task: opt.OwnTask = False,
    lm_eval: opt.HarnessTasks = None,
    include_path: opt.IncludePath = None,
    limit: opt.Limit = None,
    skip: Skip = None,
    swap: Swap = None,
    repeat: Repeat = None,
    program: Program = None,
    sweep: opt.Sweep = None,
    batch: opt.Rows = 8,
    out: Results = None,
    blocks: Blocks = None,
    norm: FinalNorm = None,
    head: HeadName = None,
    device: Device = "cpu",
    dtype: Dtype = "float32",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Measure a model on text, answers and tasks, as it is or with its blocks rearranged."""
    prepare_process()
    join_of = {"join": join, "bos": bos, "length": length}
    windows = {"length": length, "stride": stride, "bos": bos}
    text = {"paths": tuple(data or ()), "text_field": text_field, "windows": windows}
    files = {"files": tuple(pairs or ()), "prompt": prompt_field, "answer": answer_field}
    names = tuple(one.strip() for given in sets or () for one in given.split(","))
    edits = {"skip": skip, "swap": swap, "repeat": repeat, "program": program, "sweep": sweep}
    named = bool(pairs or sets or task or lm_eval)
    wanted = Wanted(
        None if named and not data else _parsed(DomainConfig, text | {"tokens": count_of(tokens)}),
        _parsed(PairsConfig, files | join_of) if pairs else None,
        _parsed(SetsConfig, {"sets": names, "limit": limit} | join_of) if sets else None,
        task,
        _harness(lm_eval, include_path, limit, with_sets=bool(sets)),
        _parsed(Asked, edits),
        batch,
        seed,
    )
    parts = Parts(blocks=blocks, norm=norm, head=head)
    opening: dict[str, Any] = {"device": device, "dtype": dtype, "parts": parts}
    _evaluate([model], wanted, out, opening, as_json)


def _parsed(kind: type[Settings], given: dict[str, Any]) -> Settings:
    return kind.parse(given, "eval")


def _evaluate(
    models: list[str], wanted: Wanted, out: Path | None, opening: dict[str, Any], as_json: bool
) -> None:
    sweep = wanted.edits.sweep
    found: list[tuple[Evaluation, Target]] = []
    pages: list[Path] = []
    for target in list(targets(models, out, FOLDER)):
        evaluation, sweeps = _one(target, wanted, partial(open_model, target.source, **opening))
        found.append((evaluation, target))
        if sweep is not None:
            pages += _figures(sweeps, target.folder, sweep, evaluation.subject.label)
        if not as_json:
            _tell(evaluation, sweeps)
    if as_json:
        shown = [evaluation.resolved() for evaluation, _ in found]
        typer.echo(json.dumps(shown if len(shown) > 1 else shown[0], indent=1))
        return
    pages += [target.folder / FILE for _, target in found]
    pages += _reports(target for _, target in found)
    for page in pages:
        wide_console(WIDE).print(f"Written: {page}", markup=False, highlight=False, soft_wrap=True)


def _one(target: Target, wanted: Wanted, make: "partial[Opened]") -> tuple[Evaluation, list[Sweep]]:
    """What is now measured, with the sweeps in it; all is kept beside the model."""
    console = Console(stderr=True)
    with console.status("loading"):
        opened = make()
        subject, reader = opened.subject, opened.reader()
        edits = edits_of(wanted.edits, subject.layers)
    label = subject.facts.label
    with progress_of(console, label) as hear:
        machinery = Machinery(subject, edits, wanted.batch, wanted.seed, hear)
        found = list(_measured(machinery, reader, wanted))
    merged(target.folder / FILE, subject.facts, found)
    for note in dict.fromkeys(f"{one.name}: {note}" for one in found for note in one.notes):
        say_on(console, f"{label}: {note}")
    return Evaluation(subject=subject.facts, measured=tuple(found)), sweeps_of(found)


def _measured(machinery: Machinery, reader: Reader, wanted: Wanted) -> Iterator[Measured]:
    if wanted.domains is not None:
        yield from measure_domains(machinery, reader, wanted.domains)
    if wanted.pairs is not None:
        yield from measure_pairs(machinery, reader, wanted.pairs)
    if wanted.sets is not None:
        yield from measure_sets(machinery, reader, wanted.sets)
    if wanted.task:
        yield from measure_task(machinery, reader.dataset)
    if wanted.harness is not None:
        from depthbench.evals.harness import measure_harness

        yield from measure_harness(machinery, reader, wanted.harness)


def _harness(
    tasks: list[str] | None, include_path: str | None, limit: int | None, *, with_sets: bool
) -> "HarnessConfig | None":
    """Raises `DepthbenchError` where lm-eval is not installed."""
    if not tasks:
        if include_path is not None:
            raise DepthbenchError("--include-path is for --lm-eval TASK. Name a task")
        if limit is not None and not with_sets:
            raise DepthbenchError(
                "--limit is for --lm-eval TASK and --set NAME. Name one; --tokens limits text"
            )
        return None
    if importlib.util.find_spec("lm_eval") is None:
        raise DepthbenchError(
            "--lm-eval needs the package lm-eval. Run pip install 'depthbench[eval]'"
        )
    # it takes seconds to import
    from depthbench.evals.harness import HarnessConfig

    given = {"tasks": tuple(tasks), "include_path": include_path, "limit": limit}
    return HarnessConfig.parse(given, "eval")


def _reports(targets: Iterable[Target]) -> list[Path]:
    """Of the studies whose results lie beside them, anew."""
    studies = {one.study for one in targets if one.study is not None and one.page is not None}
    # plotting takes a second to import
    from depthbench.report import write_report

    inside = {study for study in studies if (study / FOLDER).is_dir()}
    return [write_report(study).html for study in sorted(inside)]


def _figures(sweeps: Sequence[Sweep], folder: Path, kind: str, label: str) -> list[Path]:
    # plotting takes a second to import
    from depthbench.report.eval_figure import write_sweep_figure

    return write_sweep_figure(sweeps, folder, kind, label) if sweeps else []


def _tell(evaluation: Evaluation, sweeps: Sequence[Sweep]) -> None:
    console = wide_console(WIDE)
    if sweeps:
        for sweep in sweeps:
            console.print(_sweep_table(sweep))
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.title = escape(f"{evaluation.subject.label} ({evaluation.subject.source})")
    for heading in ("on", "program", "what"):
        table.add_column(heading)
    for heading in ("value", "95 % interval", "unit"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in evaluation.measured:
        for number in one.numbers:
            words = (one.name, one.program, number.title, number.shown, number.shown_span)
            table.add_row(*map(escape, (*words, number.unit)))
    console.print(table)


def _sweep_table(sweep: Sweep) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    whole = "–" if sweep.plain is None else f"{sweep.plain:.4f}"
    table.title = escape(f"{sweep.name}: {sweep.score.replace('_', ' ')} {whole} as it is")
    table.add_column("program")
    for heading in ("value", "change"):
        table.add_column(heading, justify="right")
    for one in sweep.changes:
        value = "–" if one.value is None else f"{one.value:.4f}"
        table.add_row(one.label, value, "–" if one.change is None else f"{one.change:+.4f}")
    return table
