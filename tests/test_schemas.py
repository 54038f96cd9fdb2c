"""Schemas fit what the package writes."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from depthbench.cli.app import execute
from depthbench.report import write_report
from depthbench.schemas import DOCUMENTS, model_of, schema_of
from depthbench.train.config import TrialConfig
from depthbench.watch.place import Watched
from tests.fits import fits
from tests.report.probe_results import group
from tests.report.synthetic import rich_rows, write_study
from tests.small import SHAPE, TRAIN

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_schema_is_one(name: str) -> None:
    schema = schema_of(name)
    Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"urn:depthbench:{name}:{DOCUMENTS[name].version}"
    assert len(schema["properties"]) > 1


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_version_is_the_one_that_files_name(name: str) -> None:
    fields = model_of(name).model_fields
    for key in ("schema_version", "format"):
        if key in fields:
            assert fields[key].default == DOCUMENTS[name].version


def test_files_and_answers_fit(tmp_path: Path, capsys: Capture) -> None:
    folder = write_study(tmp_path / "study", rich_rows()[:9])
    for line in (folder / "results.jsonl").read_text(encoding="utf-8").splitlines():
        fits("row", json.loads(line))
    fits("verdict", json.loads(write_report(folder).verdict.read_text(encoding="utf-8")))
    fits("view", Watched(folder).look().resolved())
    for one in group("hc", 3):
        fits("probe", one.resolved())
    assert execute(["doctor", "--json"]) == 0
    fits("doctor", json.loads(capsys.readouterr().out))


def test_what_does_not_fit_is_found() -> None:
    row = rich_rows()[0].resolved()
    schema = Draft202012Validator(schema_of("row"))
    assert schema.is_valid(json.loads(json.dumps(row)))
    assert not schema.is_valid(row | {"status": "fine"})
    assert not schema.is_valid(row | {"unknown": 1})


def test_the_command_prints_them(capsys: Capture) -> None:
    assert execute(["schema"]) == 0
    listed = capsys.readouterr().out
    assert [name for name in DOCUMENTS if name not in listed] == []
    assert execute(["schema", "verdict"]) == 0
    assert json.loads(capsys.readouterr().out) == schema_of("verdict")
    assert execute(["schema", "verdct"]) == 2
    assert "did you mean 'verdict'?" in capsys.readouterr().err


@pytest.mark.parametrize("design", ["hc", "attnres", {"name": "block_attnres", "blocks": 4}])
@pytest.mark.parametrize("backbone", ["dense", "moe", "hybrid"])
def test_configs_of_every_kind_of_model_fit(design: str | dict[str, Any], backbone: str) -> None:
    """A schema of the base alone would refuse the options of each."""
    model = {"shape": SHAPE, "design": design, "backbone": backbone}
    given = {"model": model, "train": TRAIN, "learning_rate": 1e-3, "seed": 0, "data_hash": "a"}
    config = TrialConfig.parse(given)
    fits("trial", config.resolved())
    fits("trial", config.all_fields())
    with pytest.raises(ValidationError):
        fits("trial", config.resolved() | {"sead": 0})
