"""Speed of the trainer: against a minimal loop around the same model, and against plain float32.

    python benchmarks/trainer.py [--quick] [--json FILE]

All train the same weights on the same batches with the same schedule, and their losses are
compared. One thread, CPU time; a figure is the median over rounds of steps. The trainer and the
loop alternate step by step in one process, whose memory is laid out alike for both. Plain training
takes its rounds in a process of its own, because the allocator's setting is one of a process.
"""

import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import plain
from depthbench.data.config import DataConfig
from depthbench.data.dataset import Dataset, default_cache, prepare
from depthbench.designs import parse_design
from depthbench.files import write_atomic
from depthbench.machine import choose_dtype, describe, prepare_process
from depthbench.nn.model import Model, ModelConfig
from depthbench.nn.parameters import decayed
from depthbench.shapes import Shape
from depthbench.train.config import TrainConfig, TrialConfig
from depthbench.train.loop import Trial

SEQUENCES, LENGTH, VOCAB, PEAK = 8, 256, 8192, 3e-3
SHAPES = {
    "d256 L6": Shape(layers=6, width=256, heads=4, kv_heads=4, ffn=682, vocab=VOCAB),
    "d96 L4": Shape(layers=4, width=96, heads=4, kv_heads=4, ffn=256, vocab=VOCAB),
}
ROLES = ("auto", "float32", "plain")
"""What a child does: the trainer and the loop under the dtype of its machine, or in float32; or the
plain model with the plain loop."""
ROUNDING = 1e-4
"""Of float32 over the steps of a run: largest relative difference of losses that are the same."""


@dataclass
class Round:
    """What one competitor did in one round."""

    seconds: float = 0.0
    losses: list[float] = field(default_factory=list)

    def add(self, more: "Round") -> None:
        """What came after it."""
        self.seconds += more.seconds
        self.losses += more.losses


@dataclass
class Figures:
    """Everything that was measured."""

    machine: dict[str, Any]
    rounds: int
    steps: int
    """Of a round."""
    rows: list[dict[str, Any]] = field(default_factory=list)


def data() -> Dataset:
    """The installed corpus as 8192 kinds of tokens."""
    config = DataConfig(tokenizer="bpe", vocab=VOCAB, megabytes=2)
    return prepare(config, default_cache())


def recipe(shape: str, design: str, dtype: str, dataset: Dataset) -> TrialConfig:
    """A trial that is longer than any benchmark of it: it validates at its end alone."""
    train = TrainConfig.parse(
        {
            "tokens": SEQUENCES * LENGTH * 1000,
            "sequences": SEQUENCES,
            "length": LENGTH,
            "evaluations": 1,
            "save_every": 0,
            "dtype": dtype,
        }
    )
    model = ModelConfig(shape=SHAPES[shape], design=parse_design(design))
    return TrialConfig(
        model=model, train=train, data_hash=dataset.manifest.hash, learning_rate=PEAK, seed=0
    )


def batches(config: TrialConfig, dataset: Dataset, count: int) -> list[tuple[Tensor, Tensor]]:
    """The first batches of the trial, made in advance: they cost the loops nothing."""
    train = config.train
    return [
        dataset.batch(config.seed, step, train.sequences, train.length) for step in range(count)
    ]


def rates(config: TrialConfig, count: int) -> list[float]:
    train = config.train
    warmup, final = train.warmup_steps, train.final_fraction
    return [plain.rate(step, train.steps, PEAK, warmup, final) for step in range(count)]


def loop(config: TrialConfig, dataset: Dataset, count: int) -> Iterator[float]:
    """The least that trains the same model in the same way; loss of every step."""
    train = config.train
    model = Model.build(config.model, config.seed)
    decay, rest = decayed(model)
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": train.weight_decay}, {"params": rest}],
        betas=(train.beta1, train.beta2),
        weight_decay=0.0,
        fused=True,
    )
    low, _ = choose_dtype(train.dtype, "cpu")
    given = zip(batches(config, dataset, count), rates(config, count), strict=True)
    for (inputs, targets), rate in given:
        for group in optimizer.param_groups:
            group["lr"] = rate
        with torch.autocast("cpu", low, enabled=low != torch.float32):
            logits = model(inputs)
        loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), train.max_grad_norm)
        optimizer.step()
        yield loss.item()


def hand_written(config: TrialConfig, dataset: Dataset, count: int) -> Iterator[float]:
    """`plain.GPT` from the trial's weights, float32."""
    shape, eps = config.model.shape, config.model.backbone.norm_eps
    sizes = (shape.layers, shape.width, shape.heads, shape.ffn, shape.vocab, config.train.length)
    model = plain.GPT(*sizes, eps)
    model.take(Model.build(config.model, config.seed).state_dict())
    given = batches(config, dataset, count)
    return plain.train(model, given, rates(config, count), config.train.weight_decay)


