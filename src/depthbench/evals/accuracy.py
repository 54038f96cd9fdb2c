"""Share of answers that are right, by number of steps."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from depthbench.data.dataset import Dataset
from depthbench.errors import DepthbenchError
from depthbench.evals.episodes import k_of
from depthbench.evals.measure import Machinery, Rows, losses, measure
from depthbench.evals.result import Measured
from depthbench.evals.score import Scores
from depthbench.evals.windows import Window
from depthbench.probes.result import Number

Z = 1.959963984540054
"""Standard deviations on each side of a 95 % interval."""


def wilson(right: int, total: int) -> tuple[float, float]:
    """95 % interval of a share: ``(p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n)``.

    Wilson 1927: unlike the normal one it stays within 0 and 1, and is no point at either end.
    """
    share, square = right / total, Z * Z
    middle = share + square / (2 * total)
    half = Z * math.sqrt(share * (1 - share) / total + square / (4 * total * total))
    below, above = (middle - half, middle + half)
    scale = 1 + square / total
    return max(0.0, below / scale), min(1.0, above / scale)


def measure_task(machinery: Machinery, dataset: Dataset | None) -> Iterator[Measured]:
    """The questions that a model was not trained on, by number of steps and all together.

    An answer is right if every token of it is the most likely one behind those before it, which is
    what greedy text would be. Raises `DepthbenchError` for a model that no task was trained.
    """
    facts = None if dataset is None else dataset.manifest.episodes
    if dataset is None or facts is None:
        raise DepthbenchError(
            f"{machinery.subject.facts.source} was trained on no task, so it has no questions. "
            "Train such models with depthbench eval tasks"
        )
    policy: dict[str, Any] = {
        "task": facts.task,
        "trained_on": dataset.manifest.hash,
        "answers": "exact match of the most likely tokens",
    }
    name, every = facts.task["task"], list[Window]()
    for number, domain in enumerate(dataset.manifest.domains):
        windows = windows_of_task(dataset, number, facts.mark, len(every))
        every += windows
        k = k_of(domain.name)
        rows = Rows("task", f"{name}, k = {k}", windows, policy | {"k": k}, counts={"k": k})
        yield from measure(machinery, rows, _numbers)
    yield from measure(machinery, Rows("task", f"{name}, all k", every, policy), _numbers)


def windows_of_task(dataset: Dataset, number: int, mark: int, first: int) -> list[Window]:
    """One row a question of a domain; what stands behind the mark is scored."""
    ids, facts = dataset.tokens("validation")[number], dataset.manifest.episodes
    assert facts is not None
    found: list[Window] = []
    for start in range(0, len(ids), facts.tokens):
        row = tuple(ids.window(start, facts.tokens).tolist())
        begin = row.index(mark) + 1
        found.append(Window(row, begin, first + len(found), len(row) - begin))
    return found


def _numbers(rows: Rows, scores: Scores, program: int, seed: int) -> tuple[Number, ...]:
    right, total = int(scores.greedy[program].sum()), len(rows.windows)
    low, high = wilson(right, total)
    share = Number(
        name="accuracy",
        title="answers that are right",
        unit="share",
        value=right / total,
        low=low,
        high=high,
        span="95 % Wilson interval",
    )
    return (share, *losses(rows, scores, program, seed))


def by_k(found: Sequence[Measured]) -> dict[int, Number]:
    """Accuracy by number of steps, of measurements of one task under one program."""
    return {
        one.counts["k"]: share
        for one in found
        if "k" in one.counts and (share := one.number("accuracy")) is not None
    }
