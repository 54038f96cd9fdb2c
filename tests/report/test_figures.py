"""Static figures hold the measured numbers and stay readable."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.lines import Line2D

from depthbench.report import ReportFiles
from depthbench.report.figures import aspect_figure, search_figure, training_figure, write_figures
from depthbench.report.study import load
from depthbench.report.style import COLOURS, marks
from depthbench.study.verdict import judge
from tests.report.synthetic import rich_rows, row


def xs(line: Line2D) -> list[float]:
    return [float(x) for x in np.asarray(line.get_xdata())]


def ys(line: Line2D) -> list[float]:
    return [float(y) for y in np.asarray(line.get_ydata())]


def test_aspect_figure_is_logarithmic_with_the_deepest_left() -> None:
    axes = aspect_figure(judge(rich_rows())).axes[0]
    assert axes.get_xscale() == "log"
    assert axes.get_xlim()[0] < 3 < 68 < axes.get_xlim()[1]
    curves = [line for line in axes.lines if len(xs(line)) == 4]
    assert xs(curves[0]) == [68, 24, 8.5, 3]
    hc = next(line for line in curves if ys(line)[-1] == pytest.approx(2.120))
    assert ys(hc) == pytest.approx([2.250, 2.140, 2.130, 2.120])
    crosses = [line for line in axes.lines if line.get_marker() == "x"]
    assert len(crosses) == 1
    assert {text.get_text() for text in axes.texts} >= {"hc", "prenorm", "attnres", "deepnorm"}


def test_published_curves_have_their_own_axes_and_unit() -> None:
    ours, theirs = aspect_figure(judge(rich_rows()), with_published=True).axes
    assert "bits per byte" in ours.get_ylabel()
    assert "nats per token of another data set" in theirs.get_ylabel()
    assert "Published, arXiv 2609.32534, 400M parameters; not ours" in theirs.get_title()
    values = [ys(line) for line in theirs.lines]
    assert [2.729, 2.716, 2.702, 2.714, 2.700, 2.691, 2.682] in values


def test_search_figure_rings_the_chosen_rates() -> None:
    axes = search_figure(judge(rich_rows())).axes[0]
    rings = [line for line in axes.lines if line.get_fillstyle() == "none"]
    assert [xs(ring)[0] for ring in rings] == [4e-3, 4e-3, 8e-3, 4e-3]


def test_training_figure_has_a_panel_for_each_depth(rich_folder: Path) -> None:
    figure = training_figure(load(rich_folder))
    assert [axes.get_title() for axes in figure.axes] == [
        f"{layers} layers" for layers in (2, 4, 8, 16)
    ]
    assert [sum(len(xs(line)) > 1 for line in axes.lines) for axes in figure.axes] == [12] * 4


def test_files_are_pictures_and_repeat_bit_for_bit(
    rich_folder: Path, rich_report: ReportFiles, tmp_path: Path
) -> None:
    again = write_figures(load(rich_folder), tmp_path, True)
    assert [path.name for path in again] == [path.name for path in rich_report.figures]
    for one, two in zip(rich_report.figures, again, strict=True):
        assert one.suffix == ".svg" or one.read_bytes()[1:4] == b"PNG"
        assert one.read_bytes() == two.read_bytes()


def test_odd_labels_and_single_points_can_be_drawn(tmp_path: Path) -> None:
    verdict = judge([row("$x_{1", 2, 2.5), row("b", 4, None, status="diverged")])
    figure = aspect_figure(verdict)
    figure.savefig(tmp_path / "odd.png")
    assert (tmp_path / "odd.png").stat().st_size > 5000


def test_marks_are_unique_and_stable() -> None:
    labels = ["prenorm", *(f"design{i}" for i in range(30))]
    found = marks(labels)
    assert list(found) == labels
    assert len({(m.light, m.symbol, m.dash) for m in found.values()}) == 31
    assert marks(["hc", "prenorm"])["hc"] == marks(["hc"])["hc"]


def luminance(colour: str) -> float:
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(a * b for a, b in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))


@pytest.mark.parametrize(("light", "dark"), COLOURS)
def test_colours_stand_out_from_their_ground(light: str, dark: str) -> None:
    assert 1.05 / (luminance(light) + 0.05) >= 3
    assert (luminance(dark) + 0.05) / (luminance("#1a1d22") + 0.05) >= 3
