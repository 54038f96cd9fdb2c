"""Figures of the page of concepts: shapes of one budget, programs, and one site."""

from collections.abc import Mapping, Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from depthbench.docs.drawing import ATTENTION, FEEDFORWARD, INK, SOFT, STYLE, svg_of
from depthbench.families import family

PROGRAMS: Mapping[str, Sequence[int]] = {
    "the model": (0, 1, 2, 3),
    "skip block 1": (0, 2, 3),
    "swap 1 and 2": (0, 2, 1, 3),
    "repeat block 1": (0, 1, 1, 2, 3),
    "exit behind 1": (0, 1),
}
BLOCKS = ("#d3e6f2", "#f7dccb", "#cfe9e0", "#e6dff3")
"""Of the four blocks of a program; light, so that their numbers read."""


def figures() -> dict[str, bytes]:
    """Each figure by its file's name, as SVG; the same bytes each time."""
    with mpl.rc_context(STYLE):
        return {"site.svg": _site(), "shapes.svg": _shapes(), "programs.svg": _programs()}


def _blank(figure: Figure) -> Axes:
    axes = figure.subplots()
    axes.set_aspect("equal")
    axes.axis("off")
    return axes


def _site() -> bytes:
    """State, read, branch, write: what happens at one site."""
    figure = Figure(figsize=(6.6, 2.1), layout="constrained")
    axes = _blank(figure)
    parts = {"read": (1.5, INK), "branch F": (4.0, ATTENTION), "write": (6.5, INK)}
    for word, (x, colour) in parts.items():
        axes.add_patch(Rectangle((x, 0.5), 1.5, 0.7, fill=False, ec=colour, lw=1.6))
        axes.text(x + 0.75, 0.85, word, ha="center", va="center", color=colour)
    arrows = [((0.6, 0.85), (1.5, 0.85)), ((3.0, 0.85), (4.0, 0.85)), ((5.5, 0.85), (6.5, 0.85))]
    arrows += [((8.0, 0.85), (8.9, 0.85))]
    for start, end in arrows:
        axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=11, color=SOFT))
    for start, end, words in (
        ((2.25, 0.5), (7.0, 0.5), "route"),
        ((0.9, 0.9), (7.25, 1.2), "state"),
    ):
        bend = 0.22 if words == "route" else -0.3
        style = f"arc3,rad={bend}"
        axes.add_patch(
            FancyArrowPatch(
                start, end, connectionstyle=style, arrowstyle="-|>", mutation_scale=11, color=SOFT
            )
        )
    labels = ((0.0, 0.85, "state"), (3.5, 1.02, "x"), (6.0, 1.02, "y"), (9.3, 0.85, "state"))
    for x, y, word in (*labels, (4.6, -0.28, "route"), (4.1, 2.2, "state")):
        axes.text(x, y, word, ha="center", va="center", color=INK if word in "xy" else SOFT)
    axes.set_xlim(-0.5, 9.9)
    axes.set_ylim(-0.5, 2.5)
    return svg_of(figure)


def _shapes() -> bytes:
    """The published shapes of 400 M parameters, to scale: width across, blocks upward."""
    figure = Figure(figsize=(7.4, 2.9), layout="constrained")
    axes = figure.subplots()
    axes.axis("off")
    left = 0.0
    for shape in family("400m"):
        axes.add_patch(
            Rectangle((left, 0), shape.width, shape.layers, fc=BLOCKS[0], ec=ATTENTION, lw=1.2)
        )
        middle = left + shape.width / 2
        axes.text(middle, shape.layers + 1.5, f"{shape.layers}", ha="center", va="bottom")
        axes.text(middle, -2, f"{shape.width}", ha="center", va="top")
        ratio = f"r = {shape.width / shape.layers:.0f}"
        axes.text(middle, -9, ratio, ha="center", va="top", color=SOFT)
        left += shape.width + 250
    axes.text(-150, 72, "blocks", ha="left", va="bottom", color=SOFT)
    axes.text(-150, -2, "width", ha="right", va="top", color=SOFT)
    axes.set_xlim(-700, left)
    axes.set_ylim(-15, 80)
    return svg_of(figure)


def _programs() -> bytes:
    """Programs of a model of four blocks, one a row."""
    figure = Figure(figsize=(5.6, 2.7), layout="constrained")
    axes = _blank(figure)
    for row, (words, blocks) in enumerate(PROGRAMS.items()):
        y = -row * 0.9
        axes.text(-0.3, y + 0.3, words, ha="right", va="center", color=INK)
        axes.text(0.25, y + 0.3, "emb", ha="center", va="center", color=SOFT)
        for place, block in enumerate(blocks):
            x = 0.8 + place * 0.95
            axes.add_patch(Rectangle((x, y), 0.7, 0.6, fc=BLOCKS[block], ec=INK, lw=1.0))
            axes.text(x + 0.35, y + 0.3, str(block), ha="center", va="center")
        x = 0.8 + len(blocks) * 0.95
        axes.text(x + 0.3, y + 0.3, "head", ha="center", va="center", color=FEEDFORWARD)
    axes.set_xlim(-2.9, 6.4)
    axes.set_ylim(-3.8, 0.8)
    return svg_of(figure)
