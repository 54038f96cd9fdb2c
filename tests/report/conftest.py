"""One rich synthetic report for the tests that only read it."""

from pathlib import Path

import pytest

from depthbench.report import ReportFiles, write_report
from tests.report.synthetic import write_study


@pytest.fixture(scope="session")
def rich_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_study(tmp_path_factory.mktemp("runs") / "synthetic", title="A test study")


@pytest.fixture(scope="session")
def rich_report(rich_folder: Path) -> ReportFiles:
    return write_report(rich_folder, published=True)
