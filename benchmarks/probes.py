"""All skips and all swaps of a deep model: programs side by side against the naive loop.

    python benchmarks/probes.py [--quick] [--json FILE]

The loop runs every program from the start through the model's own forward. Both compute the same
losses; their largest difference is printed. One thread, CPU time, both in turn, medians over
rounds. *Two processes* compares wall times of the same probe by one and by two workers, which have
loaded the model before. Memory is the growth of the largest resident size of a process of its own.
"""

import itertools
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

from depthbench.designs import parse_design
from depthbench.files import write_atomic
from depthbench.machine import describe, prepare_process
from depthbench.nn.model import Model, ModelConfig
from depthbench.probes.batch import Batch
from depthbench.probes.crew import crew_of
from depthbench.probes.lab import Lab
from depthbench.probes.loss import token_losses
from depthbench.probes.measures import Losses
from depthbench.probes.own import OwnSubject
from depthbench.probes.program import Program, plain, skip, swap
from depthbench.probes.text import Text, TextFacts
from depthbench.probes.walk import Limits, Walker
from depthbench.shapes import Shape
from timing import interleaved

LAYERS = 32
LARGE = Shape(layers=LAYERS, width=256, heads=4, kv_heads=4, ffn=682, vocab=512)
SMALL = Shape(layers=LAYERS, width=48, heads=3, kv_heads=3, ffn=128, vocab=257)
SIZES = {"large calls": (LARGE, 2, 128), "small calls": (SMALL, 1, 32)}
"""Shape, rows and tokens of a row."""
SKIPS = [plain(LAYERS), *(skip(LAYERS, block) for block in range(LAYERS))]
SWAPS = [plain(LAYERS), *(swap(LAYERS, *pair) for pair in itertools.combinations(range(LAYERS), 2))]


def model_of(size: str, design: str) -> Model:
    config = ModelConfig(shape=SIZES[size][0], design=parse_design(design))
    return Model.build(config, seed=0)


def batches_of(size: str, count: int) -> list[Batch]:
    shape, rows, length = SIZES[size]
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(shape.vocab, (count, rows, length), generator=generator)
    return [Batch.of_rows(one.tolist()) for one in drawn]


@torch.no_grad()
def naive(subject: OwnSubject, batch: Batch, programs: list[Program]) -> list[float]:
    found = []
    for program in programs:
        order = [call.block for call in program]
        logits = subject.model(batch.tokens, program=order)[:, :-1]
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), batch.tokens[:, 1:].flatten()
        )
        found.append(loss.item())
    return found


@torch.no_grad()
def together(subject: OwnSubject, batch: Batch, programs: list[Program]) -> list[float]:
    session = subject.session(batch)
    found = [0.0] * len(programs)
    for number, state in Walker(session).ends(programs):
        found[number] = token_losses(session, state).mean().item()
    return found


def compare(size: str, design: str, quick: bool) -> list[dict[str, Any]]:
    subject, [batch] = subject_of(size, design), batches_of(size, 1)
    rows = []
    for name, programs in (("skips", SKIPS), ("swaps", SWAPS)):
        kept: dict[str, list[float]] = {}

        def job(
            who: str,
            run: Callable[..., list[float]],
            share: list[Program] = programs,
            kept: dict[str, list[float]] = kept,
        ) -> None:
            kept[who] = run(subject, batch, share)

        jobs = {
            "naive": partial(job, "naive", naive),
            "together": partial(job, "together", together),
        }
        rounds = 1 if quick or (size == "large calls" and name == "swaps") else 5
        seconds = interleaved(jobs, rounds)
        apart = max(abs(a - b) for a, b in zip(kept["naive"], kept["together"], strict=True))
        walker = Walker(subject.session(batch))
        for _ in walker.ends(programs):
            pass
        rows.append(
            {
                "size": size,
                "design": design,
                "programs": name,
                "naive_seconds": seconds["naive"],
                "together_seconds": seconds["together"],
                "times_faster": seconds["naive"] / seconds["together"],
                "calls_share": walker.calls / sum(map(len, programs)),
                "apart": apart,
            }
        )
    return rows


