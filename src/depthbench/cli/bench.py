"""``depthbench bench``: time and memory of models as they run, beside what is predicted."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from depthbench.cli.console import wide_console
from depthbench.cli.cost_models import (
    Asked,
    BackboneName,
    Depths,
    Designs,
    Family,
    Heads,
    KVHeads,
    Models,
    Params,
    Tied,
    Vocab,
    models_of,
)
from depthbench.cli.numbers import numbers
from depthbench.cli.options import AsJson, Seed
from depthbench.cli.probe import count_of
from depthbench.config import Frozen
from depthbench.cost.calibrate import calibrate
from depthbench.cost.devices import THIS, DeviceSpec, find_device, stored_path
from depthbench.cost.explain import Side, difference
from depthbench.cost.ledger import dtype_of
from depthbench.cost.measure import BenchConfig, Measured, measure
from depthbench.cost.serving import Served, check_sizes, served
from depthbench.errors import DepthbenchError
from depthbench.files import write_atomic
from depthbench.machine import choose_device, prepare_process
from depthbench.nn.model import ModelConfig
from depthbench.quantities import bytes_text, seconds_text

EXAMPLE = """Examples:

depthbench bench device

depthbench bench --params 25M --depths 4,32 --designs prenorm,hc --batch 1,8
"""
WIDE = 150
DEVICE = "device"

Batches = Annotated[str, typer.Option("--batch", help="Sequences at once, with commas.")]
Context = Annotated[str, typer.Option("--context", help="Tokens of the prompt.")]
New = Annotated[int, typer.Option("--tokens", min=1, help="Tokens decoded behind it.")]
Repeats = Annotated[int, typer.Option("--repeats", min=1, help="Rounds that count.")]
Warmup = Annotated[int, typer.Option("--warmup", min=0, help="Rounds before them.")]
Place = Annotated[str, typer.Option("--device", help="cpu, cuda or auto.")]
Dtype = Annotated[str, typer.Option("--dtype", help="float32, bfloat16 or float16.")]
Again = Annotated[
    bool, typer.Option("--calibrate/--stored", help="Measure the machine anew before and after.")
]
Out = Annotated[
    Path | None, typer.Option("--out", help="File of the results, or of the device description.")
]


class BenchRow(Frozen):
    """One model: measured and predicted."""

    label: str
    model: ModelConfig
    measured: Measured
    predicted: Served

    @property
    def first_off(self) -> float:
        """Time to the first token: predicted over measured, less 1."""
        return self.predicted.ttft / self.measured.first.median - 1

    @property
    def each_off(self) -> float:
        """The same of the time per token."""
        return self.predicted.tpot / self.measured.each.median - 1


class BenchedRow(BenchRow):
    """A row as it is printed."""

    ttft_deviation: float
    """Predicted over measured, less 1."""
    tpot_deviation: float


class Benched(Frozen):
    """What ``bench --json`` prints."""

    schema_version: Literal[1] = 1
    rows: tuple[BenchedRow, ...]
    sentences: tuple[str, ...]


def register(app: typer.Typer) -> None:
    """Add the command ``bench`` to ``app``."""
    app.command("bench", epilog=EXAMPLE)(bench)


def bench(
    runs: Models = None,
    family_name: Family = None,
    params: Params = None,
    depths: Depths = None,
    heads: Heads = None,
    kv_heads: KVHeads = None,
    vocab: Vocab = None,
    designs: Designs = "prenorm",
    backbone: BackboneName = "dense",
    tied_head: Tied = False,
    batch: Batches = "1",
    context: Context = "512",
    tokens: New = 16,
    repeats: Repeats = 5,
    warmup: Warmup = 1,
    device: Place = "cpu",
    dtype: Dtype = "float32",
    anew: Again = True,
    seed: Seed = 0,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Measure prefill, first token, time per token and memory; `bench device`: the machine.

    Random weights of the right shapes; each model in a process of its own.
    """
    if runs == [DEVICE]:
        given = {"family": family_name, "params": params, "depths": depths, "vocab": vocab}
        for name, value in given.items():
            if value is not None:
                raise DepthbenchError(
                    f"bench device measures the machine, but --{name} {value} names a model. "
                    "Leave one of the two out"
                )
        _device(device, out, as_json)
        return
    prompt, batches = count_of(context, "context"), _batches(batch)
    for size in batches:
        check_sizes(prompt, size)
    choose_device(device)
    dtype_of(dtype)
    asked = models_of(
        runs, designs, family_name, backbone, tied_head,
        params=params, depths=depths, heads=heads, kv_heads=kv_heads, vocab=vocab,
    )  # fmt: skip
    jobs = [
        (
            one,
            BenchConfig(
                context=prompt, tokens=tokens, batch=size, dtype=dtype,
                device=device, warmup=warmup, repeats=repeats, seed=seed,
            ),
        )
        for one in asked
        for size in batches
    ]  # fmt: skip
    spec = _calibrated(device) if anew or not stored_path().is_file() else None
    rows = _measured(jobs, spec)
    answer = Benched(
        rows=tuple(_record(row) for row in rows), sentences=tuple(sentences(rows))
    ).resolved()
    if out is not None:
        write_atomic(out, json.dumps(answer, indent=2) + "\n")
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
        return
    console = wide_console(WIDE)
    console.print(bench_table(rows))
    for sentence in [*sentences(rows), *dict.fromkeys(rows[0].measured.notes)]:
        console.print(f"- {sentence}", highlight=False, markup=False)


