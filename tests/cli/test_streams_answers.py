"""What `depthbench streams` answers: of studies, of a part of an ablation, and side by side."""

import json
from pathlib import Path

import pytest
import tomli_w

from depthbench.cli.app import execute
from depthbench.probes.result import ProbeResult
from depthbench.probes.run import read_result
from depthbench.probes.study import trials_of
from tests.cli.test_streams import write_domain
from tests.report.page import Page
from tests.small import study_tables

Capture = pytest.CaptureFixture[str]
TEXT = ["--tokens", "2k", "--length", "64"]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of a design with one stream and one with four, in ``runs/small``."""
    folder = tmp_path_factory.mktemp("study")
    path = folder / "small.toml"
    sizes = [{"layers": 2, "width": 8, "heads": 2, "ffn": 16}]
    changes = {"search": {"learning_rates": [1e-2]}, "shapes": {"sizes": sizes}}
    path.write_text(tomli_w.dumps(study_tables(write_domain(folder, "text", 0), **changes)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEPTHBENCH_CACHE", str(folder / "cache"))
        assert execute(["run", str(path), "--out", str(folder / "runs"), "--workers", "1"]) == 0
    return folder / "runs" / "small"


@pytest.fixture(autouse=True)
def _here(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(study.parents[1] / "cache"))
    monkeypatch.chdir(study.parents[1])


@pytest.fixture
def trial(study: Path) -> Path:
    """The one with streams."""
    [row] = [one for one in trials_of(study) if one.label == "hc"]
    return Path("runs", "small", "trials", row.id)


def result_of(trial: Path, name: str) -> ProbeResult:
    return read_result(Path("runs", "small", "streams", trial.name, f"{name}.json"))


def test_a_study_is_no_model_and_the_trial_that_is_named_has_streams(
    trial: Path, capsys: Capture
) -> None:
    for command in (
        ["ablate", "runs/small", "--streams", "0"],
        ["merge", "runs/small", "--into", "2", "--out", "x"],
    ):
        capsys.readouterr()
        assert execute(["streams", *command]) == 2
        said = capsys.readouterr().err
        assert said == (
            f"depthbench: runs/small is a study. Name one of its trials, such as {trial}\n"
        )


@pytest.mark.slow
def test_results_of_a_study_are_reported_by_its_name_and_by_their_folder(
    trial: Path, capsys: Capture
) -> None:
    capsys.readouterr()
    if not Path("runs", "small", "streams").exists():
        assert execute(["streams", "report", "runs/small"]) == 2
        said = capsys.readouterr().err
        assert "none of its best trials was diagnosed. Run depthbench streams diagnose" in said
    assert execute(["streams", "ablate", str(trial), "--streams", "2", *TEXT]) == 0
    told = []
    for name in ("runs/small", "runs/small/streams", str(trial)):
        capsys.readouterr()
        assert execute(["streams", "report", name, "--json"]) == 0
        out, err = capsys.readouterr()
        assert ("1 of 2 trials were diagnosed" in err) == (name == "runs/small")
        told.append(json.loads(out))
    assert told[0] == told[1] == told[2]
    assert {one["probe"] for one in told[0]} >= {"verdict", "ablation_part"}


@pytest.mark.slow
def test_a_part_of_an_ablation_is_told_in_numbers_and_alone(trial: Path, capsys: Capture) -> None:
    whole = ["streams", "ablate", str(trial), "--ranges", "2", *TEXT]
    assert execute(whole) == 0
    capsys.readouterr()
    part = ["streams", "ablate", str(trial), "--streams", "1,3", "--layers", "1:2", *TEXT]
    assert execute(part) == 0
    said = " ".join(capsys.readouterr().out.split())
    found = result_of(trial, "ablation_part")
    table = result_of(trial, "ablation").matrix("zero_by_depth")
    assert table.columns == (0.0, 1.0)
    for stream in (1, 3):
        number = found.number(f"zero_{stream}_1_2")
        # the whole ablation says the same of this range
        assert number.value == pytest.approx(table.values[stream][1])
        assert number.low is not None
        told = f"{number.shown} {number.shown_span} %"
        assert f"stream {stream} set to zero in block 1 {told}" in said
    both = found.number("together")
    assert f"without streams 1 and 3 together in block 1 {both.shown} {both.shown_span} %" in said
    # nothing of the older one
    assert "everywhere" not in said
    assert "verdict" not in said
    assert execute([*part[:5], "--layers", ":", *TEXT]) == 0
    said = " ".join(capsys.readouterr().out.split())
    number = result_of(trial, "ablation_part").number("zero_3")
    assert f"stream 3 set to zero everywhere {number.shown} {number.shown_span} %" in said


@pytest.mark.slow
def test_what_is_kept_is_trained_on_too(trial: Path, capsys: Capture) -> None:
    asked = ["--streams", "1", "--keep", "0,2", "--layers", "0:1"]
    trained = ["--retrain", "--seeds", "2", "--steps", "2", *TEXT, "--out", "kept"]
    capsys.readouterr()
    assert execute(["streams", "ablate", str(trial), *asked, *trained]) == 0
    said = " ".join(capsys.readouterr().out.split())
    found = read_result(Path("kept", "retrained_part.json"))
    removals = [one["removal"] for one in found.options["rows"]]
    gone = [(tuple(one["streams"]), one["start"], one["stop"]) for one in removals if one]
    assert sorted(gone) == [((1,), 0, 1)] * 2 + [((1, 3), 0, 1)] * 2
    for key, which in (("1", "stream 1"), ("1_3", "streams 1 and 3")):
        number = found.number(f"retrained_0_1_of_{key}")
        hard = found.number(f"hard_0_1_of_{key}")
        assert number.shown_span.endswith(", ends over 2 seeds")
        assert f"Without {which} in block 0" in said
        assert f" {hard.shown} %" in said
        assert f" {number.shown} {number.shown_span} %" in said
    # hard and re-trained are lines of one figure
    page = Page(Path("kept", "report.html").read_text(encoding="utf-8"))
    [lines] = [
        [line["name"] for line in one["data"]]
        for one in page.payload["figures"].values()
        if one["data"][0]["meta"]["words"].startswith("stream 1 taken away")
        and one["data"][0]["type"] == "scatter"
    ]
    assert lines == ["at once", "trained on, mean and ends over 2 seeds"]
    capsys.readouterr()
    assert execute(["streams", "report", "nowhere/nothing"]) == 2
    assert "nowhere/nothing is not there" in capsys.readouterr().err
