"""trackio: its own database holds what metrics.jsonl says."""

from pathlib import Path
from typing import Any

import pytest

from depthbench.files import read_lines
from depthbench.train.loop import Trial
from depthbench.train.trackers import listeners, parse_trackers
from depthbench.train.trackers.relay import flatten
from tests.small import make_dataset, trial_config

trackio = pytest.importorskip("trackio")
PROJECT = "depthbench-test"


def test_a_run_that_goes_on_is_one_run_with_every_value_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # where it writes is decided when it is imported
    from trackio.sqlite_storage import SQLiteStorage

    monkeypatch.setenv("TRACKIO_PROJECT", PROJECT)
    trackio.delete_project(PROJECT, force=True)
    capsys.readouterr()
    dataset = make_dataset(tmp_path)
    config = trial_config(dataset, save_every=2)
    names = parse_trackers("trackio")
    folder = tmp_path / "run"
    for stop in (5, 99):
        asked = iter(range(1, 100))
        trial = Trial(config, dataset, folder, listeners(names))
        wish = lambda asked=asked, stop=stop: next(asked) >= stop  # noqa: E731
        outcome = trial.run(lambda *_: None, stop=wish, resume=True)
        assert outcome.notes == []
    # standard output belongs to --json
    assert capsys.readouterr().out == ""
    [run] = SQLiteStorage.get_run_records(PROJECT)
    assert config.id in run["name"]
    logs: list[dict[str, Any]] = SQLiteStorage.get_logs(PROJECT, run["name"])
    assert [one["step"] for one in logs] == list(range(1, 9))
    for record, sent in zip(read_lines(folder / "metrics.jsonl"), logs, strict=True):
        record.pop("step")
        own = {
            key: value
            for key, value in sent.items()
            if key not in ("step", "timestamp") and "timing" not in key
        }
        assert own == flatten(record)
    trackio.delete_project(PROJECT, force=True)
