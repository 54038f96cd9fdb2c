"""`depthbench run --dry-run`: nothing is trained, written or prepared without need."""

import json
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from depthbench.cli.app import execute
from tests.fits import fits
from tests.small import study_tables, write_text

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def study_file(folder: Path, **changes: Any) -> Path:
    path = folder / "study.toml"
    path.write_text(tomli_w.dumps(study_tables(write_text(folder), **changes)))
    return path


def answer(capsys: Capture, *arguments: str) -> dict[str, Any]:
    assert execute(["run", *arguments, "--dry-run", "--json"]) == 0
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    fits("study-cost", said)
    return said


def test_nothing_is_written_and_the_data_is_not_prepared(tmp_path: Path, capsys: Capture) -> None:
    study = study_file(tmp_path)
    said = answer(capsys, str(study), "--device-spec", "h100", "--price", "2.5")
    assert {path.name for path in tmp_path.iterdir()} == {"study.toml", "words.txt"}
    assert (said["trials"], said["finished"], said["tokens"]) == (6, 0, 6 * 512)
    assert said["fits"] is True
    assert said["money"] == pytest.approx(2.5 * said["device_hours"])
    assert said["device_hours"] > 0


def test_the_vocabulary_of_a_trained_bpe_needs_its_text(tmp_path: Path, capsys: Capture) -> None:
    study = study_file(tmp_path)
    changes = ['data.tokenizer="bpe"', "data.vocab=300"]
    said = answer(capsys, str(study), *changes)
    assert (tmp_path / "cache").is_dir()
    assert not (tmp_path / "runs").exists()
    assert {part["shape"]["vocab"] for part in said["parts"]} == {300}
    assert "The vocabulary needed the text" in " ".join(said["sentences"])


def test_after_the_study_times_are_those_that_were_measured(
    tmp_path: Path, capsys: Capture
) -> None:
    study = study_file(tmp_path, designs=["prenorm"], search={"learning_rates": [1e-2]})
    assert execute(["run", str(study)]) == 0
    capsys.readouterr()
    results = tmp_path / "runs" / "small" / "results.jsonl"
    before = results.read_bytes()
    said = answer(capsys, str(study), "seeds=[0,1]", "--price", "1")
    rows = [json.loads(line) for line in before.splitlines()]
    assert (said["trials"], said["finished"]) == (4, 2)
    assert {part["source"] for part in said["parts"]} == {"measured"}
    seconds = sum(512 / row["tokens_per_second"] for row in rows)
    assert said["seconds"] == pytest.approx(2 * seconds)
    assert said["money_to_go"] == pytest.approx(seconds / 3600)
    assert results.read_bytes() == before
    # on a described device the same two are finished
    assert answer(capsys, str(study), "--device-spec", "h100")["finished"] == 2


def test_the_table(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert execute(["run", str(study_file(tmp_path)), "--dry-run"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    rows = [line for line in lines if line[:1] in (["prenorm"], ["hc"])]
    assert [row[:5] for row in rows] == [
        ["prenorm", "1", "16", "2", "0"],
        ["prenorm", "2", "8", "1", "0"],
        ["hc", "1", "16", "2", "0"],
        ["hc", "2", "8", "1", "0"],
    ]


@pytest.mark.parametrize("option", ["--device-spec=h100", "--price=2"])
def test_options_of_a_dry_run_alone(tmp_path: Path, capsys: Capture, option: str) -> None:
    assert execute(["run", str(study_file(tmp_path)), option]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert option.split("=")[0] in err
    assert "add --dry-run" in err
    assert not (tmp_path / "runs").exists()


def test_an_unknown_device_is_named(tmp_path: Path, capsys: Capture) -> None:
    study = str(study_file(tmp_path))
    assert execute(["run", study, "--dry-run", "--device-spec", "h10"]) == 2
    assert "h100" in capsys.readouterr().err


def test_the_published_study_is_counted_before_its_data_is_there(capsys: Capture) -> None:
    said = answer(capsys, "published-400m", 'designs=["prenorm"]')
    assert {part["shape"]["vocab"] for part in said["parts"]} == {50280}
    assert [part["shape"]["width"] for part in said["parts"]][:3] == [1216, 1120, 1024]
    assert [part["trials"] for part in said["parts"]] == [1, 1, 4, 1, 1, 1, 1]
    steps = -(-8_100_000_000 // (512 * 2048))
    assert said["tokens"] == 10 * steps * 512 * 2048
    assert "its vocabulary is taken as the published one, 50280" in " ".join(said["sentences"])


def test_data_that_is_not_there_is_refused_without_a_published_shape(
    tmp_path: Path, capsys: Capture
) -> None:
    study = study_file(tmp_path)
    changes = ['data={prepared="nowhere"}', "--dry-run"]
    assert execute(["run", str(study), *changes]) == 2
    assert "nowhere" in capsys.readouterr().err
