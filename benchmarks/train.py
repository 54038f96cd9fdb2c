"""Speed of a training step: designs against pre-norm, wrappers against PyPI, and the machine.

    python benchmarks/train.py [--quick] [--json FILE]

One process, one thread, CPU time. All entries of a part run in turn, round after round, and each
figure is a median over rounds, so a busy machine slows all of them alike.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from attn_res import AttnResOperator
from hyper_connections import (
    get_init_and_expand_reduce_stream_functions,
    mc_get_init_and_expand_reduce_stream_functions,
)
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from depthbench.cost.flops import count_flops
from depthbench.designs import REGISTRY, parse_design
from depthbench.designs.base import Connection, Site
from depthbench.designs.hc import HyperConnection, HyperConnectionConfig
from depthbench.designs.mhc import MHCConfig, MHCConnection
from depthbench.designs.sources import Sources
from depthbench.files import write_atomic
from depthbench.machine import choose_dtype, describe, prepare_process
from depthbench.nn.branch import Backbone
from depthbench.nn.model import Model, ModelConfig
from depthbench.nn.parameters import initialise
from depthbench.shapes import Shape
from timing import Job, interleaved

BATCH, LENGTH, WIDTH, STREAMS = 8, 256, 256, 4
BIG = Shape(layers=6, width=WIDTH, heads=4, kv_heads=4, ffn=682, vocab=8192)
DEEP = Shape(layers=16, width=48, heads=3, kv_heads=3, ffn=128, vocab=257)
MATRIX = 1024


@dataclass
class Figures:
    """Everything that was measured; times in CPU milliseconds."""

    machine: dict[str, Any]
    rounds: int
    limits: dict[str, float] = field(default_factory=dict)
    """GFLOP/s of one big matrix product, by dtype."""
    steps: list[dict[str, Any]] = field(default_factory=list)
    wrappers: list[dict[str, Any]] = field(default_factory=list)


def step_flops(shape: Shape) -> int:
    """Matrix products of one training step over a batch of the pre-norm backbone."""
    config = ModelConfig(shape=shape, design=parse_design("prenorm"))
    return BATCH * count_flops(config, LENGTH).training_step


def product(dtype: torch.dtype) -> Job:
    one, other = (torch.randn(MATRIX, MATRIX).to(dtype) for _ in range(2))
    return lambda: one @ other


def training_step(design: str, shape: Shape, dtype: torch.dtype) -> Job:
    """Forward, loss, backward and fused AdamW on ``BATCH × LENGTH`` tokens."""
    model = Model.build(ModelConfig(shape=shape, design=parse_design(design)), seed=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    tokens = torch.randint(shape.vocab, (BATCH, LENGTH + 1))

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            logits = model(tokens[:, :-1]).float()
        nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def measure_steps(figures: Figures, dtypes: list[torch.dtype]) -> None:
    """Every design against pre-norm, and pre-norm against the matrix limit of the same rounds."""
    for dtype in dtypes:
        name = str(dtype).removeprefix("torch.")
        for label, shape in (("d256 L6", BIG), ("d48 L16", DEEP)):
            jobs = {design: training_step(design, shape, dtype) for design in REGISTRY}
            found = interleaved({"limit": product(dtype), **jobs}, figures.rounds)
            limit = 2 * MATRIX**3 / found.pop("limit")
            if shape is BIG:
                figures.limits[name] = limit / 1e9
            for design, seconds in found.items():
                figures.steps.append(
                    {
                        "shape": label,
                        "dtype": name,
                        "design": design,
                        "milliseconds": 1e3 * seconds,
                        "tokens_per_second": BATCH * LENGTH / seconds,
                        "against_prenorm": seconds / found["prenorm"],
                        "share_of_limit": step_flops(shape) / seconds / limit,
                    }
                )


def ours(connection: Connection[Tensor]) -> Job:
    """Read, one Linear branch, write; forward and backward."""
    initialise(connection, 0)
    branch = nn.Linear(WIDTH, WIDTH, bias=False)
    streams = torch.randn(BATCH, LENGTH, STREAMS, WIDTH, requires_grad=True)
    onward = torch.randn(BATCH, LENGTH, STREAMS, WIDTH)

    def run() -> None:
        x, route = connection.read(streams)
        connection.write(streams, branch(x), route, None).backward(onward)

    return run


def theirs(wrap: Callable[..., nn.Module]) -> Job:
    """The package's wrapper around the same branch, streams folded into the batch as it wants."""
    wrapper = wrap(dim=WIDTH, branch=nn.Linear(WIDTH, WIDTH, bias=False))
    streams = torch.randn(BATCH * STREAMS, LENGTH, WIDTH, requires_grad=True)
    onward = torch.randn(BATCH * STREAMS, LENGTH, WIDTH)
    return lambda: wrapper(streams).backward(onward)


