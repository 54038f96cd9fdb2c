"""Schemas fit what the package writes."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from depthbench.cli.app import execute
from depthbench.report import write_report
from depthbench.schemas import DOCUMENTS, model_of, schema_of
from depthbench.watch.place import Watched
from tests.fits import fits
from tests.report.probe_results import group
from tests.report.synthetic import rich_rows, write_study

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
