"""One rich synthetic report for the tests that only read it, and a browser to open it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from depthbench.report import ReportFiles, write_report
from tests.report.browser import browser_path
from tests.report.synthetic import write_study


@pytest.fixture(scope="session")
def rich_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_study(tmp_path_factory.mktemp("runs") / "synthetic", title="A test study")


@pytest.fixture(scope="session")
def rich_report(rich_folder: Path) -> ReportFiles:
    return write_report(rich_folder, published=True)


@pytest.fixture(scope="module")
def browser() -> Iterator:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as kinds:
        path = browser_path(kinds)
        if path is None:
            pytest.skip("no Chromium is installed, and playwright could not install one")
        opened = kinds.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()
