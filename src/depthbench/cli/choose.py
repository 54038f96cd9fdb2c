"""``depthbench choose``: the least measured loss under limits."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from depthbench.cli.console import tell
from depthbench.cli.cost_models import ServingDtype, dtype_on
from depthbench.cli.options import AsJson
from depthbench.cli.probe import count_of
from depthbench.config import Frozen
from depthbench.cost.candidates import Candidate, Conditions, candidates_of
from depthbench.cost.choose import MEASURES, Choice, ChooseConfig, Limits, choose
from depthbench.cost.choose_words import predicted, sentences
from depthbench.cost.devices import find_device
from depthbench.cost.scaling import Law, Prediction, ScalingConfig, fit_designs
from depthbench.cost.serving import check_sizes
from depthbench.errors import DepthbenchError
from depthbench.files import user_path, write_atomic
from depthbench.quantities import bytes_text, count_text, parse_bytes, parse_seconds, seconds_text
from depthbench.shapes import parse_count
from depthbench.study.plan import belonging
from depthbench.study.store import Row

EXAMPLE = """Examples:

depthbench choose runs/study --max-params 400M --max-kv 2GiB --max-tpot 20ms --device h100

depthbench choose runs/small runs/large --context 32k --batch 8 --predict 800M --out choice
"""
WIDE = 140
"""Columns of the table where the output is no terminal that knows its own."""
TOLERANCE = ChooseConfig.model_fields["tolerance"].default


class Chosen(Frozen):
    """What ``choose --json`` prints."""

    schema_version: Literal[1] = 1
    choice: Choice
    laws: tuple[Law, ...]
    no_law: tuple[str, ...]
    """Designs without one, and why."""
    predictions: tuple[Prediction, ...]
    sentences: tuple[str, ...]


Studies = Annotated[
    list[str], typer.Argument(metavar="STUDY...", help="Folders of studies on the same data.")
]
MaxParams = Annotated[str | None, typer.Option("--max-params", help="Parameters: 400M, 1.5B.")]
MaxKV = Annotated[
    str | None, typer.Option("--max-kv", help="KV cache of the whole batch: 2GiB, 500MB.")
]
MaxTPOT = Annotated[str | None, typer.Option("--max-tpot", help="Time per output token: 20ms.")]
MaxMemory = Annotated[str | None, typer.Option("--max-memory", help="Memory while serving: 80GiB.")]
MaxTTFT = Annotated[str | None, typer.Option("--max-ttft", help="Time to the first token: 1s.")]
Served = Annotated[
    str, typer.Option("--device", help="Served on: h100, this, or a device's .json.")
]
Context = Annotated[str, typer.Option("--context", help="Tokens of context: 4096, 32k = 32768.")]
Batch = Annotated[int, typer.Option("--batch", min=1, help="Sequences at once.")]
Tolerance = Annotated[
    float, typer.Option("--tolerance", min=0, help="Share within which budgets are equal.")
]
Predict = Annotated[
    str | None, typer.Option("--predict", help="Also the loss of each design at this size: 800M.")
]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="Folder for choose.json and the figure of the Pareto front."),
]


def register(app: typer.Typer) -> None:
    """Add the command ``choose`` to ``app``."""
    app.command("choose", epilog=EXAMPLE)(choose_command)


def choose_command(
    studies: Studies,
    max_params: MaxParams = None,
    max_kv: MaxKV = None,
    max_tpot: MaxTPOT = None,
    max_memory: MaxMemory = None,
    max_ttft: MaxTTFT = None,
    device: Served = "h100",
    context: Context = "4096",
    batch: Batch = 1,
    dtype: ServingDtype = None,
    tolerance: Tolerance = TOLERANCE,
    predict: Predict = None,
    out: Out = None,
    as_json: AsJson = False,
) -> int:
    """The least measured loss under limits on serving, and what the limits cost.

    Losses are measured by the study, sizes are counted, times are modelled for the device. The
    exit code is 1 where nothing meets the limits.
    """
    limits = _limits(max_params, max_kv, max_tpot, max_memory, max_ttft)
    wanted = None if predict is None else parse_count(predict, "predict")
    spec = find_device(device)
    tokens = count_of(context, "context")
    check_sizes(tokens, batch)
    conditions = Conditions(
        device=spec,
        context=tokens,
        batch=batch,
        dtype=dtype_on(spec, dtype),
    )
    config = ChooseConfig.parse({"tolerance": tolerance}, "choose")
    rows, notes = _rows(studies)
    found, left_out = candidates_of(rows, conditions)
    choice = choose(found, limits, conditions, config=config, left_out=left_out)
    laws, refused = fit_designs(found)
    predictions = _predictions(laws, refused, wanted)
    words = [*sentences(choice), *notes, *(predicted(one) for one in predictions)]
    if wanted is not None:
        words += [f"No prediction for {one}." for one in refused]
    told = Chosen(
        choice=choice,
        laws=tuple(laws),
        no_law=tuple(refused),
        predictions=tuple(predictions),
        sentences=tuple(words),
    )
    answer = json.dumps(told.resolved(), indent=1)
    files = _write(choice, answer, out) if out else []
    if as_json:
        typer.echo(answer)
    else:
        _tell(choice, words, files)
    return 0 if choice.chosen else 1


def _limits(
    params: str | None, kv: str | None, tpot: str | None, memory: str | None, ttft: str | None
) -> Limits:
    return Limits(
        params=None if params is None else parse_count(params, "max-params"),
        kv=None if kv is None else parse_bytes(kv, "max-kv"),
        tpot=None if tpot is None else parse_seconds(tpot, "max-tpot"),
        memory=None if memory is None else parse_bytes(memory, "max-memory"),
        ttft=None if ttft is None else parse_seconds(ttft, "max-ttft"),
    )


def _rows(studies: Sequence[str]) -> tuple[list[list[Row]], list[str]]:
    """Rows that belong to each study, and in words how many do not."""
    # the report's modules take their time, and the command line imports this one
    from depthbench.report.study import read_study_folder

    read = [(study, *read_study_folder(user_path(study))) for study in dict.fromkeys(studies)]
    found: list[list[Row]] = []
    notes: list[str] = []
    for study, resolved, rows in read:
        own = belonging(resolved, rows)
        found.append(own)
        others = len(rows) - len(own)
        if others and not own:
            raise DepthbenchError(
                f"{study}: its {others} rows are of other settings than its study.toml has now, "
                "or of another version of depthbench. Run the study again with this one"
            )
        if others:
            notes.append(
                f"{study}: {others} of {len(rows)} rows are of other settings than its study.toml "
                "has now, or of another version of depthbench, and are left out."
            )
    return found, notes


def _predictions(
    laws: Sequence[Law], refused: Sequence[str], parameters: int | None
) -> list[Prediction]:
    if parameters is None:
        return []
    if not laws:
        raise DepthbenchError(f"predict = {parameters:,}: {refused[0]}")
    config = ScalingConfig()
    return sorted(
        (law.predict(parameters, config) for law in laws), key=lambda one: one.bits_per_byte
    )


def _write(choice: Choice, answer: str, out: Path) -> list[Path]:
    from depthbench.report.choose_figure import write_front

    path = out / "choose.json"
    write_atomic(path, answer + "\n")
    return [path, *write_front(choice, out)]


def _tell(choice: Choice, words: Sequence[str], files: Sequence[Path]) -> None:
    console = tell(_table(choice), words, WIDE)
    if files:
        listed = ", ".join(map(str, files))
        console.print(f"\nWritten: {listed}", highlight=False, markup=False, soft_wrap=True)


def _table(choice: Choice) -> Table:
    where = choice.conditions
    table = Table(
        title=Text(
            f"Served on {where.device.name} with context {where.context:,}, batch {where.batch}, "
            f"{where.dtype}: modelled"
        ),
        caption="* chosen   P on the Pareto front of loss, time per output token and KV cache   "
        "! beyond a limit",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("")
    table.add_column("candidate")
    for column in (
        "bits per byte",
        "seeds",
        "parameters",
        "KV cache",
        "state",
        "memory",
        "per token",
        "first token",
        "train FLOPs",
        "trained in",
    ):
        table.add_column(column, justify="right")
    for one in choice.candidates:
        chosen = one.name == choice.chosen
        table.add_row(*_cells(choice, one), style="bold" if chosen else "")
    return table


def _cells(choice: Choice, one: Candidate) -> list[Text]:
    broken = choice.limits.broken_by(one)
    mark = "*" if one.name == choice.chosen else ""
    front = "P" if one.name in choice.front else ""
    spread = "" if one.standard_deviation is None else f" ± {one.standard_deviation:.3f}"
    limited = {
        name: f"{measure.text(measure.of(one))}{' !' if name in broken else ''}"
        for name, measure in MEASURES.items()
    }
    return [
        Text(mark + front),
        Text(one.name),
        Text(f"{one.bits_per_byte:.3f}{spread}"),
        Text(str(one.finished) if one.finished == one.trials else f"{one.finished}/{one.trials}"),
        Text(limited["params"]),
        Text(limited["kv"]),
        Text(bytes_text(one.state_bytes)),
        Text(limited["memory"]),
        Text(limited["tpot"]),
        Text(limited["ttft"]),
        Text(count_text(one.training_flops)),
        Text(seconds_text(one.training_seconds)),
    ]
