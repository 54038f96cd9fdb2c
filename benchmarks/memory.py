"""Memory of one forward and backward over depth: bytes kept for the backward pass, and the peak.

    python benchmarks/memory.py [--json FILE]

Each entry is a process of its own. *Kept* counts the storages that autograd saves, weights left
out; what activation checkpointing keeps aside is not in it. *Peak* is the growth of the process's
largest resident size over the step. The exponent of a column is that of depth: 1 where memory grows
with the number of sources, 2 where it grows with its square.
"""

import json
import math
import resource
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import torch
import typer
from attn_res import AttnResOperator
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from depthbench.designs import parse_design
from depthbench.designs.sources import SumSources
from depthbench.files import write_atomic
from depthbench.machine import prepare_process
from depthbench.nn.kernels import plain_kernels
from depthbench.nn.model import Model, ModelConfig
from depthbench.shapes import Shape

BATCH, LENGTH, WIDTH = 4, 128, 128
DEPTHS = (6, 12, 24, 48)
ENTRIES = (
    "prenorm",
    "prenorm, checkpointed",
    "attnres",
    "attnres, checkpointed",
    "attnres, torch's operations",
    "mixes alone",
    "mixes alone, attn-res",
)
MEGABYTE = 2**20

Step = Callable[[], Tensor]
"""A forward; what it returns is differentiated."""


def kept_bytes(forward: Step, weights: Iterable[Tensor]) -> tuple[Tensor, int]:
    """Output of a forward, and the bytes of all storages that it keeps beside the weights."""
    own = {weight.untyped_storage().data_ptr() for weight in weights}
    found: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = forward()
    return output, sum(found.values())


def peak() -> int:
    """Largest resident size of this process so far, in bytes (kilobytes on Linux)."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size if sys.platform == "darwin" else 1024 * size


def model_step(design: str, how: str, layers: int) -> tuple[Step, list[Tensor]]:
    """Loss of a model, and its weights."""
    shape = Shape(layers=layers, width=WIDTH, heads=4, kv_heads=4, ffn=342, vocab=257)
    model = Model.build(ModelConfig(shape=shape, design=parse_design(design)), seed=0)
    model.checkpointing = how == "checkpointed"
    tokens = torch.randint(shape.vocab, (BATCH, LENGTH))
    model(tokens[:1, :8]).sum().backward()

    def forward() -> Tensor:
        with plain_kernels() if how == "torch's operations" else nullcontext():
            logits = model(tokens)
        return nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())

    return forward, list(model.parameters())


def mixes_step(how: str, mixes: int) -> tuple[Step, list[Tensor]]:
    """Depth mixes that are each halved and appended, by our bank or over stacked sources."""
    embedding = torch.randn(BATCH, LENGTH, WIDTH, requires_grad=True)
    queries = torch.zeros(mixes, WIDTH, requires_grad=True)
    operators = [AttnResOperator(WIDTH) for _ in range(mixes)]

    def ours() -> Tensor:
        state = SumSources.opened(embedding, queries, 1e-6, run=1).add(0.5 * embedding, mix=0)
        for mix in range(1, mixes):
            mixed, route = state.mix()
            state = state.after(route).add(0.5 * mixed, mix=mix)
        return state.mix()[0].sum()

    def theirs() -> Tensor:
        sources = [embedding, 0.5 * embedding]
        for operator in operators[1:]:
            sources.append(0.5 * operator(torch.stack(sources)))
        return operators[0](torch.stack(sources)).sum()

    return (theirs if how == "attn-res" else ours), [embedding, queries]


def measure(entry: str, layers: int) -> dict[str, float]:
    """Megabytes of one step, in this process."""
    prepare_process(threads=1)
    design, _, how = entry.partition(", ")
    if design == "mixes alone":
        forward, weights = mixes_step(how, 2 * layers)
    else:
        forward, weights = model_step(design, how, layers)
    before = peak()
    output, kept = kept_bytes(forward, weights)
    output.backward()
    return {"kept": kept / MEGABYTE, "peak": (peak() - before) / MEGABYTE}


def exponent(small: float, big: float) -> float:
    """Of depth, from one depth to its double."""
    return math.log2(big / small) if small > 0 < big else math.nan


def show(found: dict[str, list[dict[str, float]]]) -> None:
    columns = [f"L {layers}" for layers in DEPTHS]
    for what in ("kept", "peak"):
        table = Table(f"{what}, MB", *columns, f"exponent, L {DEPTHS[-2]} to {DEPTHS[-1]}")
        for entry, figures in found.items():
            values = [one[what] for one in figures]
            last = f"{exponent(*values[-2:]):.2f}"
            table.add_row(entry, *(f"{value:.1f}" for value in values), last)
        Console().print(table)


def main(
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write all figures to this file.")
    ] = None,
) -> None:
    """Measure and print. Needs `pip install -e .[bench]`."""
    found: dict[str, list[dict[str, float]]] = {}
    for entry in ENTRIES:
        for layers in DEPTHS:
            command = [sys.executable, __file__, "--child", entry, str(layers)]
            answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            found.setdefault(entry, []).append(json.loads(answer))
    show(found)
    if json_path:
        write_atomic(json_path, json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(measure(sys.argv[2], int(sys.argv[3]))))
    else:
        typer.run(main)