def our_mixes(mixes: int) -> Job:
    """``mixes`` depth mixes, each halved and appended as the next source."""
    queries = torch.zeros(mixes, WIDTH, requires_grad=True)
    embedding = torch.randn(BATCH, LENGTH, WIDTH, requires_grad=True)
    onward = torch.randn(BATCH, LENGTH, WIDTH)

    def run() -> None:
        state = Sources.opened(embedding, queries, 1e-6, run=1).add(0.5 * embedding, mix=0)
        for mix in range(1, mixes):
            mixed, route = state.mix()
            state = state.after(route).add(0.5 * mixed, mix=mix)
        state.mix()[0].backward(onward)

    return run


def their_mixes(mixes: int) -> Job:
    """The same with the package's operator, which takes the stacked sources."""
    operators = [AttnResOperator(WIDTH) for _ in range(mixes)]
    embedding = torch.randn(BATCH, LENGTH, WIDTH, requires_grad=True)
    onward = torch.randn(BATCH, LENGTH, WIDTH)

    def run() -> None:
        sources = [embedding, 0.5 * embedding]
        mixed = embedding
        for operator in operators:
            mixed = operator(torch.stack(sources))
            sources.append(0.5 * mixed)
        mixed.backward(onward)

    return run


def measure_wrappers(figures: Figures, mixes: int) -> None:
    """HC and mHC as one wrapper around a branch, AttnRes as a tower of mixes, against PyPI."""
    shape, site, backbone = BIG, Site(0, BIG.layers), Backbone()
    wrap_hc = get_init_and_expand_reduce_stream_functions(STREAMS)[0]
    wrap_mhc = mc_get_init_and_expand_reduce_stream_functions(STREAMS)[0]
    tower = f"attnres, {mixes} mixes"
    jobs = {
        "hc": ours(HyperConnection(HyperConnectionConfig(), site, shape, backbone)),
        "hyper-connections HC": theirs(wrap_hc),
        "mhc": ours(MHCConnection(MHCConfig(), site, shape, backbone)),
        "hyper-connections mHC": theirs(wrap_mhc),
    }
    found = interleaved(jobs, 3 * figures.rounds)
    found |= interleaved(
        {tower: our_mixes(mixes), "attn-res": their_mixes(mixes)}, 1 + figures.rounds // 3
    )
    for name, peer in (
        ("hc", "hyper-connections HC"),
        ("mhc", "hyper-connections mHC"),
        (tower, "attn-res"),
    ):
        figures.wrappers.append(
            {
                "wrapper": name,
                "milliseconds": 1e3 * found[name],
                "peer": peer,
                "peer_milliseconds": 1e3 * found[peer],
                "times_faster": found[peer] / found[name],
            }
        )


def show(figures: Figures) -> None:
    console = Console()
    for name, limit in figures.limits.items():
        console.print(f"matrix limit, one thread, {name}: {limit:.0f} GFLOP/s")
    steps = Table("shape", "dtype", "design", "ms", "tokens/s", "× prenorm", "of the limit")
    for row in figures.steps:
        steps.add_row(
            row["shape"],
            row["dtype"],
            row["design"],
            f"{row['milliseconds']:.0f}",
            f"{row['tokens_per_second']:.0f}",
            f"{row['against_prenorm']:.2f}",
            f"{row['share_of_limit']:.0%}",
        )
    console.print(steps)
    wrappers = Table("wrapper", "ms", "against", "ms", "times faster")
    for row in figures.wrappers:
        wrappers.add_row(
            row["wrapper"],
            f"{row['milliseconds']:.1f}",
            row["peer"],
            f"{row['peer_milliseconds']:.1f}",
            f"{row['times_faster']:.2f}",
        )
    console.print(wrappers)


def main(
    quick: Annotated[bool, typer.Option(help="One round, 12 mixes: a look, no figures.")] = False,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write all figures to this file.")
    ] = None,
) -> None:
    """Measure and print side by side. Needs `pip install -e .[bench]`."""
    prepare_process(threads=1)
    torch.manual_seed(0)
    fast, note = choose_dtype("auto", "cpu")
    dtypes = [torch.float32] if fast == torch.float32 else [torch.float32, fast]
    figures = Figures(describe("cpu", fast).resolved(), rounds=1 if quick else 5)
    measure_wrappers(figures, mixes=12 if quick else 48)
    measure_steps(figures, dtypes)
    if note:
        typer.echo(note)
    show(figures)
    if json_path:
        write_atomic(json_path, json.dumps(asdict(figures), indent=2) + "\n")


if __name__ == "__main__":
    typer.run(main)
