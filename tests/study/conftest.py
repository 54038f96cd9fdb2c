"""Folders for the tests of Ray."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.small import write_text


@pytest.fixture(scope="module")
def text_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the text."""
    folder = tmp_path_factory.mktemp("ray")
    write_text(folder)
    return folder


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Temporary folder of the clusters of a test, named in the command lines of their processes."""
    with tempfile.TemporaryDirectory(prefix="db-") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setenv("RAY_TMPDIR", folder)
        yield folder
