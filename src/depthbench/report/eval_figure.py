"""Figures of evaluations: what every intervention costs, and accuracy against difficulty."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from depthbench.evals.sweep import Sweep
from depthbench.report.figures import STYLE, look, plain, save_as
from depthbench.report.style import marks


def write_sweep_figure(sweeps: Sequence[Sweep], folder: Path, kind: str, model: str) -> list[Path]:
    """Write ``sweep-KIND.png`` and ``.svg`` to ``folder``; their paths."""
    with mpl.rc_context(STYLE):
        return save_as(sweep_figure(sweeps, kind, model), folder, f"sweep-{kind}")


def sweep_figure(sweeps: Sequence[Sweep], kind: str, model: str) -> Figure:
    """One line a text, set or task over the blocks; a panel for each kind of number."""
    style = marks(sweep.name for sweep in sweeps)
    scores = list(dict.fromkeys(sweep.score for sweep in sweeps))
    figure = Figure(figsize=(8, 4.2 * len(scores)), layout="constrained")
    for axes, score in zip(
        figure.subplots(len(scores), 1, squeeze=False)[:, 0], scores, strict=True
    ):
        for sweep in (one for one in sweeps if one.score == score):
            places = range(len(sweep.changes))
            heights = [float("nan") if c.change is None else c.change for c in sweep.changes]
            axes.plot(places, heights, **look(style[sweep.name]), label=plain(sweep.name))
        axes.axhline(0, color="#6c6f78", linewidth=0.8)
        axes.set_ylabel("change of " + score.replace("_", " "))
        axes.set_xlabel("block" + " and the next" * (kind == "swap"))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(frameon=False)
    figure.suptitle(plain(f"{model}: {kind} of every block"), x=0.01, ha="left", fontsize=11)
    return figure
