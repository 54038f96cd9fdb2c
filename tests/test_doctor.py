"""What an installation lacks, and how fast the machine is."""

import importlib.metadata
import json
import tomllib
from pathlib import Path

import pytest

from depthbench import doctor
from depthbench.cli.app import execute

ROOT = Path(__file__).parents[1]


def test_every_extra_says_what_it_brings() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(doctor.BRINGS) == set(project["optional-dependencies"]) - {"dev", "bench"}


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ['pydantic>=2; extra == "data"', 'nothing-such>=1; extra == "data"', "torch>=2"]
    wanted += ['not-here; sys_platform == "nowhere" and extra == "data"', 'else; extra == "eval"']
    monkeypatch.setattr(importlib.metadata, "requires", lambda _: wanted)
    found = doctor.extra_of("data")
    assert found.missing == ("nothing-such",)
    assert found.install == "pip install 'depthbench[data]'"
    assert doctor.extra_of("ray").missing == ()


def test_the_speed_is_of_this_machine() -> None:
    """No processor multiplies slower than a GFLOP/s or faster than a PFLOP/s."""
    speed = doctor.measure_speed("cpu")
    assert 1e9 < speed.flops_per_second < 1e15
    assert 1e8 < speed.bytes_per_second < 1e13
    assert speed.dtype in ("float32", "bfloat16")


def test_the_command_answers_in_words_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["doctor"]) == 0
    text = capsys.readouterr().out
    assert f"torch {importlib.metadata.version('torch')}" in text
    assert "GFLOP/s" in text
    assert execute(["doctor", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["schema_version"] == 1
    assert data["threads"] == 1
    assert [one["name"] for one in data["extras"]] == list(doctor.BRINGS)
