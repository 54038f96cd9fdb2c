"""What a study costs beyond the training of its trials, and how fast many results are read.

    python benchmarks/scheduling.py [--trials 200] [--workers 2] [--rows 10000]

The study is trained as `depthbench run` trains it: plan, processes, locks, messages, checkpoints of
its trials, rows. Beside it the same trials run back to back in as many bare processes, each a loop
over `Trial.run`. Both train the same trials in turn, a slice at a time, so that the study's results
grow to all trials. Overhead is ``1 - bare / study``, of wall time and of the CPU time of all
processes. Needs Linux, whose /proc knows the CPU time of processes.
"""

import json
import multiprocessing
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from depthbench.data.dataset import Dataset
from depthbench.machine import prepare_process
from depthbench.study.config import StudyConfig
from depthbench.study.engine import Place
from depthbench.study.plan import Planned
from depthbench.study.process import PRELOAD
from depthbench.study.run import open_study, train_study
from depthbench.study.store import Store
from depthbench.train.config import TrialConfig
from depthbench.train.loop import Trial

TICKS = os.sysconf("SC_CLK_TCK")


def study_of(text: Path, seeds: int, tokens: int) -> StudyConfig:
    sizes = [{"layers": 2, "width": 64, "heads": 2, "ffn": 128}]
    return StudyConfig.parse(
        {
            "name": "scheduling",
            "designs": ["prenorm", "hc"],
            "seeds": list(range(seeds)),
            "shapes": {"sizes": sizes},
            "search": {"learning_rates": [3e-3]},
            "train": {
                "tokens": tokens,
                "sequences": 8,
                "length": 128,
                "evaluations": 1,
                "validation_tokens": 4096,
                "dtype": "float32",
            },
            "data": {"paths": [str(text)]},
        }
    )


def family_seconds() -> float:
    """CPU seconds of this process, its children and what they have waited for."""
    total = time.process_time()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            total += sum(int(ticks) for ticks in fields[11:15]) / TICKS
    return total


def measured(job: Callable[[], object]) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds of all processes, CPU seconds of this one."""
    wall, family, own = time.perf_counter(), family_seconds(), time.process_time()
    job()
    return (
        time.perf_counter() - wall,
        family_seconds() - family,
        time.process_time() - own,
    )


def bare(configs: list[TrialConfig], data: Path, folder: Path) -> None:
    prepare_process()
    dataset = Dataset.open(data, content=False)
    for config in configs:
        Trial(config, dataset, folder / config.id).run(lambda *_: None)


def run_bare(trials: list[Planned], data: Path, folder: Path, workers: int) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOAD))
    shares = [[trial.config for trial in trials[n::workers]] for n in range(workers)]
    processes = [context.Process(target=bare, args=(one, data, folder)) for one in shares]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        if process.exitcode:
            raise SystemExit(f"a bare process ended with code {process.exitcode}")


def compare(root: Path, text: Path, trials: int, workers: int, tokens: int, slices: int) -> None:
    place, found = Place(workers=workers), []
    for number in range(1, slices + 1):
        config = study_of(text, trials * number // slices // 2, tokens)

        def train(config: StudyConfig = config) -> None:
            study = open_study(config, root / "runs", resume=True, cache=root / "cache")
            train_study(study, place=place)

        study = open_study(config, root / "runs", resume=True, cache=root / "cache")
        needed = study.needed()
        if number == 1:
            # the server that processes are forked from imports torch once, for both
            run_bare(needed[:1], study.dataset.folder, root / "first", 1)
        ours = measured(train)
        theirs = measured(
            lambda needed=needed, data=study.dataset.folder: run_bare(
                needed, data, root / "bare", workers
            )
        )
        found.append((ours, theirs))
    rows = Store(root / "runs" / "scheduling").rows()
    steps = [row.tokens / (row.tokens_per_second or 1) for row in rows]
    busy = sum(steps) / (workers * sum(ours[0] for ours, _ in found))
    print(
        f"{len(rows)} trials, {statistics.mean(steps):.2f} s of training steps each, {workers} "
        f"workers, which spend {busy:.1%} of the time in training steps"
    )
    for place_of, name in enumerate(("wall", "CPU")):
        ours, theirs = (sum(pair[side][place_of] for pair in found) for side in (0, 1))
        each = [1 - pair[1][place_of] / pair[0][place_of] for pair in found]
        print(
            f"{name}: study {ours:.1f} s, bare {theirs:.1f} s, overhead {1 - theirs / ours:.1%} "
            f"(median of slices {statistics.median(each):.1%})"
        )
    own = sum(pair[0][2] for pair in found) / len(rows)
    share = sum(pair[0][2] for pair in found) / sum(pair[0][1] for pair in found)
    print(f"of it the scheduling process itself: {1000 * own:.1f} ms CPU a trial, {share:.2%}")


def load(results: Path, folder: Path, number: int) -> None:
    """Time to read ``number`` rows, copies of those in ``results`` under other ids."""
    records = [json.loads(line) for line in results.read_text().splitlines()]
    folder.mkdir()
    with (folder / results.name).open("w") as file:
        for n in range(number):
            record = records[n % len(records)] | {"id": f"{n:012x}"}
            file.write(json.dumps(record, sort_keys=True) + "\n")
    wall, cpu = [], []
    for _ in range(5):
        started = time.perf_counter(), time.process_time()
        rows = Store(folder).rows()
        wall.append(time.perf_counter() - started[0])
        cpu.append(time.process_time() - started[1])
        assert len(rows) == number
    size = (folder / results.name).stat().st_size / 2**20
    print(
        f"{number} rows ({size:.0f} MiB): read in {statistics.median(wall):.2f} s, "
        f"{statistics.median(cpu):.2f} s of CPU"
    )


def main(
    trials: Annotated[int, typer.Option(help="Trials of the study.")] = 200,
    workers: Annotated[int, typer.Option(help="Trials at once.")] = 2,
    rows: Annotated[int, typer.Option(help="Rows that are read.")] = 10_000,
    tokens: Annotated[int, typer.Option(help="Of each trial.")] = 61_440,
    slices: Annotated[int, typer.Option(help="Turns; each trains its share of the trials.")] = 10,
) -> None:
    """Compare, then read."""
    prepare_process()
    chance = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        words = chance.choices(["depth", "width", "stream", "token", "branch"], k=40_000)
        text = root / "words.txt"
        text.write_text("\n".join(words))
        compare(root, text, trials, workers, tokens, slices)
        load(root / "runs" / "scheduling" / "results.jsonl", root / "many", rows)


if __name__ == "__main__":
    typer.run(main)
