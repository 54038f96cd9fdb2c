"""Weights & Biases offline, and what is said where it would ask for a login."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest

from depthbench.errors import DepthbenchError
from depthbench.files import read_lines
from depthbench.train.loop import Trial
from depthbench.train.trackers import listeners, parse_trackers
from depthbench.train.trackers.relay import flatten
from tests.small import make_dataset, trial_config

wandb = pytest.importorskip("wandb")
BLOCK = 32768


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """It reads its environment once."""
    yield
    wandb.teardown()


def records(path: Path) -> Iterator[Any]:
    """Records of an offline file: LevelDB's log format with a header of seven bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, parts = path.read_bytes(), 7, b""
    while place + 7 <= len(data):
        if BLOCK - place % BLOCK < 7:
            place += BLOCK - place % BLOCK
            continue
        size, kind = struct.unpack("<HB", data[place + 4 : place + 7])
        parts += data[place + 7 : place + 7 + size]
        place += 7 + size
        # a whole record, or the last part of one
        if kind in (1, 4):
            record = Record()
            record.ParseFromString(parts)
            yield record
            parts = b""


def history(path: Path) -> dict[int, dict[str, float]]:
    found = {}
    for record in records(path):
        if record.WhichOneof("record_type") == "history":
            items = {".".join(i.nested_key) or i.key: i.value_json for i in record.history.item}
            numbers = {key: json.loads(value) for key, value in items.items()}
            own = {key: v for key, v in numbers.items() if key[0] != "_" and "timing" not in key}
            found[record.history.step.num] = own
    return found


def test_offline_a_run_that_goes_on_is_one_run_with_every_value_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    dataset = make_dataset(tmp_path)
    config = trial_config(dataset, save_every=2)
    names = parse_trackers("wandb")
    folder = tmp_path / "run"
    for stop in (5, 99):
        asked = iter(range(1, 100))
        trial = Trial(config, dataset, folder, listeners(names))
        wish = lambda asked=asked, stop=stop: next(asked) >= stop  # noqa: E731
        outcome = trial.run(lambda *_: None, stop=wish, resume=True)
        assert outcome.notes == []
    # its own process may still be writing
    wandb.teardown()
    files = sorted((folder / "wandb").glob("offline-run-*/*.wandb"))
    assert len(files) == 2
    runs = [r.run for f in files for r in records(f) if r.WhichOneof("record_type") == "run"]
    assert len({run.run_id for run in runs}) == 1
    assert runs[0].run_group == "run"
    assert {run.project for run in runs} == {"depthbench"}
    settings = {one.key: json.loads(one.value_json) for one in runs[0].config.update}
    assert settings["learning_rate"] == config.learning_rate
    parts = [history(file) for file in files]
    assert sorted(map(sorted, parts)) == [[1, 2, 3, 4, 5], [6, 7, 8]]
    sent = parts[0] | parts[1]
    for record in read_lines(folder / "metrics.jsonl"):
        step = record.pop("step")
        assert sent[step] == flatten(record)


def test_without_a_key_it_is_refused_and_asks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path))
    with pytest.raises(DepthbenchError, match=r"no API key\. Set WANDB_MODE=offline"):
        parse_trackers("wandb")
    host = urlparse(wandb.setup().settings.base_url).hostname
    (tmp_path / "netrc").write_text(f"machine {host} login user password secret\n")
    (tmp_path / "netrc").chmod(0o600)
    assert parse_trackers("wandb") == ("wandb",)
