"""Pages of probes: the numbers of the results, on one scale, and nothing from them runs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from depthbench.errors import DepthbenchError
from depthbench.probes import REGISTRY
from depthbench.probes.result import Curve, Number, ProbeResult, curve, matrix
from depthbench.report.probe_figures import curve_figure, file_name, map_figure
from depthbench.report.probe_groups import curves, matrices, probed, scale_of
from depthbench.report.probes import write_probes
from depthbench.report.style import marks
from tests.report.page import Page
from tests.report.probe_results import PAIR, effects, group, result, subject

ATTACK = "</script><script>alert(1)</script><img src=x onerror=alert(2)>$x_{1"
FILES = ("causal-effect", "lens-divergence", "lens-change")


@pytest.fixture(scope="module")
def groups() -> list[list[ProbeResult]]:
    return [group("prenorm, 4 layers", 4), group("hc, 3 layers", 3, unit=2.0)]


@pytest.fixture(scope="module")
def path(groups: list[list[ProbeResult]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_probes(groups, tmp_path_factory.mktemp("probes"))


@pytest.fixture(scope="module")
def page(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def maps(page: Page, title: str) -> list[dict[str, Any]]:
    return [
        trace
        for figure in page.payload["figures"].values()
        for trace in figure["data"]
        if trace["type"] == "heatmap" and trace["colorbar"]["title"]["text"] == title
    ]


def test_maps_hold_the_results_and_missing_pairs_are_gaps(page: Page) -> None:
    first, second = maps(page, "Effect of a skip")
    assert first["z"] == [
        [None, 1.0, 2.0, 3.0],
        [None, None, 12.0, 13.0],
        [None, None, None, 23.0],
        [None] * 4,
    ]
    assert second["z"] == [[None, 2.0, 4.0], [None, None, 24.0], [None] * 3]
    assert (first["x"], second["y"]) == ([0, 1, 2, 3], [0, 1, 2])
    assert first["hoverongaps"] is False
    assert [one["name"] for one in (first, second)] == ["prenorm, 4 layers", "hc, 3 layers"]


def test_all_maps_of_a_finding_share_one_scale(page: Page) -> None:
    effect, change = maps(page, "Effect of a skip"), maps(page, "nats/token")
    assert [(one["zmin"], one["zmax"]) for one in effect] == [(1.0, 24.0)] * 2
    # about its centre, as far as the farthest value of any model
    assert [(one["zmin"], one["zmax"]) for one in change] == [(-2.0, 2.0)] * 2
    assert change[0]["colorscale"][1][0] == 0.5
    assert effect[0]["colorscale"] != change[0]["colorscale"]


def test_curves_hold_the_results_with_their_intervals(page: Page) -> None:
    [figure] = [
        one for one in page.payload["figures"].values() if one["data"][0]["type"] == "scatter"
    ]
    first, second = figure["data"]
    assert (first["x"], first["y"]) == ([0, 1, 2, 3, 4], [4, 3, 2, 1, 0])
    assert second["y"] == [6, 4, 2, 0]
    assert first["error_y"]["array"] == [None, 0.25, 0.25, 0.25, 0.25]
    assert first["error_y"]["arrayminus"] == [0.5] * 5
    assert figure["layout"]["xaxis"]["title"]["text"] == "depth"
    assert figure["layout"]["xaxis"]["dtick"] == 1


def test_hover_and_click_say_the_pair_in_words(page: Page) -> None:
    effect, change = maps(page, "Effect of a skip")[0], maps(page, "nats/token")[0]
    assert effect["hovertemplate"] == (
        "<b>prenorm, 4 layers</b><br>block %{y} left out: relative change of what block %{x} "
        "adds: %{z:.4~g}<extra></extra>"
    )
    assert effect["meta"]["words"] == PAIR
    # without words of its own, the axes say what is what
    assert change["meta"]["words"] == "first {row}, last {column}"
    assert "first %{y}, last %{x}: %{z:.4~g} nats/token" in change["hovertemplate"]
    script = page.scripts[-1]
    assert '.said").textContent = ' in script
    assert "innerHTML" not in script


def test_numbers_of_all_models_stand_side_by_side(page: Page) -> None:
    assert "Fewest blocks 2 1 to 3 2 1 to 3 blocks" in page.words
    assert "Late pairs 0.25 0.5 share" in page.words
    # said by two probes, told once in short, then in the section of each
    assert page.words.count("Late pairs 0.25 0.5 share") == 3
    for said in ("2 of 4 blocks keep the loss.", "2 of 3 blocks keep the loss."):
        assert page.words.count(said) == 1
    assert "prenorm, 4 layers against hc, 3 layers" in page.words


def test_sections_say_what_was_measured_and_what_is_not_seen(page: Page) -> None:
    order = [page.words.rindex(f"Title of {name} {name}") for name in ("depth", "causal", "lens")]
    assert order == sorted(order)
    for said in (
        "C(s, l) = ‖u‖ < 1",
        "What it cannot see. It cannot see the rest.",
        "arXiv 2505.13898",
        "threshold = 0.45",
        "2,048 tokens of 8 documents, 2,040 with a loss",
        "token 256 in front of each, hash 7e57",
        "in 1.25 s",
    ):
        assert page.words.count(said) == 3
    for probe in ("depth", "causal", "lens"):
        assert f"How to read it. {' '.join(REGISTRY[probe].reading.split())}" in page.words
    assert page.addresses
    assert all(one.startswith("#probe-") for one in page.addresses)
    assert page.policy.startswith("default-src 'none'")


def test_one_model_has_its_verdict_as_headline(tmp_path: Path) -> None:
    page = Page(write_probes([group("hc", 3)], tmp_path).read_text(encoding="utf-8"))
    assert page.words.count("2 of 3 blocks keep the loss.") == 1
    assert set(page.payload["marks"]) == {"hc"}


def test_what_weakens_a_comparison_is_said(groups: list[list[ProbeResult]], tmp_path: Path) -> None:
    text = groups[0][0].text.model_copy(update={"hash": "other"})
    other = [one.model_copy(update={"text": text}) for one in group("b", 3, vocab=99)]
    mixed = [*other[:2], group("b", 3, vocab=99, weights_hash="cd34")[2]]
    page = Page(write_probes([groups[0], mixed], tmp_path).read_text(encoding="utf-8"))
    assert "Not all results are of the same tokens" in page.words
    assert "Vocabularies differ" in page.words
    assert "b: results are of several sets of weights" in page.words


def test_models_of_one_label_are_told_apart() -> None:
    twice = [group("hc", 3, source="runs/a"), group("hc", 3, source="runs/b")]
    assert [one.name for one in probed(twice)] == ["hc (runs/a)", "hc (runs/b)"]
    same = [group("hc", 3, source="runs/a")] * 2
    assert [one.name for one in probed(same)] == ["hc (runs/a)", "hc (runs/a), 2"]


def test_everything_from_a_result_is_escaped(tmp_path: Path) -> None:
    of = subject(ATTACK, 2, source=ATTACK, model=ATTACK, notes=(ATTACK,))
    named: dict[str, Any] = {"name": ATTACK, "title": ATTACK, "unit": ATTACK}
    hostile = result(
        ATTACK,
        Number(value=1.0, **named),
        Curve(axis=ATTACK, places=(0.0,), values=(1.0,), words=f"{ATTACK}{{}}", **named),
        matrix(ATTACK, ATTACK, [[1.0]], (ATTACK, ATTACK), unit=ATTACK, words=ATTACK),
        of=of,
        title=ATTACK,
        definition=ATTACK,
        blind=ATTACK,
        source=ATTACK,
        options={ATTACK: ATTACK},
        words=(ATTACK,),
    )
    html = write_probes([[hostile]], tmp_path / "page").read_text(encoding="utf-8")
    page = Page(html)
    assert html.count("alert(1)") > 20
    assert "<script>alert" not in html
    assert "img" not in page.tags
    assert page.handlers == []
    assert page.tags.count("script") == 3
    assert not any("alert(" in script for script in page.scripts)
    # what plotly reads as HTML; the page itself writes words as text
    for figure in page.payload["figures"].values():
        [trace] = figure["data"]
        texts = [trace["name"], trace["hovertemplate"], json.dumps(figure["layout"])]
        assert not any("<img" in text for text in texts)
    assert {one.parent for one in tmp_path.rglob("*.png")} == {tmp_path / "page" / "figures"}
    assert file_name("../..", "a/b") == "--a-b"


def test_figures_are_pictures_and_repeat_bit_for_bit(
    groups: list[list[ProbeResult]], path: Path, tmp_path: Path
) -> None:
    again = write_probes(groups, tmp_path)
    names = {one.name for one in (path.parent / "figures").iterdir()}
    assert names == {f"{name}.{kind}" for name in FILES for kind in ("png", "svg")}
    for name in names:
        one, two = (page.parent / "figures" / name for page in (path, again))
        assert one.read_bytes() == two.read_bytes()
        assert one.suffix == ".svg" or one.read_bytes()[1:4] == b"PNG"
    assert path.read_bytes() == again.read_bytes()
    assert {one.name for one in path.parent.iterdir()} == {"report.html", "figures"}


def test_static_figures_hold_the_results_on_one_scale(groups: list[list[ProbeResult]]) -> None:
    models = probed(groups)
    [effect] = matrices(models, "causal")
    images = [axes.images[0] for axes in map_figure(effect).axes if axes.images]
    assert [image.get_clim() for image in images] == [(1.0, 24.0)] * 2
    for image, (layers, unit) in zip(images, ((4, 1.0), (3, 2.0)), strict=True):
        shown = np.ma.filled(np.ma.asarray(image.get_array()), np.nan)
        np.testing.assert_array_equal(shown, effects(layers, unit))
    [lens] = curves(models, "lens")
    axes = curve_figure(lens, marks(model.label for model in models)).axes[0]
    drawn = [np.asarray(line.get_ydata()).tolist() for line in axes.lines]
    assert [4, 3, 2, 1, 0] in drawn
    assert [6, 4, 2, 0] in drawn


@pytest.mark.parametrize("count", [1, 2, 5])
def test_nothing_of_a_figure_is_cut_off(count: int) -> None:
    """Its margins are set by hand."""
    wide = matrix("m", "Map", [[-1.23e-5, 7e-4], [2e-4, 1e-4]], ("reading site", "source"))
    line = curve("c", "Curve", [-0.00012, 123.5e3], unit="nats/token")
    models = probed([result("a", wide, line, of=subject(f"model {n}", 2))] for n in range(count))
    [maps_of], [lines] = matrices(models, "a"), curves(models, "a")
    for figure in (map_figure(maps_of), curve_figure(lines, marks(m.label for m in models))):
        inches = figure.get_size_inches()
        box = figure.get_tightbbox()
        assert (box.min >= 0).all()
        assert (box.max <= inches).all()
        axes = [one.get_tightbbox() for one in figure.axes if one.get_visible()]
        overlapping = [
            (a, b)
            for number, a in enumerate(axes)
            for b in axes[:number]
            if a is not None and b is not None and a.overlaps(b)
        ]
        assert overlapping == []


def test_a_few_far_values_do_not_darken_a_map() -> None:
    values = np.linspace(0.0, 1.0, 400).reshape(20, 20)
    values[0, 0], values[3, 7] = 50.0, 40.0
    one = result("a", matrix("m", "M", values), of=subject("a", 20))
    scale = scale_of(matrices(probed([[one]]), "a")[0])
    assert 0.9 < scale.high < 1.1
    assert scale.beyond == int(((values < scale.low) | (values > scale.high)).sum()) > 2
    assert scale.words.endswith("values lie beyond.")
    values[0, 0], values[3, 7] = 1.5, 2.0
    near = result("a", matrix("m", "M", values), of=subject("a", 20))
    scale = scale_of(matrices(probed([[near]]), "a")[0])
    assert (scale.high, scale.beyond, scale.words) == (2.0, 0, "")


def test_a_model_of_one_block_and_empty_values_can_be_drawn(tmp_path: Path) -> None:
    of = subject("one", 1)
    nothing = Curve(name="none", title="None", axis="block", places=(), values=())
    single = result("causal", matrix("effect", "E", [[np.nan]]), nothing, of=of)
    page = Page(write_probes([[single]], tmp_path).read_text(encoding="utf-8"))
    [drawn] = maps(page, "E")
    assert (drawn["z"], drawn["zmin"], drawn["zmax"]) == ([[None]], 0.0, 1.0)


def test_no_result_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(DepthbenchError, match="no probe has a result to report"):
        write_probes([[]], tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"places": [0, 1, 2]}, "curve 'divergence'"),
        ({"low": [0.0]}, "curve 'divergence'"),
    ],
)
def test_curves_that_are_not_whole_are_refused(change: dict[str, Any], said: str) -> None:
    data = group("a", 3)[2].curve("divergence").resolved()
    with pytest.raises(DepthbenchError, match=said):
        Curve.parse(data | change)


def test_matrices_that_are_not_whole_are_refused() -> None:
    data = group("a", 3)[1].matrix("effect")
    for values in ([[1.0] * 3] * 2, [[1.0] * 3, [1.0] * 2, [1.0] * 3], []):
        with pytest.raises(DepthbenchError, match="matrix 'effect'"):
            type(data).parse(data.resolved() | {"values": values})