def _device(device: str, out: Path | None, as_json: bool) -> None:
    spec = _calibrated(device, out)
    if as_json:
        typer.echo(json.dumps(spec.resolved(), indent=2))
        return
    console = wide_console(WIDE)
    console.print(device_table(spec))
    console.print(f"Written: {out or stored_path()}", highlight=False, markup=False)


def _calibrated(device: str, out: Path | None = None) -> DeviceSpec:
    """This machine as it is now, kept for later commands."""
    prepare_process()
    console = Console(stderr=True)
    with console.status("measuring this machine") as status:
        spec = calibrate(device, lambda text: status.update(f"measuring this machine: {text}"))
    path = out or stored_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps(spec.resolved(), indent=2) + "\n")
    return spec


def _batches(text: str) -> list[int]:
    found = numbers("batch", text, int)
    if min(found) < 1:
        raise DepthbenchError(f"--batch {text}: at least one sequence. Write 1,8")
    return found


def _measured(jobs: Sequence[tuple[Asked, BenchConfig]], spec: DeviceSpec | None) -> list[BenchRow]:
    known = spec or find_device(THIS)
    console = Console(stderr=True)
    rows: list[BenchRow] = []
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        for one, config in bar.track(jobs, description="models"):
            predicted = served(
                one.config, known, context=config.context, batch=config.batch, dtype=config.dtype
            )
            found = measure(one.config, config)
            rows.append(
                BenchRow(label=one.label, model=one.config, measured=found, predicted=predicted)
            )
    return rows


def _record(row: BenchRow) -> BenchedRow:
    return BenchedRow(**dict(row), ttft_deviation=row.first_off, tpot_deviation=row.each_off)


def sentences(rows: Sequence[BenchRow]) -> list[str]:
    """Deepest against shallowest of each design at the first batch size."""
    said: list[str] = []
    for label in dict.fromkeys(row.label for row in rows):
        batch = rows[0].measured.config.batch
        several = [r for r in rows if r.label == label and r.measured.config.batch == batch]
        ordered = sorted(several, key=lambda row: row.model.shape.layers)
        if ordered[0] is ordered[-1]:
            continue
        slow, fast = (
            Side(
                name=f"{label} with {row.model.shape.layers} layers",
                times=row.predicted.decode,
                measured=row.measured.each.median,
            )
            for row in (ordered[-1], ordered[0])
        )
        said.append(difference(slow, fast, "token"))
    return said


def bench_table(rows: Sequence[BenchRow]) -> Table:
    """One line a model and batch size: measured, predicted, and how far off that is."""
    first = rows[0].measured.config
    table = Table(
        title=f"{first.context} tokens, then {first.tokens} one at a time; {first.dtype}, "
        f"{rows[0].measured.machine.device}, {first.threads} thread(s); medians of "
        f"{first.repeats}",
        title_justify="left",
        box=None,
        padding=(0, 1, 0, 0),
    )
    names = ("design", "layers", "width", "batch", "first token", "spread", "predicted", "off",
             "per token", "spread", "predicted", "off", "tokens/s", "memory", "predicted",
             "J/token")  # fmt: skip
    for place, name in enumerate(names):
        table.add_column(name, justify="left" if place == 0 else "right")
    for row in rows:
        seen, thought = row.measured, row.predicted
        table.add_row(
            row.label,
            str(row.model.shape.layers),
            str(row.model.shape.width),
            str(seen.config.batch),
            seconds_text(seen.first.median),
            f"{seen.first.relative:.0%}",
            seconds_text(thought.ttft),
            f"{row.first_off:+.0%}",
            seconds_text(seen.each.median),
            f"{seen.each.relative:.0%}",
            seconds_text(thought.tpot),
            f"{row.each_off:+.0%}",
            f"{seen.tokens_per_second:,.0f}",
            "–" if seen.peak_bytes is None else bytes_text(seen.peak_bytes),
            bytes_text(thought.memory),
            "–" if seen.joules_per_token is None else f"{seen.joules_per_token:.3g}",
        )
    return table


def device_table(spec: DeviceSpec) -> Table:
    """What was measured, in words."""
    table = Table(title=spec.name, title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("what")
    table.add_column("largest", justify="right")
    table.add_column("by size")
    curves = [(f"products, {name} (GFLOP/s)", one) for name, one in spec.products.items()]
    curves += [
        (f"{one.rows} row(s), {name} (GB/s)", one.reading)
        for name, several in spec.skinny.items()
        for one in several
    ]
    curves += [("attention (GFLOP/s)", spec.attention), ("sums (GB/s)", spec.bandwidth)]
    if spec.cached is not None:
        curves.append(("keys and values, one query (GB/s)", spec.cached))
    for name, curve in curves:
        rates = " ".join(f"{rate / 1e9:.3g}" for _, rate in curve.points)
        table.add_row(name, f"{curve.best / 1e9:.3g}", rates)
    calls = [seconds_text(seconds) for _, seconds in spec.call.points]
    table.add_row("one call of the program", calls[-1], " ".join(calls))
    return table
