"""What a paper needs of a study: figures as PDF and SVG, tables in LaTeX, drafts of captions."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl

from depthbench.files import write_atomic
from depthbench.report import facts
from depthbench.report.figures import STYLE, drawings, save_as
from depthbench.report.latex import bold, bounds, caption, latex, tabular
from depthbench.report.paper_probes import depth_table, probe_captions, probe_drawings
from depthbench.report.study import StudyData, depths, load
from depthbench.report.style import marks
from depthbench.study.findings import DesignFinding, Point
from depthbench.study.paired import interval
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
CONFIDENCE = 0.95


def write_paper(folder: Path, out: Path) -> list[Path]:
    """Write the publication set of the study in ``folder`` to ``out``; its paths.

    Figures have no title: the caption says what they are. Raises `DepthbenchError` as `load` does.
    """
    study = load(folder)
    paths = _figures(study, out)
    texts = {
        "loss_table.tex": loss_table(study),
        "interval_table.tex": interval_table(study),
        "search_table.tex": search_table(study),
        "depth_table.tex": depth_table(study.probes),
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
        # laid out in inches for their own width: scaled down by whoever prints them
        style = marks(design.label for design in study.verdict.designs)
        for name, draw in probe_drawings(study.probes, style).items():
            paths += save_as(draw(), out, name, KINDS)
    return paths


def loss_table(study: StudyData) -> str:
    """Mean validation loss and its deviation over seeds, a column for each depth."""
    layers = depths(study.verdict)
    lines = [
        [latex(design.label), *(_losses(design, depth) for depth in layers)]
        for design in study.verdict.designs
    ]
    head = ["design", *(f"L{depth}" for depth in layers)]
    return tabular("l" + "r" * len(layers), head, lines)


def interval_table(study: StudyData) -> str:
    """Each design's best and deepest shape with Student's 95 % interval of the mean over seeds."""
    lines = [
        [
            latex(design.label),
            *(_best_with_interval(design)),
            str(design.curve[-1].layers),
            _with_interval(design.curve[-1]),
        ]
        for design in study.verdict.designs
        if design.curve
    ]
    return tabular("lrrrr", ["design", "best L", "loss", "deepest L", "loss"], lines)


def search_table(study: StudyData) -> str:
    """Every learning rate that was tried, the chosen one in bold; nothing without a search."""
    lines = [
        [
            latex(design.label),
            bold(f"{one.learning_rate:g}", one.learning_rate == design.search.chosen),
            "--" if one.bits_per_byte is None else f"{one.bits_per_byte:.3f}",
            str(one.finished),
            str(one.diverged),
            str(one.failed),
        ]
        for design in study.verdict.designs
        for one in design.search.grid
    ]
    head = ["design", "learning rate", "bits per byte", "finished", "diverged", "failed"]
    return tabular("lrrrrr", head, lines) if lines else ""


def captions(study: StudyData) -> list[str]:
    """A draft for each figure and table, with definitions and counts."""
    common = _common(study)
    loss = (
        "Validation loss in bits per byte (nats per token times tokens, over ln 2 times bytes of "
        "the held-out text)"
    )
    spread = f"{loss}, mean and sample standard deviation over seeds."
    found = [
        f"Loss by aspect ratio (width over layers; the left is deeper and narrower). {spread} "
        f"{common} {study.verdict.headline}",
        f"{spread} Bold: each design's best depth. {common}",
        f"{loss} of each design's best and deepest shape: mean over seeds, and Student's 95 % "
        "interval of that mean, which supposes that losses of seeds are normal; none with a "
        f"single seed. {common}",
        *_searched(study),
    ]
    if study.curves:
        found.append(
            "Training loss in nats per token against training tokens, averaged over stretches, at "
            f"each design's chosen learning rate; a line is a seed. {common}"
        )
    return [*map(caption, found), *probe_captions(study.probes)]


def _common(study: StudyData) -> str:
    """What was trained, and what came of it."""
    verdict = study.verdict
    setting = dict(facts.strip(study))
    labels = listed([design.label for design in verdict.designs])
    lost = [f"{verdict.diverged} diverged", f"{verdict.failed} failed"]
    trials = f"{verdict.finished} of {len(study.rows) + study.unfinished} trials finished"
    return (
        f"{labels} at {setting['parameters']} parameters, "
        f"{setting.get('tokens a trial', '?')} training tokens a trial, "
        f"{counted(len({row.seed for row in study.rows}), 'seed')}; {trials}, "
        f"{' and '.join(lost)}."
    )


def _searched(study: StudyData) -> Iterator[str]:
    searched = [design.search for design in study.verdict.designs if design.search.grid]
    if searched:
        shapes = dict.fromkeys(f"{one.layers} layers, width {one.width}" for one in searched)
        yield (
            "Learning-rate search: mean validation loss of every rate that was tried at the "
            f"middle shape of each design ({'; '.join(shapes)}); the chosen one trains all its "
            "shapes."
        )


def _losses(design: DesignFinding, layers: int) -> str:
    points = [point for point in design.curve if point.layers == layers]
    return " / ".join(_point(design, point) for point in points) or "--"


def _point(design: DesignFinding, point: Point) -> str:
    if point.bits_per_byte is None:
        return point.lost
    text = bold(f"{point.bits_per_byte:.3f}", point == design.best)
    if point.spread:
        text += f" $\\pm$ {point.spread.standard_deviation:.3f}"
    lost = point.trials - point.finished
    return text + (f" ({point.finished} of {point.trials})" if lost else "")


def _best_with_interval(design: DesignFinding) -> tuple[str, str]:
    best = design.best
    return ("--", "--") if best is None else (str(best.layers), _with_interval(best))


def _with_interval(point: Point) -> str:
    if point.bits_per_byte is None:
        return point.lost
    found = interval(list(point.by_seed.values()), CONFIDENCE)
    text = f"{found.mean:.3f}"
    if found.low is not None and found.high is not None:
        text += f" {bounds(found.low, found.high)}"
    lost = point.trials - point.finished
    return text + (f" ({point.finished} of {point.trials})" if lost else "")
