"""The report's figures as PNG and SVG."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullFormatter, NullLocator

from depthbench.errors import printable
from depthbench.files import save_atomic
from depthbench.report.study import StudyData, depths, published
from depthbench.report.style import Mark, marks
from depthbench.study.findings import DesignFinding, Verdict

INK, SOFT, GRID = "#2b2d33", "#6c6f78", "#e4e2dc"
STYLE: dict[Any, Any] = {
    "font.size": 10.5,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "axes.titlesize": 12,
    "axes.titlecolor": INK,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "lines.linewidth": 1.9,
    "lines.markersize": 6,
    "svg.hashsalt": "depthbench",
}
LEADER: dict[str, Any] = {
    "arrowstyle": "-",
    "lw": 0.6,
    "alpha": 0.6,
    "patchA": None,
    "relpos": (0, 0.5),
}
BITS = "validation loss (bits per byte)"
ASPECT = "aspect ratio, width / layers, at L layers   (← deeper and narrower)"


def look(mark: Mark) -> dict[str, Any]:
    """Matplotlib's settings of a design's line."""
    return {"color": mark.light, "marker": mark.marker, "linestyle": mark.line}


def write_figures(study: StudyData, folder: Path, with_published: bool) -> list[Path]:
    """Write each figure to ``folder`` as PNG (200 dots per inch) and SVG; their paths."""
    paths: list[Path] = []
    with mpl.rc_context(STYLE):
        for name, draw in drawings(study, with_published).items():
            paths += save_as(draw(), folder, name)
    return paths


def drawings(study: StudyData, with_published: bool) -> dict[str, Callable[[], Figure]]:
    """What draws each figure of ``study``, by the name of its files."""
    found: dict[str, Callable[[], Figure]] = {
        "loss_by_aspect_ratio": lambda: aspect_figure(study.verdict, with_published)
    }
    if any(design.search.grid for design in study.verdict.designs):
        found["learning_rate_search"] = lambda: search_figure(study.verdict)
    if study.curves:
        found["training_curves"] = lambda: training_figure(study)
    return found


def save_as(
    figure: Figure, folder: Path, name: str, kinds: Sequence[str] = ("png", "svg")
) -> list[Path]:
    """Write ``figure`` to ``folder`` as ``NAME.KIND`` of each kind; their paths."""
    paths = [folder / f"{name}.{kind}" for kind in kinds]
    for path, kind in zip(paths, kinds, strict=True):
        save_atomic(path, lambda target, k=kind: save_figure(figure, target, k))
    return paths


def aspect_figure(verdict: Verdict, with_published: bool = False) -> Figure:
    """Loss against aspect ratio: mean and sample standard deviation over seeds, seeds as dots."""
    style = marks([d.label for d in verdict.designs] + list(_published_names(with_published)))
    figure = Figure(figsize=(13 if with_published else 7.6, 5), layout="constrained")
    axes = figure.subplots(1, 2 if with_published else 1, squeeze=False)[0]
    ours: Axes = axes[0]
    ends: list[tuple[str, float, float]] = []
    for design in verdict.designs:
        end = _draw_design(ours, design, style[design.label])
        if end:
            ends.append((design.label, *end))
    _mark_diverged(ours, verdict, style)
    shapes = [(p.aspect_ratio, p.layers) for d in verdict.designs for p in d.curve]
    aspect_axis(ours, shapes)
    ours.set_ylabel(BITS)
    ours.set_title(plain(f"{verdict.study}: loss by aspect ratio"))
    _direct_labels(ours, ends, style)
    if with_published:
        _draw_published(axes[1], style)
    return figure


def search_figure(verdict: Verdict) -> Figure:
    """Loss against learning rate at the middle shape; a ring marks the chosen rate."""
    style = marks(design.label for design in verdict.designs)
    figure = Figure(figsize=(7.6, 4.6), layout="constrained")
    axes = figure.subplots()
    rates = sorted({c.learning_rate for d in verdict.designs for c in d.search.grid})
    ends: list[tuple[str, float, float]] = []
    for design in verdict.designs:
        able = [
            (candidate.learning_rate, loss)
            for candidate in design.search.grid
            if (loss := candidate.bits_per_byte) is not None
        ]
        if not able:
            continue
        mark = style[design.label]
        xs, ys = zip(*able, strict=True)
        axes.plot(xs, ys, color=mark.light, marker=mark.marker, linestyle=mark.line)
        chosen = [(x, y) for x, y in able if x == design.search.chosen]
        for x, y in chosen:
            axes.plot([x], [y], "o", markersize=13, fillstyle="none", color=mark.light)
        ends.append((design.label, xs[-1], ys[-1]))
    lost = [
        (design.label, candidate.learning_rate)
        for design in verdict.designs
        for candidate in design.search.grid
        if candidate.diverged
    ]
    axes.set_xscale("log")
    _crosses(axes, lost, style)
    axes.xaxis.set_major_locator(FixedLocator(rates))
    axes.xaxis.set_major_formatter(FixedFormatter([f"{rate:g}" for rate in rates]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("peak learning rate   (○ chosen)")
    axes.set_ylabel(BITS)
    axes.set_title("Learning-rate search at the middle shape")
    _direct_labels(axes, ends, style)
    return figure


def training_figure(study: StudyData) -> Figure:
    """Training loss against tokens, one panel for each depth, every seed a line."""
    style = marks(design.label for design in study.verdict.designs)
    panels = [
        layers
        for layers in depths(study.verdict)
        if any(curve.row.shape.layers == layers for curve in study.curves)
    ]
    columns = min(4, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(max(6.0, 3.6 * columns), 3.4 * rows + 0.6), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    low, high = loss_range(study)
    for index, axes in enumerate(grid.flat):
        if index >= len(panels):
            axes.set_visible(False)
            continue
        for curve in study.curves:
            if curve.row.shape.layers != panels[index]:
                continue
            mark = style[curve.row.label]
            axes.plot(
                [tokens / 1e6 for tokens in curve.tokens],
                curve.nats_per_token,
                color=mark.light,
                linestyle=mark.line,
                linewidth=1.2,
                alpha=0.9,
            )
        axes.set_ylim(low, high)
        axes.set_title(f"{panels[index]} layers")
        axes.set_xlabel("training tokens (millions)")
    for line in grid[:, 0]:
        line.set_ylabel("training loss (nats per token)")
    for label, mark in style.items():
        grid[0, 0].plot([], [], color=mark.light, linestyle=mark.line, label=plain(label))
    figure.legend(loc="outside lower center", ncols=min(5, len(style)), frameon=False)
    return figure


def loss_range(study: StudyData) -> tuple[float, float]:
    """Limits that show the run after its first twentieth; a spike may leave them."""
    least = min(min(curve.nats_per_token) for curve in study.curves)
    early = max(
        curve.nats_per_token[len(curve.nats_per_token) // 20]
        for curve in study.curves
        if curve.row.status == "done" or all(c.row.status != "done" for c in study.curves)
    )
    return least - 0.04 * (early - least or 1.0), early + 0.04 * (early - least or 1.0)


def _published_names(with_published: bool) -> Sequence[str]:
    return list(published().validation_loss) if with_published else []


def _draw_design(axes: Axes, design: DesignFinding, mark: Mark) -> tuple[float, float] | None:
    """Draw a curve; the place of its widest shape, for the label."""
    measured = [(p, loss) for p in design.curve if (loss := p.bits_per_byte) is not None]
    if not measured:
        return None
    axes.errorbar(
        [point.aspect_ratio for point, _ in measured],
        [loss for _, loss in measured],
        yerr=[
            point.spread.standard_deviation if point.spread else math.nan for point, _ in measured
        ],
        color=mark.light,
        marker=mark.marker,
        linestyle=mark.line,
        elinewidth=1.2,
        capsize=2.5,
    )
    for point, _ in measured:
        if point.spread:
            axes.plot(
                [point.aspect_ratio] * point.finished,
                list(point.by_seed.values()),
                "o",
                markersize=2.4,
                alpha=0.55,
                color=mark.light,
            )
    return measured[0][0].aspect_ratio, measured[0][1]


def _mark_diverged(axes: Axes, verdict: Verdict, style: dict[str, Mark]) -> None:
    axes.set_xscale("log")
    lost = [
        (design.label, point.aspect_ratio)
        for design in verdict.designs
        for point in design.curve
        if point.diverged
    ]
    _crosses(axes, lost, style)


def _crosses(axes: Axes, lost: list[tuple[str, float]], style: dict[str, Mark]) -> None:
    """Crosses at the upper edge: a diverged trial has no loss, but it has a place."""
    if not lost:
        return
    order = list(style)
    for label, x in lost:
        axes.plot(
            [x * 1.035 ** (order.index(label) - len(order) / 2)],
            [0.965],
            "x",
            color=style[label].light,
            markersize=8,
            markeredgewidth=2,
            transform=axes.get_xaxis_transform(),
        )
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.1 * (high - low))
    axes.annotate(
        "× a seed diverged", (1, 1.0), xycoords="axes fraction", ha="right", va="bottom", color=SOFT
    )


def _draw_published(axes: Axes, style: dict[str, Mark]) -> None:
    data = published()
    ends: list[tuple[str, float, float]] = []
    for name in data.validation_loss:
        curve = data.curve(name)
        mark = style[name]
        axes.plot(
            [aspect for aspect, _, _ in curve],
            [loss for _, _, loss in curve],
            color=mark.light,
            marker=mark.marker,
            linestyle=mark.line,
            linewidth=1.3,
            markersize=4.5,
        )
        ends.append((name, curve[0][0], curve[0][2]))
    axes.set_xscale("log")
    axes.set_facecolor("#f6f5f1")
    aspect_axis(axes, [(s["width"] / s["layers"], s["layers"]) for s in data.shapes])
    axes.set_ylabel(f"validation loss ({data.unit} of another data set)")
    axes.set_title(f"Published, arXiv 2609.32534, {data.parameters} parameters; not ours")
    _direct_labels(axes, ends, style)


def aspect_ticks(shapes: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """One tick ``(aspect ratio, layers)`` a depth, at the geometric mean of its aspect ratios."""
    groups: dict[int, list[float]] = {}
    for aspect, layers in shapes:
        groups.setdefault(layers, []).append(aspect)
    return [
        (math.exp(sum(map(math.log, aspects)) / len(aspects)), layers)
        for layers, aspects in sorted(groups.items())
    ]


def aspect_axis(axes: Axes, shapes: Sequence[tuple[float, int]]) -> None:
    """One tick a depth, with its aspect ratio and its number of layers."""
    ticks = aspect_ticks(shapes)
    axes.xaxis.set_major_locator(FixedLocator([aspect for aspect, _ in ticks]))
    axes.xaxis.set_major_formatter(
        FixedFormatter([f"{aspect:.3g}\nL{layers}" for aspect, layers in ticks])
    )
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="x", labelsize=9)
    axes.set_xlabel(ASPECT)


def _direct_labels(
    axes: Axes, ends: list[tuple[str, float, float]], style: dict[str, Mark]
) -> None:
    """Name each curve right of the axes, spread so that names do not touch, with a thin leader."""
    low, high = axes.get_ylim()
    gap = 0.055 * (high - low)
    place = -math.inf
    spread: list[tuple[str, float, float, float]] = []
    for label, x, y in sorted(ends, key=lambda end: end[2]):
        place = max(y, place + gap)
        spread.append((label, x, y, place))
    excess = max(0.0, (spread[-1][3] - high) if spread else 0.0)
    for label, x, y, at in spread:
        axes.annotate(
            plain(label),
            xy=(x, y),
            xytext=(1.04, (at - excess - low) / (high - low)),
            textcoords="axes fraction",
            va="center",
            color=style[label].light,
            arrowprops=LEADER | {"color": style[label].light},
            annotation_clip=False,
        )


def plain(text: str) -> str:
    """``text`` without matplotlib's mathematics mode, which a dollar sign would open."""
    return printable(text).replace("$", r"\$")


def save_figure(figure: Figure, target: str, kind: str) -> None:
    """Write ``figure`` to ``target`` as ``png``, ``svg`` or ``pdf``, without a date."""
    options: dict[str, Any] = {"metadata": {"CreationDate" if kind == "pdf" else "Date": None}}
    if kind == "png":
        # half the time of the default for a sixth more bytes
        options = {"pil_kwargs": {"compress_level": 3}}
    figure.savefig(target, format=kind, dpi=200, **options)
