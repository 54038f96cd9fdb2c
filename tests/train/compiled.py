"""Trains with compiled blocks, in a process of its own, and prints what came: see `trained`.

Usage: ``python -m tests.train.compiled BACKEND KEY=VALUE,… …``, settings of one trial after another
as TOML; one JSON object each: losses by step with the compiler and without, compilations and notes.
``failing`` is a backend that compiles one graph and refuses all others.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.fx import GraphModule

from depthbench.check.compiled import CountingBackend
from depthbench.config import override
from depthbench.data.dataset import Dataset
from depthbench.machine import prepare_process
from depthbench.nn.compiled import Compiler
from depthbench.train.loop import Trial
from depthbench.train.outcome import Outcome
from tests.small import make_dataset, trial_config

ROOT = Path(__file__).parents[2]


def trained(backend: str, *trials: str) -> list[dict[str, Any]]:
    """What another process printed, where the package runs without run-time shape checks."""
    # torch's own backend uses what torch itself warns of
    strict = [] if backend == "inductor" else ["-W", "error"]
    command = [sys.executable, *strict, "-m", "tests.train.compiled", backend, *trials]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


class Refusing(CountingBackend):
    """Compiles the first graph, and no other."""

    def __call__(self, graph: GraphModule, inputs: list[Tensor]) -> object:
        if self.compilations:
            raise RuntimeError("no compiler here")
        return super().__call__(graph, inputs)


def backend_of(name: str) -> CountingBackend | None:
    """None for torch's own."""
    return {"counting": CountingBackend(), "failing": Refusing()}.get(name)


def losses_of(folder: Path) -> list[float]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["train_loss"] for line in lines]


def train(
    dataset: Dataset, settings: dict[str, Any], backend: CountingBackend | None
) -> tuple[list[float], Outcome]:
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(trial_config(dataset, **settings), dataset, Path(folder))
        if backend is not None and trial.config.train.compile:
            trial.learner.model.compiler = Compiler(backend)
        outcome = trial.run(lambda *_: None)
        return losses_of(Path(folder)), outcome


def main(name: str, *trials: str) -> None:
    prepare_process()
    with tempfile.TemporaryDirectory() as folder:
        dataset = make_dataset(Path(folder))
        for text in trials:
            settings, backend = override({}, text.split(",")), backend_of(name)
            compiled, outcome = train(dataset, settings | {"compile": True}, backend)
            eager, _ = train(dataset, settings, None)
            found = {"compiled": compiled, "eager": eager, "notes": outcome.notes}
            print(json.dumps(found | {"graphs": backend and backend.compilations}))


if __name__ == "__main__":
    main(*sys.argv[1:])
