"""`depthbench probe`: where results and pages go, of one model, a study, and several models."""

import json
import shutil
from pathlib import Path

import pytest
import tomli_w

from depthbench.cli.app import execute
from depthbench.cli.probe import count_of
from depthbench.errors import DepthbenchError
from depthbench.probes.angular import Angular
from depthbench.probes.causal import Causal
from depthbench.probes.lens import Lens
from depthbench.probes.run import read_results
from depthbench.probes.study import trials_of
from tests.report.page import Page
from tests.small import study_tables, write_text

Capture = pytest.CaptureFixture[str]
OPTIONS = ["--probes", "causal", "--tokens", "96", "--length", "16"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("probe")
    path = folder / "small.toml"
    sizes = [{"layers": 2, "width": 8, "heads": 2, "ffn": 16}]
    changes = {"search": {"learning_rates": [1e-2]}, "shapes": {"sizes": sizes}}
    path.write_text(tomli_w.dumps(study_tables(write_text(folder), **changes)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEPTHBENCH_CACHE", str(folder / "cache"))
        assert execute(["run", str(path), "--out", str(folder / "runs"), "--workers", "1"]) == 0
    return folder


@pytest.fixture(autouse=True)
def _here(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(root / "cache"))
    monkeypatch.chdir(root)


def maps_of(page: Path) -> list[list[list[float | None]]]:
    figures = Page(page.read_text(encoding="utf-8")).payload["figures"]
    traces = [figure["data"][0] for figure in figures.values()]
    return [trace["z"] for trace in traces if trace["type"] == "heatmap"]


def test_a_study_stands_for_its_best_trials(root: Path, capsys: Capture) -> None:
    study = root / "runs" / "small"
    capsys.readouterr()
    assert execute(["probe", str(study), *OPTIONS]) == 0
    said = capsys.readouterr().out
    rows = trials_of(study)
    found = [read_results(study / "probes" / row.id) for row in rows]
    assert [[one.probe for one in results] for results in found] == [["causal"]] * len(rows)
    effects = [[list(line) for line in results[0].matrix("effect").values] for results in found]
    assert maps_of(study / "probes" / "report.html") == effects
    for row, effect in zip(rows, effects, strict=True):
        assert maps_of(study / "probes" / row.id / "report.html") == [effect]
    report = Page((study / "report.html").read_text(encoding="utf-8"))
    assert "Depth that is used" in report.words
    assert ": left out" not in report.words
    assert "not known" not in report.words
    shown = report.payload["maps"][0]["figures"]
    labels = [shown[n]["data"][0]["meta"]["label"] for n in sorted(shown)]
    assert labels == [row.label for row in rows] == ["prenorm", "hc"]
    pages = [line.split(": ")[1] for line in said.splitlines() if line.startswith("Report: ")]
    assert pages[-2:] == [str(study / "probes" / "report.html"), str(study / "report.html")]


def test_several_models_side_by_side(root: Path, capsys: Capture) -> None:
    study = root / "runs" / "small"
    trials = [str(study / "trials" / row.id) for row in trials_of(study)]
    out = root / "side"
    capsys.readouterr()
    assert execute(["probe", "--compare", *trials[:2], *OPTIONS, "--out", str(out), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [[one["probe"] for one in results] for results in answer] == [["causal"]] * 2
    assert len(maps_of(out / "report.html")) == 2
    assert len(maps_of(out / Path(trials[0]).name / "report.html")) == 1
    assert execute(["probe", "--compare", *trials[:2], *OPTIONS]) == 0
    assert len(maps_of(root / "runs" / "probes" / "comparison" / "report.html")) == 2


def test_two_models_in_one_folder_are_refused(root: Path, capsys: Capture) -> None:
    study = root / "runs" / "small"
    trial = str(study / "trials" / trials_of(study)[0].id)
    assert execute(["probe", trial, trial, *OPTIONS]) == 2
    assert "would both lie in" in capsys.readouterr().err


def test_two_studies_have_a_page_each(root: Path, capsys: Capture) -> None:
    study, other, out = root / "runs" / "small", root / "runs" / "other", root / "two"
    shutil.copytree(study, other)
    # the same trials, so one of them is enough to tell the studies apart
    first, second = trials_of(other)
    rows = (other / "results.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (other / "results.jsonl").write_text("".join(one for one in rows if second.id not in one))
    capsys.readouterr()
    assert execute(["probe", str(study), str(other), *OPTIONS, "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert len(maps_of(out / "small" / "report.html")) == 2
    assert len(maps_of(out / "other" / "report.html")) == 1
    assert len(maps_of(out / "other" / first.id / "report.html")) == 1
    assert not (out / "report.html").exists()
    assert f"Report: {out / 'other' / 'report.html'}" in said
    shutil.copytree(other, root / "else" / "small")
    named = [str(study), str(root / "else" / "small")]
    assert execute(["probe", *named, *OPTIONS, "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert f"would both lie in {out / 'small'}" in error
    assert "--out" in error


def test_the_page_shows_what_the_folder_holds_of_the_text(root: Path, capsys: Capture) -> None:
    study, out = root / "runs" / "small", root / "kept"
    trial = str(study / "trials" / trials_of(study)[0].id)

    def shown(probes: str, length: str) -> list[str]:
        asked = ["--probes", probes, "--tokens", "96", "--length", length, "--out", str(out)]
        capsys.readouterr()
        assert execute(["probe", trial, *asked, "--json"]) == 0
        assert [one["probe"] for one in json.loads(capsys.readouterr().out)] == probes.split(",")
        words = Page((out / "report.html").read_text(encoding="utf-8")).words
        titles = {"lens": Lens.title, "causal": Causal.title, "angular": Angular.title}
        return [name for name, title in titles.items() if title in words]

    assert shown("causal,lens", "16") == ["lens", "causal"]
    assert shown("lens", "16") == ["lens", "causal"]
    (out / "causal.json").write_text("{", encoding="utf-8")
    assert shown("angular", "16") == ["lens", "angular"]
    # of another text
    assert shown("angular", "8") == ["angular"]
    assert {one.name for one in out.glob("*.json")} == {"causal.json", "lens.json", "angular.json"}


def test_parts_of_a_model_of_ours_are_not_to_be_named(root: Path, capsys: Capture) -> None:
    study = root / "runs" / "small"
    trial = str(study / "trials" / trials_of(study)[0].id)
    for flag in ("blocks", "norm", "head"):
        assert execute(["probe", trial, *OPTIONS, f"--{flag}", "model.x"]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith(f"depthbench: --{flag} model.x: {trial} is no Hugging Face model")
        assert line.endswith(f"Leave --{flag} out")


@pytest.mark.parametrize("name", ["", " "])
def test_a_model_without_a_name(name: str, capsys: Capture) -> None:
    for command in (["probe", name], ["prune", name, "--keep", "1", "--out", "nowhere"]):
        assert execute(command) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert "names nothing. Name a trial of ours, a Hugging Face folder" in line


def test_a_model_with_an_endless_name(capsys: Capture) -> None:
    name = "x" * 5000
    for command in (["probe", name], ["probe", "--compare", name]):
        assert execute(command) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith(f"depthbench: {'x' * 200} … cannot be read: File name too long.")


def test_text_of_another_field(root: Path, capsys: Capture) -> None:
    lines = (json.dumps({"body": f"{n} fields of text to read. " * 4}) for n in "abcd")
    Path("fields.jsonl").write_text("\n".join(lines))
    trial = str(root / "runs" / "small" / "trials" / trials_of(root / "runs" / "small")[0].id)
    asked = [*OPTIONS, "--data", "fields.jsonl", "--out", "fields"]
    assert execute(["probe", trial, *asked]) == 2
    assert "has no field 'text'. It has: body. Set --text-field" in capsys.readouterr().err
    assert execute(["probe", trial, *asked, "--text-field", "body"]) == 0
    [result] = read_results(root / "fields")
    assert (result.text.origin, result.text.documents) == ("fields.jsonl", 4)


def test_tokens_are_numbers() -> None:
    assert [count_of(text) for text in ("4096", "64k", "1.5M", "2")] == [4096, 65536, 1572864, 2]
    with pytest.raises(DepthbenchError, match="tokens = 'many' is no number"):
        count_of("many")
    for few in ("0", "1", "-5"):
        with pytest.raises(DepthbenchError, match=f"tokens = '{few}': at least 2 .*--tokens 4096"):
            count_of(few)
