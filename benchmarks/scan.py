"""Speed of the state-space branch of `hybrid` against attention of the same width.

    python benchmarks/scan.py [--quick]

One process, one thread, CPU time. All entries run in turn, round after round, and each figure is a
median over rounds, so a busy machine slows all of them alike.
"""

from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

from depthbench.machine import prepare_process
from depthbench.nn.attention import Attention
from depthbench.nn.branch import Backbone, Branch, Context
from depthbench.nn.hybrid import HybridBackbone
from depthbench.nn.parameters import initialise
from depthbench.nn.rope import rotary_table
from depthbench.nn.ssm import SelectiveStateSpace
from depthbench.shapes import Shape
from timing import Job, interleaved

BATCHES, LENGTHS = (1, 2), (256, 1024, 4096)
SHAPE = Shape(layers=1, width=256, heads=4, kv_heads=4, ffn=682, vocab=257)
STD = 0.02


def forward(branch: Branch, batch: int, length: int) -> Job:
    """Without gradients."""
    x, context = torch.randn(batch, length, SHAPE.width), context_of(length)

    @torch.no_grad()
    def run() -> None:
        branch(x, context)

    return run


def training(branch: Branch, batch: int, length: int) -> Job:
    """Forward and backward, to the input and to all weights."""
    x = torch.randn(batch, length, SHAPE.width, requires_grad=True)
    onward, context = torch.randn(x.shape), context_of(length)

    def run() -> None:
        branch(x, context)[0].backward(onward)

    return run


def context_of(length: int) -> Context:
    table = rotary_table(length, SHAPE.head_dim, 1e4, torch.device("cpu"), torch.float32)
    return Context(*table)


def main(quick: Annotated[bool, typer.Option(help="Three rounds: a look.")] = False) -> None:
    """Measure and print side by side."""
    prepare_process(threads=1)
    torch.manual_seed(0)
    config = HybridBackbone()
    branches: dict[str, Branch] = {
        "attention": Attention(SHAPE, Backbone(), STD, STD, STD),
        "state space": SelectiveStateSpace(config.sizes(SHAPE), STD, STD, config.norm_eps),
    }
    for branch in branches.values():
        initialise(branch, 0)
    table = Table("batch × tokens", "what", "attention ms", "state space ms", "ratio")
    for batch in BATCHES:
        for length in LENGTHS:
            for what in (forward, training):
                jobs = {name: what(branch, batch, length) for name, branch in branches.items()}
                found = interleaved(jobs, 3 if quick else 15)
                attention, states = found["attention"], found["state space"]
                milliseconds = [f"{1e3 * seconds:.1f}" for seconds in (attention, states)]
                ratio = f"{states / attention:.2f}"
                table.add_row(f"{batch} × {length}", what.__name__, *milliseconds, ratio)
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