class Ours:
    """The trainer and, within the same process, the loop: ``stop`` lets them take turns."""

    def __init__(self, config: TrialConfig, dataset: Dataset, count: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.trial = Trial(config, dataset, Path(self.folder.name))
        self.loop = loop(config, dataset, count)
        self.left, self.started = 0, 0.0
        self.made = {"trainer": Round(), "loop": Round()}

    def run(self) -> None:
        """Train until there is no turn any more."""
        with self.folder:
            self.left = steps_asked()
            self.started = time.process_time()
            self.trial.run(lambda *_: None, stop=self.stop)

    def stop(self) -> bool:
        """Called by the trainer after each of its steps: lets the loop make one too."""
        trainer = self.made["trainer"]
        trainer.seconds += time.process_time() - self.started
        trainer.losses.append(self.trial.loss)
        self.made["loop"].add(timed(self.loop, 1))
        self.left -= 1
        if not self.left:
            answer(self.made)
            self.made = {"trainer": Round(), "loop": Round()}
            self.left = steps_asked()
        self.started = time.process_time()
        return not self.left


def timed(losses: Iterator[float], steps: int) -> Round:
    """So many steps."""
    started = time.process_time()
    made = list(itertools.islice(losses, steps))
    return Round(time.process_time() - started, made)


def steps_asked() -> int:
    """Waits for the parent; 0 at the end."""
    return int(sys.stdin.readline() or 0)


def answer(rounds: dict[str, Round]) -> None:
    print(json.dumps({who: asdict(made) for who, made in rounds.items()}), flush=True)


def child(role: str, shape: str, design: str, count: int) -> None:
    """Train round by round, as the parent asks."""
    if role == "plain":
        torch.set_num_threads(1)
    else:
        prepare_process(threads=1)
    dataset = data()
    config = recipe(shape, design, "auto" if role == "auto" else "float32", dataset)
    if role != "plain":
        Ours(config, dataset, count).run()
        return
    losses = hand_written(config, dataset, count)
    while steps := steps_asked():
        answer({"plain": timed(losses, steps)})


class Competitor:
    """A child process in one role."""

    def __init__(self, role: str, shape: str, design: str, count: int) -> None:
        command = [sys.executable, __file__, "--child", role, shape, design, str(count)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def round(self, steps: int) -> dict[str, Round]:
        """So many steps more of each that trains in this process."""
        pipe_in, pipe_out = self.process.stdin, self.process.stdout
        assert pipe_in is not None
        assert pipe_out is not None
        print(steps, file=pipe_in, flush=True)
        return {who: Round(**made) for who, made in json.loads(pipe_out.readline()).items()}

    def end(self) -> None:
        """Let it go."""
        self.process.communicate(input="")


def compete(shape: str, design: str, rounds: int, steps: int) -> dict[str, Any]:
    """Median CPU seconds of a step, and losses, of everyone; the first round warms up."""
    count = (rounds + 1) * steps
    roles = ROLES if design == "prenorm" else ROLES[:1]
    entrants = {role: Competitor(role, shape, design, count) for role in roles}
    spent: dict[str, list[float]] = {}
    losses: dict[str, list[float]] = {}
    for turn in range(rounds + 1):
        for role, entrant in entrants.items():
            for who, made in entrant.round(steps).items():
                name = f"{who}, {role}"
                losses.setdefault(name, []).extend(made.losses)
                if turn:
                    spent.setdefault(name, []).append(made.seconds / steps)
    for entrant in entrants.values():
        entrant.end()
    seconds = {name: statistics.median(times) for name, times in spent.items()}
    return {"shape": shape, "design": design, "seconds": seconds, "losses": losses}


def farthest(one: list[float], other: list[float]) -> float:
    """Largest relative difference."""
    return max(abs(a - b) / abs(b) for a, b in zip(one, other, strict=True))


def check_same(found: dict[str, Any]) -> None:
    """Raise `SystemExit` where losses that must be the same are not."""
    losses = found["losses"]
    pairs = [("trainer, auto", "loop, auto", 0.0)]
    if "plain, plain" in losses:
        pairs.append(("trainer, float32", "loop, float32", 0.0))
        pairs.append(("trainer, float32", "plain, plain", ROUNDING))
    for one, other, allowed in pairs:
        far = farthest(losses[one], losses[other])
        if not far <= allowed:
            raise SystemExit(f"{one} and {other} do not train alike: {far:.1e} apart")


def show(figures: Figures) -> None:
    console = Console()
    table = Table("shape", "design", "who", "ms a step", "tokens/s", "trainer's over these")
    for row in figures.rows:
        seconds = row["seconds"]
        for name, each in seconds.items():
            own = "trainer, float32" if name == "loop, float32" else "trainer, auto"
            table.add_row(
                row["shape"],
                row["design"],
                name,
                f"{1e3 * each:.1f}",
                f"{SEQUENCES * LENGTH / each:.0f}",
                f"{each / seconds[own]:.3f}",
            )
    console.print(table)


def measure(shapes: list[str], designs: list[str], rounds: int, steps: int) -> Figures:
    """All shapes with all designs."""
    fast, _ = choose_dtype("auto", "cpu")
    figures = Figures(describe("cpu", fast).resolved(), rounds, steps)
    for shape in shapes:
        for design in designs:
            found = compete(shape, design, rounds, steps)
            check_same(found)
            figures.rows.append(found)
    return figures


def main(
    quick: Annotated[bool, typer.Option(help="Two rounds of few steps: a look.")] = False,
    designs: Annotated[str, typer.Option(help="Names, with commas.")] = "prenorm,attnres",
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write all figures to this file.")
    ] = None,
) -> None:
    """Measure and print side by side."""
    prepare_process(threads=1)
    data()
    rounds, steps = (2, 2) if quick else (9, 4)
    figures = measure(list(SHAPES), designs.split(","), rounds, steps)
    show(figures)
    if json_path:
        write_atomic(json_path, json.dumps(asdict(figures), indent=2) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
    else:
        typer.run(main)
