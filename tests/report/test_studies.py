"""Several studies on one page."""

from dataclasses import replace
from pathlib import Path

import pytest

from depthbench.errors import DepthbenchError
from depthbench.report.studies import render_studies, write_studies
from depthbench.report.study import load
from tests.report.page import Page
from tests.report.synthetic import CURVES, rich_rows, write_study


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    one = write_study(tmp_path / "one")
    return [one, write_study(tmp_path / "two", rich_rows()[:9], title="<script>alert(1)</script>")]


def test_curves_of_both_stand_in_one_figure(folders: list[Path]) -> None:
    path = write_studies(folders, folders[0])
    assert path == folders[0] / "compare.html"
    page = Page(path.read_text(encoding="utf-8"))
    traces = page.payload["figures"]["aspect-0"]["data"]
    curve = next(t for t in traces if t["meta"]["label"] == "synthetic (1) · hc")
    assert curve["y"] == pytest.approx(CURVES["hc"])
    assert any(t["meta"]["label"].startswith("synthetic (2)") for t in traces)
    assert "title" in page.words
    assert "<script>alert(1)</script>" in page.words
    assert page.tags.count("script") == 3
    for folder in folders:
        assert load(folder).verdict.headline in page.words


def test_other_data_stands_apart(folders: list[Path]) -> None:
    one, two = (load(folder) for folder in folders)
    rows = [row.model_copy(update={"data_hash": "feedcafe1234"}) for row in two.rows]
    page = Page(render_studies([one, replace(two, rows=rows)], folders))
    assert sorted(page.payload["figures"]) == ["aspect-0", "aspect-1"]
    assert "comparable only inside a figure" in page.words
    assert "data d0d0cafe1234" in page.words
    assert "data feedcafe1234" in page.words
    assert "study.title '' '<script>alert(1)</script>'" in page.words


def test_one_study_is_refused(folders: list[Path]) -> None:
    with pytest.raises(DepthbenchError, match="names no other study"):
        write_studies([folders[0], folders[0]], folders[0])


def test_longer_training_and_other_held_out_text_are_said(folders: list[Path]) -> None:
    one, two = (load(folder) for folder in folders)
    longer = [row.model_copy(update={"tokens": 4_000_000}) for row in two.rows]
    page = Page(render_studies([one, replace(two, rows=longer)], folders))
    assert sorted(page.payload["figures"]) == ["aspect-0"]
    assert (
        "Trials differ in training tokens: 2M (synthetic (1)) and 4M (synthetic (2))." in page.words
    )
    config = {"train": {"validation_tokens": 99}}
    other = [row.model_copy(update={"config": config}) for row in two.rows]
    page = Page(render_studies([one, replace(two, rows=other)], folders))
    assert sorted(page.payload["figures"]) == ["aspect-0", "aspect-1"]
    assert "99 validation tokens a domain" in page.words
    for caution in one.verdict.cautions:
        assert caution in page.words


def test_the_same_study_on_a_faster_machine_keeps_its_own_times(tmp_path: Path) -> None:
    """Ids are digests of configs, so that both have the same."""
    rows = [
        row.model_copy(update={"tokens_per_second": 10 * row.tokens_per_second})
        for row in rich_rows()
        if row.tokens_per_second
    ]
    folders = [write_study(tmp_path / "slow"), write_study(tmp_path / "fast", rows)]
    page = Page(write_studies(folders, tmp_path).read_text(encoding="utf-8"))
    traces = page.payload["figures"]["aspect-0"]["data"]
    curves = {t["meta"]["label"]: t["meta"] for t in traces if t["mode"] != "markers"}
    slow, fast = (curves[f"synthetic ({number}) · hc"] for number in (1, 2))
    assert slow["x"]["seconds"] == [2e6 * layers / 64_000 for layers in (2, 4, 8, 16)]
    assert fast["x"]["seconds"] == pytest.approx([x / 10 for x in slow["x"]["seconds"]])
    # 6.25 s are all of the fast study at two layers, and a tenth of the slow one
    assert slow["y"]["seconds"][0] > fast["y"]["seconds"][0] + 0.3
