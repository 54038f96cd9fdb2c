"""What watching costs: health of a trial against the training step beside it.

    python benchmarks/health.py [--rounds 7]

One process, one thread, CPU time. In every round a whole training step (batch, forward, backward,
AdamW) runs beside each part of health, each at its own stride, so a busy machine slows all of them
alike; a figure is a median over rounds. The sum, each part over its stride, is what a step pays.
"""

import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from depthbench.data.config import DataConfig
from depthbench.data.dataset import Dataset, prepare
from depthbench.machine import choose_dtype, prepare_process
from depthbench.train.config import TrialConfig
from depthbench.train.health.findings import report_of
from depthbench.train.loop import Trial
from timing import Job, interleaved

SHAPES: dict[str, dict[str, Any]] = {
    "pocket, d96 L4": {"layers": 4, "width": 96, "heads": 4, "ffn": 256, "sequences": 16},
    "pocket, d48 L12": {"layers": 12, "width": 48, "heads": 3, "ffn": 128, "sequences": 16},
    "d256 L6": {"layers": 6, "width": 256, "heads": 4, "ffn": 682, "sequences": 8},
}
DESIGNS = ("prenorm", "mhc", "attnres")
LIMIT = 0.05
RECORDS = 1000
"""Of a run of 10 000 steps: what the rules read each time."""


def make(dataset: Dataset, folder: Path, design: str, sizes: dict[str, Any], dtype: str) -> Trial:
    """A trial of the default recipe that has made two steps."""
    sequences = sizes["sequences"]
    shape = {key: value for key, value in sizes.items() if key != "sequences"}
    shape |= {"kv_heads": shape["heads"], "vocab": dataset.vocab}
    config = TrialConfig.parse(
        {
            "model": {"shape": shape, "design": design},
            "train": {"sequences": sequences, "length": 2048 // sequences, "dtype": dtype},
            "data_hash": dataset.manifest.hash,
            "learning_rate": 3e-3,
            "seed": 0,
        }
    )
    trial = Trial(config, dataset, folder)
    for step in range(2):
        trial.learner.step(step)
    return trial


def by_depth(trial: Trial) -> dict[str, Any]:
    """One measurement, as it is recorded."""
    texts = next(iter(trial.validation.values()))
    return trial.learner.health(texts.inputs[: trial.config.train.health.sequences]).record()


def jobs(trial: Trial) -> tuple[dict[str, Job], dict[str, int]]:
    """The step and the parts of health, and each part's stride in steps."""
    health, learner, monitor = trial.config.train.health, trial.learner, trial.monitor
    made = learner.step(2)
    for number in range(health.window):
        monitor.watch(number, made, learner.update_norms())
    norms = learner.update_norms()
    measured = by_depth(trial)
    for number in range(1, RECORDS + 1):
        loss = 6.0 - number / RECORDS
        monitor.history.losses.append((10 * number, loss))
        if number % 2:
            monitor.history.measures.append((10 * number, measured))
    found: dict[str, Job] = {
        "step": lambda: learner.step(3),
        "spikes": lambda: monitor.watch(1000, made, None),
        "update sizes": lambda: monitor.watch(1000, made, norms) or learner.update_norms(),
        "by depth": lambda: by_depth(trial),
        "findings": lambda: report_of(monitor.history),
    }
    strides = {"spikes": 1, "update sizes": health.update_every}
    return found, strides | {"by depth": health.every, "findings": health.every}


def main(
    rounds: Annotated[int, typer.Option(help="Of which each figure is the median.")] = 7,
) -> None:
    """Measure and print; ends with an error if health costs 5 % or more anywhere."""
    prepare_process(threads=1)
    dtype = str(choose_dtype("auto", "cpu")[0]).removeprefix("torch.")
    table = Table(
        "shape", "design", "step, ms", "spikes", "update sizes", "by depth", "findings", "all"
    )
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "words.txt").write_text("depth width stream token branch norm\n" * 20000)
        dataset = prepare(DataConfig(paths=(str(root / "words.txt"),)), root / "cache")
        for label, sizes in SHAPES.items():
            for design in DESIGNS:
                trial = make(dataset, root / f"{label} {design}", design, sizes, dtype)
                every, strides = jobs(trial)
                seconds = interleaved(every, rounds)
                step = seconds["step"]
                shares = {name: seconds[name] / strides[name] / step for name in strides}
                total = sum(shares.values())
                worst = max(worst, total)
                shown = (f"{share:.2%}" for share in (*shares.values(), total))
                table.add_row(label, design, f"{1e3 * step:.0f}", *shown)
    Console().print(f"{dtype}; each part of health over its stride, as a share of the step", table)
    if worst >= LIMIT:
        raise SystemExit(f"health costs {worst:.1%} of a step: more than {LIMIT:.0%}")


if __name__ == "__main__":
    typer.run(main)
