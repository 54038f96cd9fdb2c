"""``depthbench cost``: what depth and each design cost to train and to serve."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from depthbench.cli.console import wide_console
from depthbench.cli.cost_models import (
    BackboneName,
    Context,
    Depths,
    Designs,
    DeviceName,
    Family,
    Heads,
    KVHeads,
    Models,
    Params,
    ServingDtype,
    Tied,
    Vocab,
    dtype_on,
    models_of,
)
from depthbench.cli.numbers import numbers
from depthbench.cli.options import AsJson
from depthbench.cli.probe import count_of
from depthbench.cli.shapes import short
from depthbench.cost.devices import DeviceSpec, find_device
from depthbench.cost.explain import NOTABLE, WORDS, Side, difference, dominant, flops
from depthbench.cost.grid import CostRow, Costs, GridRow, Job, Training, rows_of
from depthbench.cost.growth import Growth, growth
from depthbench.cost.ledger import Cost
from depthbench.cost.predict import Split
from depthbench.cost.serving import check_sizes
from depthbench.cost.training import products_on
from depthbench.errors import DepthbenchError
from depthbench.files import make_folder, write_atomic
from depthbench.quantities import bytes_text, seconds_text

EXAMPLE = """Examples:

depthbench cost --family 400m --designs prenorm,hc --context 4096 --device h100

depthbench cost --params 25M --depths 4,32 --designs all --device this --training

depthbench cost runs/demo/trials/0123456789ab --json
"""
WIDE = 150

Batch = Annotated[int, typer.Option("--batch", min=1, help="Sequences at once.")]
Tensor = Annotated[int, typer.Option("--tensor", min=1, help="Devices that share each matrix.")]
Pipeline = Annotated[int, typer.Option("--pipeline", min=1, help="Runs of blocks, a device each.")]
Graphs = Annotated[
    bool, typer.Option("--graphs", help="All kernels launched as one graph (CUDA graphs).")
]
WithTraining = Annotated[bool, typer.Option("--training", help="Also a training step.")]
Sequences = Annotated[int, typer.Option("--sequences", min=1, help="In a training batch.")]
Length = Annotated[int, typer.Option("--length", min=2, help="Tokens of a training sequence.")]
Ways = Annotated[str, typer.Option("--ways", help="Devices that share a training step's memory.")]
Grow = Annotated[bool, typer.Option("--growth", help="Fit exponents in layers, width, context.")]
ByPart = Annotated[bool, typer.Option("--parts", help="Also each part of prompt and token.")]
Workers = Annotated[int, typer.Option("--workers", min=1, help="Processes.")]
Out = Annotated[Path | None, typer.Option("--out", help="Folder for cost.json and figures.")]


def register(app: typer.Typer) -> None:
    """Add the command ``cost`` to ``app``."""
    app.command("cost", epilog=EXAMPLE)(cost)


def cost(
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
    context: Context = "4096",
    batch: Batch = 1,
    dtype: ServingDtype = None,
    device: DeviceName = "h100",
    graphs: Graphs = False,
    tensor: Tensor = 1,
    pipeline: Pipeline = 1,
    training: WithTraining = False,
    sequences: Sequences = 8,
    length: Length = 1024,
    ways: Ways = "1,2,4,8",
    by_part: ByPart = False,
    grow: Grow = False,
    workers: Workers = 2,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Compute, memory, cache and time of models, from the models themselves."""
    spec = find_device(device)
    spec = spec.graphed() if graphs else spec
    number = dtype_on(spec, dtype)
    tokens = count_of(context, "context")
    check_sizes(tokens, batch)
    split_ways = numbers("ways", ways, int)
    if min(split_ways) < 1:
        raise DepthbenchError(f"--ways {ways}: a number of devices is at least 1. Write 1,2,4,8")
    asked = models_of(
        runs, designs, family_name, backbone, tied_head,
        params=params, depths=depths, heads=heads, kv_heads=kv_heads, vocab=vocab,
    )  # fmt: skip
    step = Training(sequences=sequences, length=length, products=products_on(spec, "auto"))
    shared = {
        "device": spec,
        "context": tokens,
        "batch": batch,
        "dtype": number,
        "split": Split(tensor=tensor, pipeline=pipeline),
        "training": step if training else None,
    }
    jobs = [Job(label=one.label, model=one.config, **shared) for one in asked]
    rows = _worked_out(jobs, workers)
    grown = _growth(rows, jobs[0].context) if grow else {}
    answer = Costs(
        device=spec,
        rows=tuple(_record(row, split_ways) for row in rows),
        growth={name: tuple(found) for name, found in grown.items()},
        sentences=tuple(sentences(rows, spec)),
    ).resolved()
    if out is not None:
        _write(out, answer, rows)
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
        return
    _show(rows, spec, split_ways, grown, by_part)
    if out is not None:
        typer.echo(f"Written: {out / 'cost.json'}, {out / 'cost.png'}")


