"""``depthbench report``."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from depthbench.cli.app import execute
from depthbench.cli.report import register
from depthbench.errors import DepthbenchError
from depthbench.study.verdict import judge
from tests.report.synthetic import rich_rows, write_study


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    register(app)
    return app


def test_json_is_the_verdict_and_nothing_else(
    app: typer.Typer, rich_folder: Path, tmp_path: Path
) -> None:
    result = CliRunner().invoke(app, [str(rich_folder), "--json", "--out", str(tmp_path / "out")])
    assert result.exit_code == 0
    assert json.loads(result.stdout) == judge(rich_rows()).resolved()
    assert (tmp_path / "out" / "report.html").exists()


def test_words_end_with_the_path_of_the_report(app: typer.Typer, tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study", rich_rows()[:6])
    result = CliRunner().invoke(app, [str(folder), "--out", str(tmp_path)])
    assert result.exit_code == 0
    assert "prenorm is best at 8 layers" in " ".join(result.stdout.split())
    assert result.stdout.rstrip().endswith(f"Report: {tmp_path / 'report.html'}")


def test_help_has_an_example(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert "depthbench report runs/demo --published" in " ".join(result.stdout.split())


def test_a_missing_folder_is_an_error_of_the_user(app: typer.Typer, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [str(tmp_path / "nothing")])
    assert isinstance(result.exception, DepthbenchError)
    assert "no such folder" in str(result.exception)


def test_context_is_for_costs_to_serve(
    rich_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["report", str(rich_folder), "--context", "100"]) == 2
    assert "add --serve-on h100" in capsys.readouterr().err
