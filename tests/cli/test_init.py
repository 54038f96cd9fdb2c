"""A study file for a budget: it parses, its tokens take the time, nothing is written over."""

import json
import tomllib
from pathlib import Path

import pytest

from depthbench.cli.app import execute
from depthbench.errors import DepthbenchError
from depthbench.study.config import StudyConfig
from depthbench.study.draft import DraftConfig, Pace, draft_text, tokens_for
from tests.fits import fits

Capture = pytest.CaptureFixture[str]


def test_tokens_take_the_minutes() -> None:
    """Two workers, 4 ms for a token of every trial: 10 minutes are 300 k tokens."""
    pace = Pace(trials=12, seconds_per_token=0.004)
    assert tokens_for(10, pace, 2) == 300_000
    assert tokens_for(10.39, pace, 2) == 310_000
    with pytest.raises(DepthbenchError, match=r"each trial would see 3000 tokens.*Give 1 minute,"):
        tokens_for(0.1, pace, 2)


def test_the_file_is_the_study_that_was_asked_for() -> None:
    config = DraftConfig.parse(
        {
            "name": "mine",
            "designs": ("prenorm", "mhc"),
            "depths": (2, 6),
            "seeds": 2,
            "paths": ('a "quoted" \\ path',),
        }
    )
    text = draft_text(
        config, Path("mine.toml"), 120_000, Pace(trials=12, seconds_per_token=0.004), 2
    )
    study = StudyConfig.parse(tomllib.loads(text))
    assert study.name == "mine"
    assert [design.name for design in study.designs] == ["prenorm", "mhc"]
    assert study.shapes.depths == (2, 6)
    assert study.seeds == (0, 1)
    assert study.train.tokens == 120_000
    assert [str(path) for path in study.data.paths] == ['a "quoted" \\ path']
    assert "12 trials of 120k training tokens each" in text
    assert "2 at once: 4 min" in text


def test_the_command_writes_a_study_that_plans(tmp_path: Path, capsys: Capture) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"Line {n} of a short text." for n in range(4000)))
    file = tmp_path / "mine.toml"
    asked = ["init", str(file), "--designs", "prenorm", "--depths", "2", "--params", "100k"]
    asked += ["--minutes", "60", "--data", str(text), "--json"]
    assert execute(asked) == 0
    data = json.loads(capsys.readouterr().out)
    fits("drafted", data)
    assert data["trials"] == 3
    assert 0.9 * 3600 < data["seconds"] <= 3600
    study = StudyConfig.parse(tomllib.loads(file.read_text(encoding="utf-8")))
    assert study.train.tokens == data["tokens"]
    before = file.read_text(encoding="utf-8")
    assert execute(asked) == 2
    assert "is there already" in capsys.readouterr().err
    assert file.read_text(encoding="utf-8") == before


def test_what_a_file_cannot_hold_is_escaped_or_refused(tmp_path: Path) -> None:
    """A path with a line break and an escape character is a path all the same."""
    odd = 'a\nb\x1b\x7f".txt'
    config = DraftConfig(name="mine", paths=(odd,))
    text = draft_text(
        config, tmp_path / "mine.toml", 100_000, Pace(trials=1, seconds_per_token=1.0), 2
    )
    assert "\x1b" not in text
    assert StudyConfig.parse(tomllib.loads(text)).data.paths == (odd,)


def test_a_file_that_cannot_be_written_is_refused_at_once(tmp_path: Path, capsys: Capture) -> None:
    for file, said in (
        (tmp_path / "gone" / "mine.toml", "gone is no folder that can be written to."),
        (tmp_path / ("m" * 300), "cannot be written: File name too long."),
    ):
        assert execute(["init", str(file)]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert said in line