def _worked_out(jobs: Sequence[Job], workers: int) -> list[GridRow]:
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("models", total=len(jobs))
        return rows_of(jobs, workers, lambda done: bar.update(task, completed=done))


def _growth(rows: Sequence[GridRow], context: int) -> dict[str, list[Growth]]:
    """Of each design, around the middle one of its shapes."""
    by_label: dict[str, list[GridRow]] = {}
    for row in rows:
        by_label.setdefault(row.label, []).append(row)
    return {
        label: growth(several[len(several) // 2].model, context)
        for label, several in by_label.items()
    }


def _record(row: GridRow, ways: Sequence[int]) -> CostRow:
    found, training = row.served, row.training
    return CostRow(
        **dict(row),
        prefill_intensity=found.ledger.prefill.total.intensity,
        decode_intensity=found.ledger.decode.total.intensity,
        ttft_seconds=found.ttft,
        tpot_seconds=found.tpot,
        tokens_per_second=found.tokens_per_second,
        memory_bytes=found.memory,
        training_bytes_by_ways=None
        if training is None
        else {str(one): training.cost.bytes_on(one) for one in ways},
    )


def sentences(rows: Sequence[GridRow], device: DeviceSpec) -> list[str]:
    """Deepest against shallowest of each design, what stands out, and the crossover."""
    said: list[str] = []
    by_label: dict[str, list[GridRow]] = {}
    for row in rows:
        by_label.setdefault(row.label, []).append(row)
    for label, several in by_label.items():
        ordered = sorted(several, key=lambda row: row.model.shape.layers)
        low, high = ordered[0], ordered[-1]
        if low is high:
            continue
        slow, fast = (
            Side(name=f"{label} with {row.model.shape.layers} layers", times=row.served.decode)
            for row in (high, low)
        )
        said.append(difference(slow, fast, "token"))
    more = {row.label: row.served.ledger.excess for row in rows}
    said += [
        f"{label}: the run multiplies {excess:.2f}x what its equations need, for its attention is "
        "made of products that fill the whole square of scores; times and memory are the run's."
        for label, excess in more.items()
        if excess > 1 + NOTABLE
    ]
    said += [
        f"{row.label} with {row.model.shape.layers} layers needs "
        f"{bytes_text(row.served.memory)}: more than the {bytes_text(device.memory)} "
        f"of {device.name}."
        for row in rows
        if row.served.memory > device.memory
    ]
    tokens = [row.crossover_tokens for row in rows]
    said.append(
        f"Attention passes the projections in FLOPs at {min(tokens):,.0f} tokens"
        + (f" (narrowest) to {max(tokens):,.0f} (widest)." if len(set(tokens)) > 1 else ".")
    )
    return said


def _show(
    rows: Sequence[GridRow],
    device: DeviceSpec,
    ways: Sequence[int],
    grown: dict[str, list[Growth]],
    by_part: bool,
) -> None:
    console = wide_console(WIDE)
    console.print(serving_table(rows))
    for row in rows if by_part else ():
        console.print(parts_table(row))
    if rows[0].training is not None:
        console.print(training_table(rows, ways))
    if grown:
        console.print(growth_table(grown))
    for sentence in sentences(rows, device):
        console.print(f"- {sentence}", highlight=False, markup=False)
    console.print(f"Device: {device.name}, {device.source}", highlight=False, markup=False)


def serving_table(rows: Sequence[GridRow]) -> Table:
    """One line a model."""
    first = rows[0].served.ledger
    title = f"{first.context:,} tokens, batch {first.batch}, {first.dtype}, {rows[0].served.device}"
    names = ("design", "layers", "width", "parameters", "prefill", "own", "KV", "state", "memory",
             "first token", "per token", "most of it", "kernels", "weights/token")  # fmt: skip
    table = _table(title, names)
    for row in rows:
        ledger, shape = row.served.ledger, row.model.shape
        own = ledger.stated.own / ledger.stated.forward
        table.add_row(
            row.label,
            str(shape.layers),
            str(shape.width),
            short(ledger.parameters.total),
            flops(ledger.stated_prefill),
            f"{own:.2%}",
            bytes_text(ledger.cache.total),
            bytes_text(ledger.prefill.state_bytes),
            bytes_text(row.served.memory),
            seconds_text(row.served.ttft),
            seconds_text(row.served.tpot),
            WORDS[dominant(row.served.decode)],
            str(ledger.decode.total.kernels),
            bytes_text(ledger.decode.weight_bytes),
        )
    return table


def parts_table(row: GridRow) -> Table:
    """Where the prompt's and the token's operations and bytes are."""
    shape, ledger = row.model.shape, row.served.ledger
    names = ("part", "prompt", "bytes", "kernels", "FLOP/byte", "token", "bytes", "kernels",
             "FLOP/byte")  # fmt: skip
    table = _table(f"{row.label}, {shape.layers} layers of width {shape.width}", names)
    passes = (ledger.prefill, ledger.decode)
    for name in ledger.prefill.parts:
        cells = [_cells(one.parts[name]) if name in one.parts else ["–"] * 4 for one in passes]
        table.add_row(name, *cells[0], *cells[1])
    table.add_row("all", *_cells(ledger.prefill.total), *_cells(ledger.decode.total))
    return table


def _cells(one: Cost) -> list[str]:
    return [flops(one.flops), bytes_text(one.bytes), str(one.kernels), f"{one.intensity:.3g}"]


def training_table(rows: Sequence[GridRow], ways: Sequence[int]) -> Table:
    """One line a model."""
    names = ["design", "layers", "width", "step", "seconds", "kept", "kept, recomputed"]
    names += [f"memory on {one}" for one in ways]
    table = _table("one training step", names)
    for row in rows:
        if row.training is None:
            continue
        cost = row.training.cost
        table.add_row(
            row.label,
            str(row.model.shape.layers),
            str(row.model.shape.width),
            flops(cost.step.total.flops),
            seconds_text(cost.seconds),
            bytes_text(cost.step.kept_bytes),
            bytes_text(row.training.recomputed.kept_bytes),
            *(bytes_text(cost.bytes_on(one)) for one in ways),
        )
    return table


def growth_table(grown: dict[str, list[Growth]]) -> Table:
    """Exponents."""
    table = _table(
        "cost goes with layers^a · width^b · context^c (fitted from half to double)",
        ("design", "what", "a", "b", "c", "largest deviation"),
    )
    for label, found in grown.items():
        for one in found:
            table.add_row(
                label,
                one.what,
                f"{one.layers:.2f}",
                f"{one.width:.2f}",
                f"{one.context:.2f}",
                f"{one.deviation - 1:.0%}",
            )
    return table


def _table(title: str, names: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    for place, name in enumerate(names):
        table.add_column(name, justify="left" if place == 0 else "right")
    return table


def _write(out: Path, answer: dict[str, Any], rows: Sequence[GridRow]) -> None:
    # plotting takes a second to import
    from depthbench.report.cost_figure import write_cost_figure

    make_folder(out)
    write_atomic(out / "cost.json", json.dumps(answer, indent=2) + "\n")
    write_cost_figure(rows, out)
