"""`depthbench train` under torchrun: one result, one voice, and a stop that all hear."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from depthbench.cli.app import execute
from tests.small import write_text
from tests.train.teams import metrics_of

TINY = ["shape.layers=1", "shape.width=16", "shape.heads=2", "shape.ffn=24", "train.length=16"]
SHORT = [*TINY, "train.sequences=4", "train.validation_tokens=256", "train.dtype=float32"]


def start(root: Path, out: Path, processes: int, *more: str) -> subprocess.Popen[str]:
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    data = f'data.paths=["{write_text(root)}"]'
    command = ["-m", "depthbench", "train", data, *SHORT, *more, "--out", str(out)]
    return subprocess.Popen(
        [sys.executable, *launch, *command],
        env=os.environ | {"DEPTHBENCH_CACHE": str(root / "cache"), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_two_processes_give_one_result(tmp_path: Path) -> None:
    process = start(tmp_path, tmp_path / "runs", 2, "parallel=fsdp", "train.tokens=512", "--json")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    row = json.loads(out)
    assert row == json.loads((tmp_path / "runs" / "run" / "result.json").read_text())
    assert row["notes"] == ["trained by 2 processes (the model in parts)"]
    assert row["steps"] == 8


@pytest.mark.slow
def test_a_team_that_is_told_to_stop_goes_on_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = ["train.tokens=64_000", "train.log_every=1", "design=attnres"]
    process = start(tmp_path, tmp_path / "runs", 2, *long)
    metrics = tmp_path / "runs" / "run" / "metrics.jsonl"
    while not metrics.exists() or len(metrics.read_text().splitlines()) < 5:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    saved = list((tmp_path / "runs" / "run" / "checkpoints").iterdir())
    assert [one.name for one in saved] == [f"step-{len(metrics.read_text().splitlines()):06d}"]
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(tmp_path / "cache"))
    rest = ["train", f'data.paths=["{tmp_path / "words.txt"}"]', *SHORT, *long, "--out"]
    kept = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    assert execute([*rest, str(tmp_path / "runs")]) == 0
    assert execute([*rest, str(tmp_path / "alone")]) == 0
    signal.signal(signal.SIGTERM, kept[0])
    signal.signal(signal.SIGINT, kept[1])
    ours, alone = (metrics_of(tmp_path / one / "run") for one in ("runs", "alone"))
    assert [one["step"] for one in ours] == [one["step"] for one in alone]
    # rounding grows over a thousand steps: the first hundred are close, the end is near
    for one, other in zip(ours[:100], alone[:100], strict=True):
        assert math.isclose(one["train_loss"], other["train_loss"], rel_tol=1e-4)
    assert math.isclose(
        ours[-1]["loss"]["nats_per_token"], alone[-1]["loss"]["nats_per_token"], rel_tol=0.02
    )
