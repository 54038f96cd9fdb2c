"""Probes in the publication set: which models, which numbers, what captions define."""

from pathlib import Path

import pytest

from depthbench.probes.study import chosen_trials
from depthbench.report.latex import latex
from depthbench.report.paper import write_paper
from depthbench.report.paper_probes import depth_table, probe_captions, probe_drawings
from depthbench.report.study import load
from depthbench.report.study_probes import ProbedStudy
from depthbench.report.style import marks
from depthbench.study.store import Store
from tests.report.probe_results import write_results
from tests.report.synthetic import rich_rows, write_study

LABELS = ("prenorm", "hc", "attnres", "deepnorm")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = write_study(tmp_path_factory.mktemp("probed") / "study", rich_rows())
    for number, row in enumerate(chosen_trials(Store(place).rows())):
        write_results(place, row, unit=1.0 + number)
    return place


@pytest.fixture(scope="module")
def study(folder: Path) -> ProbedStudy:
    probes = load(folder).probes
    assert probes is not None
    return probes


def test_the_table_has_every_number_with_its_interval(study: ProbedStudy) -> None:
    lines = depth_table(study).splitlines()
    assert lines[0] == r"\begin{tabular}{lrr}"
    assert lines[2] == r"trial & Fewest blocks & Late pairs \\"
    assert lines[4:-2] == [
        f"{trial.model.name} & 2 blocks (1 to 3) & {0.25 * (1 + number):.4g} share \\\\"
        for number, trial in enumerate(study.trials)
    ]


def test_curves_and_maps_are_of_the_deepest_shape(study: ProbedStudy) -> None:
    drawn = probe_drawings(study, marks(LABELS))
    assert [*drawn] == ["probe-causal-effect", "probe-lens-divergence", "probe-lens-change"]
    effect = drawn["probe-causal-effect"]()
    maps = [axes for axes in effect.axes if axes.get_title()]
    assert [axes.get_title() for axes in maps] == [f"{label}, 16 layers" for label in LABELS]
    assert len({axes.images[0].get_clim() for axes in maps}) == 1
    [lens] = drawn["probe-lens-divergence"]().axes
    numbers = [n for n, trial in enumerate(study.trials) if trial.row.shape.layers == 16]
    tops = [lines[0].get_ydata()[0] for lines in lens.containers]
    assert tops == [16 * (1.0 + number) for number in numbers]


def test_captions_define_what_they_show_and_what_not(study: ProbedStudy) -> None:
    table, causal, _, lens = probe_captions(study)
    assert table.startswith(r"\caption{How much of its depth each")
    assert "Title of lens of prenorm, 16 layers, hc, 16 layers, attnres, 16 layers and" in lens
    assert "on 2,048 tokens of 8 documents." in causal
    assert f"Definition: {latex('C(s, l) = ‖u‖ < 1')}." in causal
    assert causal.endswith("Not seen: It cannot see the rest.}")


def test_nothing_is_written_of_a_study_without_probes() -> None:
    for none in (None, ProbedStudy([], None, [])):
        assert depth_table(none) == ""
        assert not probe_drawings(none, {})
        assert not [*probe_captions(none)]


def test_files_are_written(folder: Path, tmp_path: Path) -> None:
    names = {path.name for path in write_paper(folder, tmp_path)}
    assert names == {path.name for path in tmp_path.iterdir()}
    assert {"depth_table.tex", "probe-causal-effect.pdf", "probe-lens-change.svg"} <= names
    assert b"/Type3" not in (tmp_path / "probe-causal-effect.pdf").read_bytes()