def subject_of(size: str, design: str) -> OwnSubject:
    return OwnSubject(model_of(size, design), "benchmark")


def text_of(batches: list[Batch]) -> Text:
    tokens = sum(int(batch.valid.sum()) for batch in batches)
    facts = TextFacts(
        hash="benchmark",
        origin="random tokens",
        domains=("random",),
        documents=len(batches),
        tokens=tokens,
        predicted=tokens,
        bytes=None,
        length=batches[0].tokens.shape[1],
        start_token=None,
    )
    return Text(tuple(batches), facts, ("random",) * len(batches))


def processes(size: str, design: str, count: int) -> dict[str, Any]:
    """Wall seconds of all skips on ``count`` batches by one and two workers."""
    text, make = text_of(batches_of(size, count)), partial(subject_of, size, design)
    seconds: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(3):
        for workers in seconds:
            with crew_of(make(), make, text, Limits(), workers) as crew:
                lab = Lab(make(), text, crew)
                lab.joined(Losses(programs=(plain(LAYERS),)), range(workers))
                started = time.perf_counter()
                lab.joined(Losses(programs=tuple(SKIPS)))
                seconds[workers].append(time.perf_counter() - started)
    one, two = (statistics.median(seconds[workers]) for workers in (1, 2))
    return {"size": size, "design": design, "one": one, "two": two, "times_faster": one / two}


def peak() -> float:
    """Largest resident size so far, in megabytes: ``ru_maxrss`` would count the parent's too."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status has no VmHWM: memory is measured on Linux alone")


def memory_child(size: str, design: str, share: int, channel: Any) -> None:
    prepare_process()
    subject, [batch] = subject_of(size, design), batches_of(size, 1)
    together(subject, batch, SWAPS[:2])
    before = peak()
    together(subject, batch, SWAPS[::share])
    channel.send(peak() - before)


def memory(size: str, design: str) -> dict[str, Any]:
    """Megabytes that ever more swaps need."""
    found: dict[str, float] = {}
    context = multiprocessing.get_context("spawn")
    for share in (16, 4, 1):
        ours, theirs = context.Pipe()
        child = context.Process(target=memory_child, args=(size, design, share, theirs))
        child.start()
        found[str(len(SWAPS[::share]))] = ours.recv()
        child.join()
    return {"size": size, "design": design, "megabytes_by_swaps": found}


def main(
    quick: Annotated[bool, typer.Option(help="One round, a share of the swaps: a look.")] = False,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write all figures to this file.")
    ] = None,
) -> None:
    """Measure and print."""
    prepare_process(threads=1)
    rows = [row for size in SIZES for row in compare(size, "prenorm", quick)]
    rows += compare("small calls", "attnres", quick)
    table = Table("size", "design", "programs", "loop s", "together s", "faster", "calls", "apart")
    for row in rows:
        table.add_row(
            row["size"],
            row["design"],
            row["programs"],
            f"{row['naive_seconds']:.2f}",
            f"{row['together_seconds']:.2f}",
            f"{row['times_faster']:.2f}",
            f"{row['calls_share']:.2f}",
            f"{row['apart']:.1e}",
        )
    console = Console()
    console.print(table)
    pairs = [processes("large calls", "prenorm", 4 if quick else 12)]
    for pair in pairs:
        console.print(
            f"two processes, {pair['size']}: {pair['one']:.1f} s and {pair['two']:.1f} s, "
            f"{pair['times_faster']:.2f} times faster"
        )
    grown = [memory("small calls", design) for design in ("prenorm", "attnres")]
    for one in grown:
        words = ", ".join(f"{n} swaps {mb:.0f} MB" for n, mb in one["megabytes_by_swaps"].items())
        console.print(f"memory, {one['design']}: {words}")
    if json_path:
        figures = {"machine": describe("cpu", torch.float32).resolved(), "rows": rows}
        figures |= {"processes": pairs, "memory": grown}
        write_atomic(json_path, json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    typer.run(main)
