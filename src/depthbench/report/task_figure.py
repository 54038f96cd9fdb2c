"""Accuracy against the number of steps: what depth is for."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from depthbench.evals.episodes import k_of
from depthbench.report.figures import STYLE, look, plain, save_as
from depthbench.report.style import marks, varied
from depthbench.study.store import Accuracy, Row


class Line(NamedTuple):
    """A design at a depth."""

    label: str
    layers: int
    ks: tuple[int, ...]
    means: tuple[float, ...]
    """Over seeds."""
    lowest: tuple[float, ...]
    highest: tuple[float, ...]
    seeds: int

    @property
    def name(self) -> str:
        """In words."""
        return f"{self.label}, {self.layers} layers"


def lines_of(rows: Sequence[Row]) -> list[Line]:
    """Every design at every depth, shallow to deep, at its learning rate of the best mean."""
    every: dict[tuple[str, int, float], list[dict[int, Accuracy]]] = {}
    for row in rows:
        if row.status == "done" and row.accuracy:
            shares = {k_of(name): one for name, one in row.accuracy.items()}
            every.setdefault((row.label, row.shape.layers, row.learning_rate), []).append(shares)
    best: dict[tuple[str, int], Line] = {}
    for (label, layers, _), several in every.items():
        line = _line(label, layers, several)
        known = best.get((label, layers))
        better = known is None or (line.seeds, sum(line.means)) > (known.seeds, sum(known.means))
        if better:
            best[label, layers] = line
    labels = list(dict.fromkeys(label for label, _ in best))
    return sorted(best.values(), key=lambda line: (labels.index(line.label), line.layers))


def write_task_figure(rows: Sequence[Row], folder: Path, title: str) -> list[Path]:
    """Write ``accuracy.png`` and ``.svg`` to ``folder``; their paths."""
    with mpl.rc_context(STYLE):
        return save_as(task_figure(lines_of(rows), title), folder, "accuracy")


def task_figure(lines: Sequence[Line], title: str) -> Figure:
    """One line a design and depth: mean over seeds, with the range of the seeds."""
    style = marks(line.label for line in lines)
    depths = sorted({line.layers for line in lines})
    figure = Figure(figsize=(8, 4.6), layout="constrained")
    axes = figure.subplots()
    for line in lines:
        mark = varied(style[line.label], depths.index(line.layers))
        axes.plot(line.ks, line.means, **look(mark), label=plain(line.name))
        if line.seeds > 1:
            axes.fill_between(line.ks, line.lowest, line.highest, color=mark.light, alpha=0.12)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("k, steps from question to answer")
    axes.set_ylabel("answers that are right (band: range over seeds)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(loc="outside right upper", frameon=False)
    figure.suptitle(plain(title), x=0.01, ha="left", fontsize=11)
    return figure


def _line(label: str, layers: int, several: Sequence[dict[int, Accuracy]]) -> Line:
    ks = tuple(sorted(several[0]))
    by_k = [[shares[k].share for shares in several] for k in ks]
    return Line(
        label,
        layers,
        ks,
        tuple(sum(values) / len(values) for values in by_k),
        tuple(map(min, by_k)),
        tuple(map(max, by_k)),
        len(several),
    )
