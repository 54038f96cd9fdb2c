"""Trials through Ray, in a cluster that is started for them and shut down again."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from depthbench.files import read_lines
from depthbench.study.engine import Place, Running
from depthbench.study.plan import Planned
from depthbench.study.run import Study, open_study, train_study
from depthbench.study.store import Row
from tests.small import TRAIN, study_config, write_text

ON_RAY = Place("ray", workers=2)
TIMES = {"seconds", "tokens_per_second", "finished", "machine", "notes"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ray")
    write_text(folder)
    return folder


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Temporary folder of the clusters of a test, named in the command lines of their processes."""
    with tempfile.TemporaryDirectory(prefix="db-") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield folder


def opened(root: Path, out: str, place: Place, **changes: Any) -> Study:
    config = study_config(root / "words.txt", **changes)
    return open_study(config, root / out, cache=root / "cache", place=place)


def results(rows: list[Row]) -> dict[str, dict[str, Any]]:
    """All of the rows but what depends on clock and machine."""
    plain = (row.resolved() for row in rows)
    return {row["id"]: {k: v for k, v in row.items() if k not in TIMES} for row in plain}


def metrics(study: Study) -> dict[str, bytes]:
    files = study.folder.glob("trials/*/metrics.jsonl")
    return {path.parent.name: path.read_bytes() for path in files}


def processes_of(word: str) -> list[str]:
    """Command lines of processes that name ``word``."""
    listed = subprocess.run(
        ["ps", "-eo", "args"], capture_output=True, text=True, check=True
    ).stdout
    return [line for line in listed.splitlines() if word in line]


def test_a_study_has_the_rows_of_a_local_one_though_a_trial_was_killed(
    root: Path, short: str
) -> None:
    changes: dict[str, Any] = {
        "designs": ["prenorm"],
        "search": {"learning_rates": [1e-2]},
        "train": TRAIN | {"tokens": 64 * 60, "save_every": 5},
    }
    local = opened(root, "local", Place(), **changes)
    expected = train_study(local, place=Place(workers=2))
    killed: list[Running] = []

    def kill_once(running: list[Running], _: list[Planned]) -> None:
        for one in running:
            if one.pid is not None and not killed:
                os.kill(one.pid, signal.SIGKILL)
                killed.append(one)

    study = opened(root, "ray", ON_RAY, **changes)
    rows = train_study(study, place=ON_RAY, watch=kill_once)
    assert results(rows) == results(expected)
    assert metrics(study) == metrics(local)
    assert len(read_lines(study.store.path)) == 2
    notes = {row.id: row.notes for row in rows}
    reason = "tried again because its process was killed by signal 9 (out of memory?)"
    assert notes.pop(killed[0].planned.id) == [reason]
    assert list(notes.values()) == [[]]
    assert [row.machine for row in rows] == [row.machine for row in expected]
    assert list(study.folder.glob(".shared-*")) == []
    assert processes_of(short) == []
    assert list(Path(short).glob("db-*")) == []
