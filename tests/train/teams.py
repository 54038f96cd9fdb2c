"""Trials by several processes of this machine, for the tests."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from depthbench.data.dataset import Dataset

ROOT = Path(__file__).parents[2]


def job(dataset: Dataset, name: str, stop: int | None = None, **changes: Any) -> dict[str, Any]:
    """One trial for `train_together`; ``stop``: after so many steps."""
    return {"name": name, "data": str(dataset.folder), "changes": changes, "stop": stop}


def train_together(
    folder: Path, strategy: str, processes: int, jobs: list[dict[str, Any]]
) -> dict[str, Any]:
    """Train each job by ``processes`` of torchrun, in ``folder``; how each ended."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "jobs.json").write_text(json.dumps({"strategy": strategy, "jobs": jobs}))
    command = [sys.executable, "-W", "error::UserWarning", "-m", "torch.distributed.run"]
    places = ["--standalone", "--nproc_per_node", str(processes)]
    done = subprocess.run(
        [*command, *places, "-m", "tests.train.team_run", str(folder)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "results.json").read_text())


def metrics_of(folder: Path) -> list[dict[str, Any]]:
    """The records of a trial's ``metrics.jsonl``."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
