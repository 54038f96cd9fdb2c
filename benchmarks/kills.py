"""SIGKILL at random moments of one training run: does it end as the undisturbed run, bit for bit?

    python benchmarks/kills.py [--kills 30] [--seed 0]

Each process is killed after a random time: while it starts, trains, validates or writes. The next
one goes on. At the end weights and metrics of both runs are compared byte for byte, and the folder
may hold nothing that the undisturbed run's does not.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

SETTINGS = ["design=hc", "shape.layers=2", "shape.width=32", "shape.heads=2", "shape.ffn=64"]
TRAIN = ["train.length=64", "train.sequences=8", "train.save_every=7", "train.dtype=float32"]
STARTING, AFTER = 0.25, 2.5
"""Share of the kills that hit a process while it starts; seconds behind its first step, at most,
for the others."""


def command(out: Path, text: Path, steps: int) -> list[str]:
    tokens = f"train.tokens={steps * 8 * 64}"
    data = f'data.paths=["{text}"]'
    settings = [*SETTINGS, *TRAIN, tokens, data, "train.evaluations=20", "train.log_every=1"]
    more = ["train.validation_tokens=4096", "--out", str(out)]
    return [sys.executable, "-m", "depthbench", "train", *settings, *more]


def kill_one(arguments: list[str], folder: Path, start: float | None, after: float) -> bool:
    """Whether the process was still alive to be killed.

    That is ``start`` seconds after it began, or ``after`` seconds behind its first step, however
    long a busy machine takes to get there.
    """
    there, process = steps_done(folder), subprocess.Popen(arguments, stdout=subprocess.DEVNULL)
    while start is None and process.poll() is None and steps_done(folder) == there:
        time.sleep(0.01)
    try:
        process.wait(after if start is None else start)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
        return True
    if process.returncode:
        raise SystemExit(f"a run ended with code {process.returncode}")
    return False


def undisturbed(arguments: list[str], folder: Path) -> float:
    """Run to the end; seconds until the first step was done, most of which go to imports."""
    started, first = time.perf_counter(), None
    process = subprocess.Popen(arguments, stdout=sys.stderr)
    while process.poll() is None:
        if first is None and steps_done(folder):
            first = time.perf_counter() - started
        time.sleep(0.02)
    if process.returncode or first is None:
        raise SystemExit(f"the undisturbed run ended with code {process.returncode}")
    return first


def steps_done(folder: Path) -> int:
    metrics = folder / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


def compare(whole: Path, killed: Path) -> list[str]:
    """What differs; times are no result."""
    found = []
    names = [
        sorted(str(path.relative_to(each)) for path in each.rglob("*")) for each in (whole, killed)
    ]
    if names[0] != names[1]:
        found.append(f"files: {sorted(set(names[0]) ^ set(names[1]))}")
    for name in names[0]:
        if (whole / name).is_file() and not Path(name).name.startswith(
            ("timing", "status", ".lock")
        ):
            one, other = (each / name for each in (whole, killed))
            if name.endswith("json"):
                rows = [_without_times(json.loads(each.read_text())) for each in (one, other)]
                if rows[0] != rows[1]:
                    found.append(name)
            elif one.read_bytes() != other.read_bytes():
                found.append(name)
    return found


def _without_times(row: dict[str, object]) -> dict[str, object]:
    # a checkpoint's seal is a digest over its times, too
    times = {"seconds", "tokens_per_second", "finished", "seal"}
    return {
        key: _without_times(value) if isinstance(value, dict) else value
        for key, value in row.items()
        if key not in times
    }


def main(
    kills: Annotated[int, typer.Option(help="How often the run is killed.")] = 30,
    seed: Annotated[int, typer.Option(help="Of the moments.")] = 0,
    steps: Annotated[int, typer.Option(help="Of the whole run.")] = 4000,
) -> None:
    """Kill, go on, compare."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        os.environ["DEPTHBENCH_CACHE"] = str(root / "cache")
        words = chance.choices(["depth", "width", "stream", "token", "branch"], k=40000)
        (root / "words.txt").write_text("\n".join(words))
        text = root / "words.txt"
        started = time.perf_counter()
        first = undisturbed(command(root / "whole", text, steps), root / "whole" / "run")
        print(f"undisturbed: {steps} steps in {time.perf_counter() - started:.0f} s")
        arguments, done = command(root / "killed", text, steps), 0
        while done < kills:
            start = chance.uniform(0, first) if chance.random() < STARTING else None
            if not kill_one(arguments, root / "killed" / "run", start, chance.uniform(0, AFTER)):
                raise SystemExit(f"the run was over after {done} kills: give more --steps")
            done += 1
            when = "training" if start is None else "starting"
            print(f"kill {done} while {when}, {steps_done(root / 'killed' / 'run')} steps")
        subprocess.run(arguments, check=True, stdout=sys.stderr)
        found = compare(root / "whole" / "run", root / "killed" / "run")
    if found:
        raise SystemExit(f"after {kills} kills these differ: {found}")
    print(f"after {kills} kills: weights, optimizer, metrics and files are the same")


if __name__ == "__main__":
    typer.run(main)
