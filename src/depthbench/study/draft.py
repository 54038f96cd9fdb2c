"""A study file with comments, for a budget of time on this machine."""

import math
import os
import shlex
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import tomli_w
from pydantic import Field

from depthbench.config import Frozen
from depthbench.data.dataset import prepare
from depthbench.designs import label_of
from depthbench.errors import DepthbenchError
from depthbench.files import try_to_reach
from depthbench.quantities import count_text, seconds_text
from depthbench.study.config import StudyConfig
from depthbench.study.plan import resolve
from depthbench.study.run import fix_device
from depthbench.study.words import counted
from depthbench.train.step import Learner
from depthbench.train.team import Solo

WARM, TIMED = 1, 3
"""Training steps of every model before the clock runs, and those that it runs for."""
LEAST_TOKENS = 20_000
"""Of a trial, below which a model has hardly begun to learn."""


class DraftConfig(Frozen):
    """What is asked of the study."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=80)
    designs: tuple[str, ...] = Field(default=("prenorm", "hc", "attnres"), min_length=1)
    params: str = "500k"
    depths: tuple[int, ...] = Field(default=(2, 4, 12), min_length=1)
    learning_rates: tuple[float, ...] = Field(default=(1.5e-3, 3e-3, 6e-3), min_length=1)
    seeds: int = Field(default=1, ge=1)
    minutes: float = Field(default=30.0, gt=0, le=1e6)
    """For all trials together."""
    paths: tuple[str, ...] = ()
    """Own text; empty for the text that is installed."""


class Pace(Frozen):
    """How fast a study's models train here, measured one after another."""

    trials: int
    """If every search finds a rate."""
    seconds_per_token: float
    """Of all trials together: one token of each."""


class Drafted(Frozen):
    """What ``init --json`` prints."""

    schema_version: Literal[1] = 1
    file: str
    trials: int
    tokens: int
    """Of each trial."""
    seconds: float
    """That all trials are reckoned to take."""


def measure_pace(config: StudyConfig, cache: Path, say: Callable[[str], None]) -> Pace:
    """Prepare the data, and time a few training steps of every design at every shape."""
    config = fix_device(config)
    dataset = prepare(config.data, cache, say)
    manifest = dataset.manifest
    resolved = resolve(config, manifest.hash, manifest.vocab, manifest.marks)
    rates, seeds = config.search.learning_rates, config.seeds
    trials, seconds = 0, 0.0
    for design in config.designs:
        label = label_of(design)
        for shape in resolved.shapes[label]:
            say(f"timing {label} at {shape.layers} layers")
            trial = resolved.trial(design, shape, rates[0], seeds[0])
            count = len(seeds) + (len(rates) - 1 if shape == resolved.search_shape(label) else 0)
            trials += count
            seconds += count * _step_seconds(Learner(trial, dataset, Solo()))
    return Pace(
        trials=trials,
        seconds_per_token=seconds / (config.train.sequences * config.train.length),
    )


def _step_seconds(learner: Learner) -> float:
    times: list[float] = []
    for number in range(WARM + TIMED):
        start = time.perf_counter()
        learner.step(number)
        times.append(time.perf_counter() - start)
    return statistics.median(times[WARM:])


def tokens_for(minutes: float, pace: Pace, workers: int) -> int:
    """Training tokens of each trial, two digits, with which all of them take ``minutes``.

    Raises `DepthbenchError` for too short a time.
    """
    tokens = minutes * 60 * workers / pace.seconds_per_token
    if tokens < LEAST_TOKENS:
        needed = minutes * LEAST_TOKENS / tokens
        raise DepthbenchError(
            f"minutes = {minutes:g}: each trial would see {tokens:.0f} tokens, and learns little "
            f"below {LEAST_TOKENS}. Give {counted(math.ceil(needed), 'minute')}, or fewer designs, "
            "depths or parameters"
        )
    digits = 10 ** (math.floor(math.log10(tokens)) - 1)
    return int(tokens // digits * digits)


def draft_text(config: DraftConfig, file: Path, tokens: int, pace: Pace, workers: int) -> str:
    """The study file, with what each line does."""
    took = seconds_text(tokens * pace.seconds_per_token / workers)
    lines = [
        f"# {config.name}: {pace.trials} trials of {count_text(tokens)} training tokens each.",
        f"# Reckoned from a few training steps of every model here, {workers} at once: {took}.",
        f"# See what it would cost:  depthbench run {shlex.quote(str(file))} --dry-run",
        f"# Run it, stop it with Ctrl-C, go on:  depthbench run {shlex.quote(str(file))}",
        "",
        f"name = {_quoted(config.name)}",
        "# Residual designs; `depthbench designs` lists them, and a design of your own is a file.",
        f"designs = {_list(config.designs)}",
        "# Models of every shape. Fewer than three show a direction and no winner.",
        f"seeds = {list(range(config.seeds))}",
        "",
        "[shapes]",
        "# Every model has as many parameters; deeper ones are narrower.",
        f"params = {_quoted(config.params)}",
        f"depths = {list(config.depths)}",
        "",
        "[search]",
        "# Tried for each design at its middle shape; the best one trains all its shapes.",
        f"learning_rates = {[*config.learning_rates]}",
        "",
        "[train]",
        "# Training tokens of each trial: longer runs say more.",
        f"tokens = {tokens}",
        "# Sequences of a batch, and tokens of each.",
        "sequences = 8",
        "length = 128",
        "# How often the validation loss is measured, and on how many tokens.",
        "evaluations = 2",
        "validation_tokens = 16384",
        "",
        "[data]",
    ]
    if config.paths:
        lines += ["# Your text: files and folders.", f"paths = {_list(config.paths)}"]
    else:
        lines += [
            '# Text that is installed already; your own: paths = ["texts/"]',
            'domains = ["code", "math"]',
        ]
    return "\n".join(lines) + "\n"


def check_new(path: Path) -> None:
    """Raises `DepthbenchError` if ``path`` is there already, or could not be written."""
    try:
        try_to_reach(path)
        if path.exists():
            raise DepthbenchError(f"{path} is there already. Name another file")
        if not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
            raise DepthbenchError(
                f"{path} cannot be written: {path.parent} is no folder that can be written to. "
                "Name a file in one"
            )
    except OSError as error:
        raise DepthbenchError(
            f"{path} cannot be written: {error.strerror}. Name another file"
        ) from None


def write_new(path: Path, text: str) -> None:
    """Raises `DepthbenchError` if ``path`` is there already."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise DepthbenchError(f"{path} is there already. Name another file") from None
    except OSError as error:
        raise DepthbenchError(
            f"{path} cannot be written: {error.strerror}. Name a file in a folder that is there"
        ) from None


def _quoted(text: str) -> str:
    """A TOML string, control characters escaped."""
    return tomli_w.dumps({"_": text}).removeprefix("_ = ").strip()


def _list(texts: Sequence[str]) -> str:
    return "[" + ", ".join(map(_quoted, texts)) + "]"
