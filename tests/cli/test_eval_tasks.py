"""`depthbench eval tasks`: trained, tested, in rows, results, figure and report."""

import json
from pathlib import Path

import pytest

from depthbench.cli.app import execute
from depthbench.evals.accuracy import wilson
from depthbench.report.task_figure import lines_of
from depthbench.study.store import Store

Capture = pytest.CaptureFixture[str]
SMALL = [
    *("--task", "brackets", "--ks", "1,2", "--designs", "prenorm,hc", "--params", "40k"),
    *("--depths", "1,2", "--seeds", "2", "--questions", "64", "--tests", "20"),
    *("--tokens", "1k", "--sequences", "8", "--workers", "1"),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a study of eight tiny models."""
    folder = tmp_path_factory.mktemp("tasks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEPTHBENCH_CACHE", str(folder / "cache"))
        assert execute(["eval", "tasks", *SMALL, "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def _cache(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(root / "cache"))


@pytest.mark.slow
def test_rows_results_figure_and_report(root: Path) -> None:
    folder = root / "brackets"
    rows = Store(folder).rows()
    assert len(rows) == 8
    assert {(row.label, row.shape.layers, row.seed) for row in rows} == {
        (label, layers, seed) for label in ("prenorm", "hc") for layers in (1, 2) for seed in (0, 1)
    }
    for row in rows:
        assert row.loss is not None
        # only the answers count
        questions = sum(one.questions for one in row.accuracy.values())
        assert row.loss.tokens == sum(
            int(name[-1]) * one.questions for name, one in row.accuracy.items()
        )
        for one in row.accuracy.values():
            assert one.share == one.right / one.questions
            assert (one.low, one.high) == wilson(one.right, one.questions)
        kept = json.loads((folder / "results" / row.id / "eval.json").read_text(encoding="utf-8"))
        assert [m["name"] for m in kept["measured"]][-1] == "brackets, all k"
        assert kept["measured"][-1]["counts"]["documents"] == questions
        assert kept["measured"][-1]["policy"]["trained_on"] == row.data_hash
    lines = lines_of(rows)
    assert {(line.label, line.layers, line.seeds) for line in lines} == {
        (label, layers, 2) for label in ("prenorm", "hc") for layers in (1, 2)
    }
    first = [row for row in rows if (row.label, row.shape.layers) == ("hc", 2)]
    [line] = [line for line in lines if (line.label, line.layers) == ("hc", 2)]
    assert line.means[0] == sum(row.accuracy["k = 1"].share for row in first) / 2
    assert (folder / "accuracy.png").stat().st_size > 1000
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "Answers that are right, by steps" in page
    assert "brackets, k = 2, share" in page


@pytest.mark.slow
@pytest.mark.usefixtures("_cache")
def test_a_trial_under_a_program_and_the_same_command_again(root: Path, capsys: Capture) -> None:
    folder = root / "brackets"
    [trial, *_] = [row for row in Store(folder).rows() if row.shape.layers == 2]
    capsys.readouterr()
    place = folder / "trials" / trial.id
    assert execute(["eval", str(place), "--task", "--sweep", "skip", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["measured"]
    assert {one["program"] for one in found} == {"plain", "skip 0", "skip 1"}
    plain = found[0]["numbers"][0]
    assert plain["value"] == trial.accuracy["k = 1"].share
    before = (folder / "results.jsonl").read_bytes()
    assert execute(["eval", "tasks", *SMALL, "--out", str(root)]) == 0
    assert (folder / "results.jsonl").read_bytes() == before
    assert "With blocks rearranged" in (folder / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--task", "sorting"], "task = 'sorting'"),
        (["--ks", "one"], "ks = 'one'"),
        (["--learning-rate", "fast"], "learning-rate = 'fast'"),
        (["--designs", "prenom"], "did you mean 'prenorm'?"),
        (["--ks", "9"], "k = 9 goes around all 8 letters"),
    ],
)
def test_bad_input(given: list[str], words: str, tmp_path: Path, capsys: Capture) -> None:
    assert execute(["eval", "tasks", *given, "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
