"""What a paper needs of a study: figures as PDF and SVG, tables in LaTeX, drafts of captions."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl

from depthbench.files import write_atomic
from depthbench.report import facts
from depthbench.report.figures import STYLE, drawings, save_as
from depthbench.report.study import StudyData, depths, load
from depthbench.study.findings import DesignFinding, Point
from depthbench.study.words import counted, listed

PAPER: dict[Any, Any] = STYLE | {
    "font.family": "serif",
    "font.size": 9,
    "axes.titlesize": 9,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
}
"""Text stays text, in fonts that publishers take (TrueType, no type 3)."""
WIDTH = 5.5
"""Inches, of the text of a page in one column."""
KINDS = ("pdf", "svg")
SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
}


def write_paper(folder: Path, out: Path) -> list[Path]:
    """Write the publication set of the study in ``folder`` to ``out``; its paths.

    Figures have no title: the caption says what they are. Raises `DepthbenchError` as `load` does.
    """
    study = load(folder)
    paths = _figures(study, out)
    texts = {
        "loss_table.tex": loss_table(study),
        "search_table.tex": search_table(study),
        "captions.tex": "\n\n".join(captions(study)) + "\n",
    }
    for name, text in texts.items():
        if text:
            write_atomic(out / name, text)
            paths.append(out / name)
    return paths


def _figures(study: StudyData, out: Path) -> list[Path]:
    paths: list[Path] = []
    with mpl.rc_context(PAPER):
        for name, draw in drawings(study, with_published=False).items():
            figure = draw()
            width, height = figure.get_size_inches()
            figure.set_size_inches(WIDTH, WIDTH * height / width)
            if len(figure.axes) == 1:
                figure.axes[0].set_title("")
            paths += save_as(figure, out, name, KINDS)
    return paths


def loss_table(study: StudyData) -> str:
    """Mean validation loss and its deviation over seeds, a column for each depth."""
    layers = depths(study.verdict)
    head = " & ".join(["design", *(f"L{depth}" for depth in layers)])
    lines = [
        " & ".join([latex(design.label), *(_cell(design, depth) for depth in layers)])
        for design in study.verdict.designs
    ]
    return _tabular("l" + "r" * len(layers), head, lines)


def search_table(study: StudyData) -> str:
    """Every learning rate that was tried, the chosen one in bold; nothing without a search."""
    lines = [
        " & ".join(
            [
                latex(design.label),
                _bold(f"{one.learning_rate:g}", one.learning_rate == design.search.chosen),
                "--" if one.bits_per_byte is None else f"{one.bits_per_byte:.3f}",
                str(one.finished),
                str(one.diverged),
            ]
        )
        for design in study.verdict.designs
        for one in design.search.grid
    ]
    head = "design & learning rate & bits per byte & finished & diverged"
    return _tabular("lrrrr", head, lines) if lines else ""


def captions(study: StudyData) -> list[str]:
    """A draft for each figure and table, with definitions and counts."""
    verdict = study.verdict
    seeds = len({row.seed for row in study.rows})
    setting = dict(facts.strip(study))
    budget = f"{setting['parameters']} parameters"
    labels = listed([design.label for design in verdict.designs])
    lost = [f"{verdict.diverged} diverged", f"{verdict.failed} failed"]
    trials = f"{verdict.finished} of {len(study.rows) + study.unfinished} trials finished"
    common = (
        f"{labels} at {budget}, {setting.get('tokens a trial', '?')} training tokens a trial, "
        f"{counted(seeds, 'seed')}; {trials}, {' and '.join(lost)}."
    )
    loss = (
        "Validation loss in bits per byte (nats per token times tokens, over ln 2 times bytes of "
        "the held-out text), mean and sample standard deviation over seeds."
    )
    found = [
        f"Loss by aspect ratio (width over layers; the left is deeper and narrower). {loss} "
        f"{common} {verdict.headline}",
        f"{loss} Bold: each design's best depth. {common}",
    ]
    searched = [design for design in verdict.designs if design.search.grid]
    if searched:
        middle = searched[0].search
        found.append(
            "Learning-rate search: mean validation loss of every rate that was tried at the middle "
            f"shape ({middle.layers} layers, width {middle.width}); the chosen one trains all "
            "shapes of its design."
        )
    return [f"\\caption{{{latex(text)}}}" for text in found]


def latex(text: str) -> str:
    """``text`` as LaTeX prints it, and nothing that LaTeX would run."""
    printable = re.sub(r"[\x00-\x1f\x7f]+", " ", text)
    return "".join(SPECIAL.get(sign, sign) for sign in printable)


def _cell(design: DesignFinding, layers: int) -> str:
    points = [point for point in design.curve if point.layers == layers]
    return " / ".join(_point(design, point) for point in points) or "--"


def _point(design: DesignFinding, point: Point) -> str:
    if point.bits_per_byte is None:
        return "diverged" if point.diverged else "failed"
    text = f"{point.bits_per_byte:.3f}"
    text = _bold(text, point == design.best)
    if point.spread:
        text += f" $\\pm$ {point.spread.standard_deviation:.3f}"
    lost = point.trials - point.finished
    return text + (f" ({point.finished} of {point.trials})" if lost else "")


def _bold(text: str, it_is: bool) -> str:
    return f"\\textbf{{{text}}}" if it_is else text


def _tabular(columns: str, head: str, lines: list[str]) -> str:
    """With the rules of booktabs."""

    def rows() -> Iterator[str]:
        yield f"\\begin{{tabular}}{{{columns}}}"
        yield "\\toprule"
        yield f"{head} \\\\"
        yield "\\midrule"
        yield from (f"{line} \\\\" for line in lines)
        yield "\\bottomrule"
        yield "\\end{tabular}"

    return "\n".join(rows()) + "\n"
