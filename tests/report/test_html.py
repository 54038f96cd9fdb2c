"""The HTML report: right numbers, no network, nothing from the user runs."""

import base64
import hashlib
import json
from pathlib import Path

import pytest

from depthbench.errors import DepthbenchError
from depthbench.files import append_line
from depthbench.report import ReportFiles, write_report
from depthbench.report.html import render
from depthbench.report.study import load
from depthbench.study.store import Store
from depthbench.study.verdict import judge
from tests.report.page import Page
from tests.report.synthetic import rich_rows, write_study

ATTACK = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def page(rich_report: ReportFiles) -> Page:
    return Page(rich_report.html.read_text(encoding="utf-8"))


def test_files_are_whole_and_nothing_is_left_over(rich_report: ReportFiles) -> None:
    names = {path.name for path in rich_report.html.parent.iterdir()}
    assert names == {
        "study.toml",
        "results.jsonl",
        "trials",
        "report.html",
        "verdict.json",
        "figures",
    }
    assert {path.name for path in (rich_report.html.parent / "figures").iterdir()} == {
        f"{name}.{kind}"
        for name in ("loss_by_aspect_ratio", "learning_rate_search", "training_curves")
        for kind in ("png", "svg")
    }
    assert sorted(rich_report.figures) == sorted((rich_report.html.parent / "figures").iterdir())
    verdict = json.loads(rich_report.verdict.read_text(encoding="utf-8"))
    assert verdict == judge(rich_rows()).resolved()
    assert rich_report.html.stat().st_size < 6_000_000


def test_interactive_figures_hold_the_measured_numbers(page: Page) -> None:
    traces = page.payload["figures"]["aspect"]["data"]
    curve = next(t for t in traces if t["meta"]["label"] == "hc" and "lines" in t["mode"])
    assert curve["x"] == [68, 24, 8.5, 3]
    assert curve["y"] == pytest.approx([2.250, 2.140, 2.130, 2.120])
    assert curve["error_y"]["array"] == pytest.approx([0.008] * 4)
    lost = [t for t in traces if t["marker"]["symbol"] == "x-thin"]
    assert [t["meta"]["label"] for t in lost] == ["deepnorm"]
    assert lost[0]["x"] == pytest.approx([3.0], rel=0.06)
    assert lost[0]["y"][0] > 2.428
    assert page.payload["figures"]["aspect"]["layout"]["xaxis"]["type"] == "log"
    low, high = page.payload["figures"]["aspect"]["layout"]["xaxis"]["range"]
    assert low < 0.4772 < 1.8325 < high  # log10 of 3 and 68: deeper to the left


def test_learning_rate_figure_marks_the_chosen_rate(page: Page) -> None:
    traces = page.payload["figures"]["search"]["data"]
    curve = next(t for t in traces if t["meta"]["label"] == "attnres")
    assert curve["x"] == [1e-3, 2e-3, 4e-3, 8e-3]
    assert curve["marker"]["size"] == [7, 7, 7, 13]
    crosses = [t["meta"]["label"] for t in traces if t["marker"]["symbol"] == "x-thin"]
    assert crosses == ["prenorm", "deepnorm"]


def test_training_figure_has_every_trial_of_the_curves(page: Page) -> None:
    traces = page.payload["figures"]["training"]["data"]
    assert len(traces) == 48  # 4 designs × 4 shapes × 3 seeds
    assert {t["meta"]["shown"]["depth"] for t in traces if t["visible"]} == {16}
    finished = next(t for t in traces if t["meta"] == {"label": "hc", "shown": {"depth": 16}})
    assert finished["x"][-1] == 60 * 16 * 2048


def test_published_curves_are_apart_and_marked(page: Page, rich_folder: Path) -> None:
    traces = page.payload["figures"]["published"]["data"]
    hc = next(t for t in traces if t["meta"]["label"] == "hc")
    assert hc["y"] == [2.729, 2.716, 2.702, 2.714, 2.700, 2.691, 2.682]
    assert hc["x"] == pytest.approx([76.0, 56.0, 42.667, 34.286, 28.0, 19.048, 9.143], abs=1e-3)
    ours = {t["meta"]["label"] for t in page.payload["figures"]["aspect"]["data"]}
    assert ours == {"prenorm", "hc", "attnres", "deepnorm"}
    assert "published, arXiv 2609.32534, 400M parameters" in page.words
    assert "nats per token of another data set" in page.words
    without = Page(render(load(rich_folder), with_published=False))
    assert "published" not in without.payload["figures"]
    assert "arXiv" not in without.words


def test_every_trial_is_in_the_table_with_its_reason(page: Page, rich_report: ReportFiles) -> None:
    html = rich_report.html.read_text(encoding="utf-8")
    table = html[html.index("All trials") : html.index("Provenance")]
    assert table.count("<tr data-label=") == len(rich_rows()) == 60
    assert table.count('class="diverged"') == 3
    assert table.count('class="failed"') == 1
    assert table.count("loss not finite at step 310") == 2
    assert "worker was killed" in table
    assert "56 of 60" in page.words
    assert "2.120 ± 0.008" in page.words


