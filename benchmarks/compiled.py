"""Time of a training step with compiled blocks against eager running, and of compiling.

    python benchmarks/compiled.py [--quick] [--json FILE]

One process, one thread, CPU time, interleaved, medians over rounds. *Compiling* is the wall time of
the first compiled step, when torch's caches on disk are empty (a folder of their own here).
"""

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import nn

from depthbench.designs import parse_design
from depthbench.files import write_atomic
from depthbench.machine import choose_dtype, describe, prepare_process
from depthbench.nn.compiled import Compiler
from depthbench.nn.model import Model, ModelConfig
from depthbench.shapes import Shape
from timing import Job, interleaved

BATCH, LENGTH = 8, 256
SHAPES = {
    "d256 L6": Shape(layers=6, width=256, heads=4, kv_heads=4, ffn=682, vocab=8192),
    "d48 L16": Shape(layers=16, width=48, heads=3, kv_heads=3, ffn=128, vocab=257),
}
DESIGNS = ("prenorm", "hc", "mhc", "attnres")


def step_of(model: Model, compiler: Compiler | None, dtype: torch.dtype) -> Job:
    """Forward, loss and backward on ``BATCH × LENGTH`` tokens."""
    tokens = torch.randint(model.config.shape.vocab, (BATCH, LENGTH + 1))

    def run() -> None:
        model.compiler = compiler
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            logits = model(tokens[:, :-1])
        flat = logits.float().flatten(0, 1)
        nn.functional.cross_entropy(flat, tokens[:, 1:].flatten()).backward()
        model.zero_grad()

    return run


def measure(name: str, design: str, dtype: torch.dtype, rounds: int) -> dict[str, Any]:
    """One model, eager and compiled."""
    config = ModelConfig(shape=SHAPES[name], design=parse_design(design))
    model = Model.build(config, seed=0)
    compiled = step_of(model, Compiler(), dtype)
    start = time.perf_counter()
    compiled()
    compiling = time.perf_counter() - start
    found = interleaved({"eager": step_of(model, None, dtype), "compiled": compiled}, rounds)
    return {
        "shape": name,
        "dtype": str(dtype).removeprefix("torch."),
        "design": design,
        "compiling_seconds": compiling,
        "eager_milliseconds": 1e3 * found["eager"],
        "compiled_milliseconds": 1e3 * found["compiled"],
        "times_faster": found["eager"] / found["compiled"],
    }


def main(
    quick: Annotated[bool, typer.Option(help="One round, one shape: a look.")] = False,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write all figures to this file.")
    ] = None,
) -> None:
    """Measure and print. Needs a C++ compiler."""
    prepare_process(threads=1)
    torch.manual_seed(0)
    low, _ = choose_dtype("auto", "cpu")
    dtypes = dict.fromkeys((torch.float32, low))
    table = Table("shape", "dtype", "design", "compiling s", "eager ms", "compiled ms", "faster")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        for name in list(SHAPES)[: 1 if quick else None]:
            for dtype in dtypes:
                for design in DESIGNS:
                    row = measure(name, design, dtype, 1 if quick else 5)
                    rows.append(row)
                    times = [f"{row[key]:.1f}" for key in row if key.endswith("onds")]
                    faster = f"{row['times_faster']:.2f}"
                    table.add_row(name, row["dtype"], design, *times, faster)
    Console().print(table)
    if json_path:
        figures = {"machine": describe("cpu", low).resolved(), "rows": rows}
        write_atomic(json_path, json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    typer.run(main)
