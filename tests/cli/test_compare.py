"""`depthbench compare`: from the command line to page, figures and words."""

import json
from pathlib import Path

import pytest

from depthbench.cli.app import execute
from depthbench.study.contrast import Contrast
from tests.fits import fits
from tests.report.page import Page
from tests.small import write_text

Capture = pytest.CaptureFixture[str]
TINY = ["shape.layers=2", "shape.width=16", "shape.heads=2", "shape.ffn=24", "train.length=16"]
SHORT = [*TINY, "train.sequences=4", "train.tokens=512", "train.validation_tokens=256"]
ATTACK = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compare")
    write_text(folder)
    return folder


@pytest.fixture(autouse=True)
def _cache(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(root / "cache"))
    monkeypatch.setenv("COLUMNS", "120")


def command(root: Path, *sides: str) -> list[str]:
    text = f'data.paths=["{root / "words.txt"}"]'
    return ["compare", *sides, text, *SHORT, "--out", str(root / "runs"), "--workers", "2"]


@pytest.fixture(scope="module")
def done(root: Path) -> Path:
    """Folder of a comparison of two designs over three seeds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEPTHBENCH_CACHE", str(root / "cache"))
        assert execute(command(root, "prenorm", "hc", "--seeds", "3", "--window", "2")) == 0
    return root / "runs" / "prenorm-vs-hc"


def result(folder: Path) -> Contrast:
    return Contrast.parse(json.loads((folder / "comparison.json").read_text()))


def test_everything_lies_in_one_folder(done: Path) -> None:
    names = {path.name for path in done.iterdir()} - {".lock"}
    assert names == {
        "compare.toml",
        "status.json",
        "results.jsonl",
        "trials",
        "comparison.json",
        "comparison.html",
        "figures",
    }
    figures = {path.name for path in (done / "figures").iterdir()}
    assert figures == {"comparison.png", "comparison.svg"}
    assert len(list((done / "trials").iterdir())) == 6


def test_again_nothing_is_trained_and_the_result_is_printed(
    root: Path, done: Path, capsys: Capture
) -> None:
    rows = (done / "results.jsonl").read_bytes()
    arguments = command(root, "prenorm", "hc", "--seeds", "3", "--window", "2")
    assert execute([*arguments, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    fits("compared", answer)
    assert answer.pop("report") == str(done / "comparison.html")
    assert Contrast.parse(answer) == result(done)
    assert execute(arguments) == 0
    out = " ".join(capsys.readouterr().out.split())
    found = result(done)
    assert found.lead is not None
    assert " ".join(found.sentence.split()) in out
    assert f"{found.lead.bits_per_byte.mean:+.3f}"[:6] in out
    assert f"{found.a.budget.parameters:,} {found.b.budget.parameters:,}" in out
    assert (done / "results.jsonl").read_bytes() == rows


def test_the_page_holds_the_numbers(done: Path) -> None:
    page, found = Page((done / "comparison.html").read_text()), result(done)
    figures = page.payload["figures"]
    signals = {"gradient_norm", "state_variance", "neighbour_cosine"}
    assert set(figures) == {"difference", "loss"} | signals
    assert found.training is not None
    low, high, mean = figures["difference"]["data"]
    assert mean["y"] == list(found.training.mean)
    assert (low["y"], high["y"]) == (list(found.training.low), list(found.training.high))
    assert high["fill"] == "tonexty"
    assert [trace["y"] for trace in figures["loss"]["data"]] == [
        list(found.training.a),
        list(found.training.b),
    ]
    for signal, points in found.observations.signals().items():
        assert [trace["y"] for trace in figures[signal]["data"]] == [
            list(points[-1].a),
            list(points[-1].b),
        ]
    assert found.sentence in page.words
    for text in (*found.warnings, *found.facts):
        assert " ".join(text.split()) in page.words
    # hc was narrowed to fit, and the settings that differ are listed
    assert "shape.ffn 24" in page.words
    assert "design.name prenorm hc" in page.words
    assert page.addresses == []
    assert page.handlers == []


def test_words_of_the_user_do_nothing_in_the_page(
    root: Path, tmp_path: Path, capsys: Capture
) -> None:
    side = tmp_path / "a.toml"
    side.write_text(f"learning_rate = 0.01\nname = '''{ATTACK}'''\n")
    # a name that no folder may have is refused before anything else
    assert execute([*command(root, "prenorm", str(side))]) == 2
    capsys.readouterr()
    odd = tmp_path / "<img src=x onerror=alert(2)>.toml"
    odd.write_text("learning_rate = 0.01\n")
    assert execute([*command(root, "prenorm", str(odd), "--seeds", "1")]) == 0
    [folder] = (root / "runs").glob("prenorm-vs-img*")
    html = (folder / "comparison.html").read_text()
    assert "<img" not in html
    page = Page(html)
    assert page.handlers == []
    assert "one seed, no interval" in page.words


@pytest.mark.parametrize(
    ("sides", "words"),
    [
        (["prenorm", "hc", "--no-fit"], "unequal budgets: prenorm has"),
        (["prenorm", "prenorm"], "are the same run"),
        (["prenorm", "prenrm"], "did you mean 'prenorm'"),
        (["prenorm"], "begins with no design"),
        (["prenorm", "hc", "--seeds", "0"], "seeds"),
        (["prenorm", "hc", "--tolerance", "-1"], "--tolerance"),
        (["prenorm", "hc", "--device", "tpu"], "unknown device 'tpu'"),
    ],
)
def test_what_is_refused(sides: list[str], words: str, root: Path, capsys: Capture) -> None:
    assert execute(command(root, *sides)) == 2
    error = capsys.readouterr().err
    assert words in error.lower()
    assert len(error.splitlines()) == 1