def test_words_provenance_and_config_are_shown(page: Page) -> None:
    verdict = judge(rich_rows())
    for sentence in (verdict.headline, *verdict.sentences()):
        assert sentence in page.words
    for fact in ("d0d0cafe1234", "0123abc", "test processor", "2.9.0", "A test study"):
        assert fact in page.words
    assert 'data_hash = "d0d0cafe1234"' in page.words


def test_nothing_is_loaded_from_a_network(page: Page) -> None:
    assert page.addresses == []
    assert "link" not in page.tags
    assert "default-src 'none'" in page.policy
    own = page.scripts[-1]
    assert "http" not in own
    assert "fetch(" not in own


def test_policy_allows_exactly_the_inlined_scripts(page: Page) -> None:
    hashes = [
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in page.scripts
    ]
    assert len(hashes) == 2
    assert f"script-src {' '.join(hashes)};" in page.policy


def test_everything_from_the_user_is_escaped(tmp_path: Path) -> None:
    rows = rich_rows()
    rows = [
        row.model_copy(
            update={
                "study": ATTACK,
                "label": ATTACK if row.label == "hc" else row.label,
                "reason": ATTACK if row.reason else None,
                "notes": [ATTACK],
                "domains": dict.fromkeys([ATTACK], row.loss) if row.loss else {},
                "machine": row.machine.model_copy(update={"host": ATTACK, "commit": ATTACK}),
            }
        )
        for row in rows
    ]
    folder = write_study(tmp_path / "study", rows, title=ATTACK)
    html = render(load(folder), with_published=True)
    page = Page(html)
    assert html.count("alert(1)") > 50
    assert "<script>alert" not in html
    assert "<img" not in html
    assert "img" not in page.tags
    assert page.handlers == []
    assert page.tags.count("script") == 3
    assert not any("alert(" in script for script in page.scripts)
    names = {trace["name"] for trace in page.payload["figures"]["aspect"]["data"]}
    assert not any("<" in name for name in names)
    hover = page.payload["figures"]["training"]["data"]
    assert not any("<img" in trace["text"] for trace in hover)
    assert ATTACK in page.words


def test_a_path_that_is_a_script_shows_as_text(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study", rich_rows()[:6])
    toml = folder / "study.toml"
    text = toml.read_text(encoding="utf-8")
    assert "paths = []" in text
    toml.write_text(text.replace("paths = []", f"paths = ['{ATTACK}.txt']"), encoding="utf-8")
    html = render(load(folder))
    page = Page(html)
    assert f"{ATTACK}.txt" in page.words
    assert "<script>alert" not in html
    assert page.tags.count("script") == 3


def test_a_study_with_some_trials_says_how_many(tmp_path: Path) -> None:
    rows = rich_rows()[:3]
    folder = write_study(tmp_path / "study", rows)
    study = load(folder)
    # of 60: 13 of the search and 44 that it decides
    assert study.unfinished == 57
    page = Page(render(study))
    assert "3 of 60" in page.words
    assert "57 trials of its plan did not finish yet" in page.words


def test_rows_of_another_config_are_left_out_and_counted(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study")
    stray = rich_rows()[0].model_copy(update={"id": "0123456789ab", "label": "stray"})
    Store(folder).add(stray)
    study = load(folder)
    assert study.left_out == 1
    assert [design.label for design in study.verdict.designs] == [
        "prenorm",
        "hc",
        "attnres",
        "deepnorm",
    ]


def test_another_folder_leaves_the_study_untouched(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study", rich_rows()[:6])
    before = {path.name for path in folder.iterdir()}
    files = write_report(folder, out=tmp_path / "elsewhere")
    assert "Published curves" not in Page(files.html.read_text(encoding="utf-8")).words
    assert files.html == tmp_path / "elsewhere" / "report.html"
    assert all(path.parent == tmp_path / "elsewhere" / "figures" for path in files.figures)
    assert all(path.exists() for path in (*files.figures, files.html, files.verdict))
    assert {path.name for path in folder.iterdir()} == before


def test_a_report_that_is_written_again_keeps_published_curves(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study", rich_rows()[:6])
    (folder / "report.html").write_text(render(load(folder), with_published=True))
    again = write_report(folder)
    assert "Published curves" in Page(again.html.read_text(encoding="utf-8")).words
    asked = write_report(folder, published=False)
    assert "Published curves" not in Page(asked.html.read_text(encoding="utf-8")).words


def refused(folder: Path) -> str:
    with pytest.raises(DepthbenchError) as caught:
        write_report(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_bad_folders_are_one_clear_line(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study", [])
    assert "did you mean 'study'?" in refused(tmp_path / "sudy")
    assert "is a file" in refused(folder / "study.toml")
    assert "it has no study.toml" in refused(tmp_path)
    assert "no trial has finished yet (0 of 60)" in refused(folder)
    assert not (folder / "report.html").exists()
    assert not (folder / "figures").exists()


def test_bad_rows_are_one_clear_line(tmp_path: Path) -> None:
    row = rich_rows()[0]
    newer = write_study(tmp_path / "newer", [])
    append_line(newer / "results.jsonl", row.resolved() | {"schema_version": 2})
    assert "row 1: schema_version = 2, but this depthbench reads 1" in refused(newer)
    binary = write_study(tmp_path / "binary", [])
    (binary / "results.jsonl").write_bytes(b"\xff\xfe\n{}\n")
    assert "results.jsonl line 1 is no valid JSON" in refused(binary)
