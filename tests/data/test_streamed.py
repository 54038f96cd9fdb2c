"""Hugging Face datasets, from a local folder of data files: the same code as by name."""

import builtins
from pathlib import Path
from typing import Any

import pytest

from depthbench.data.config import PrepareConfig
from depthbench.data.inputs import find_inputs
from depthbench.errors import DepthbenchError
from tests.data.test_scale import (
    UNIT,
    files,
    killed_at,
    make,
    prepare_folder,
    read_back,
    texts,
    write_jsonl,
    write_parquet,
)

pytest.importorskip("datasets", reason="the extra [data] is not installed")


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two Parquet files of one split, about four units of work, ten documents twice."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hf")
    folder = tmp_path / "corpus"
    folder.mkdir()
    write_parquet(folder / "train-0.parquet", texts(130))
    write_parquet(folder / "train-1.parquet", texts(130, 120))
    write_parquet(folder / "test-0.parquet", texts(40, 900))
    return folder


def test_a_stream_is_what_its_files_are(corpus: Path, tmp_path: Path) -> None:
    facts = make(tmp_path / "out", f"hf:{corpus}", workers=2, shard_tokens=5000).domains[0]
    train, validation = read_back(tmp_path / "out")
    assert sorted(train + validation) == sorted(texts(250))
    assert (facts.name, facts.documents, facts.duplicates) == ("corpus", 250, 10)
    again = make(tmp_path / "files", corpus / "train-*.parquet", shard_tokens=5000).domains[0]
    assert [shard.sha256 for shard in again.train] == [shard.sha256 for shard in facts.train]


def test_another_split_beside_files(corpus: Path, tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", texts(40))
    manifest = make(tmp_path / "out", source, f"hf:{corpus}::test")
    assert [(d.name, d.documents) for d in manifest.domains] == [("a", 40), ("corpus", 40)]
    assert manifest.origin["corpus"] == f"hf:{corpus}::test, split test"


def test_units_go_on_where_the_state_says(corpus: Path) -> None:
    (one,) = find_inputs(PrepareConfig(paths=(f"hf:{corpus}",)))
    units = list(one.units(UNIT))
    assert len(units) > 3
    for number, unit in enumerate(units[:-1]):
        rest = list(one.units(UNIT, number + 1, unit.state))
        expected = [list(u.sources[0].read()) for u in units[number + 1 :]]
        assert [list(u.sources[0].read()) for u in rest] == expected
    assert list(one.units(UNIT, len(units), units[-1].state)) == []


@pytest.mark.slow
def test_killed_in_a_stream(corpus: Path, tmp_path: Path) -> None:
    config = PrepareConfig(paths=(f"hf:{corpus}",), shard_tokens=8000, megabytes=0.018)
    prepare_folder(config, tmp_path / "calm", workers=1, unit_bytes=UNIT)
    assert killed_at(config, tmp_path / "out", 6, workers=2)
    prepare_folder(config, tmp_path / "out", workers=1, unit_bytes=UNIT)
    assert files(tmp_path / "out") == files(tmp_path / "calm")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("{}:sub", "cannot be read through datasets: BuilderConfig 'sub' not found"),
        ("{}::trian", r"cannot be read through datasets: Bad split: trian\. Available"),
        ("{}/none", "cannot be read through datasets"),
        ("", "is no dataset. Write hf:NAME"),
        ("a:b:c:d", "is no dataset. Write hf:NAME"),
    ],
)
def test_what_is_not_there(corpus: Path, tmp_path: Path, spec: str, message: str) -> None:
    with pytest.raises(DepthbenchError, match=message) as seen:
        make(tmp_path / "out", f"hf:{spec.format(corpus)}")
    assert "\n" not in str(seen.value)
    assert not (tmp_path / "out").exists()


def test_a_field_that_is_not_there(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(DepthbenchError, match=r"no field 'txt', did you mean 'text'\? It has: "):
        make(tmp_path / "out", f"hf:{corpus}", text_field="txt")


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "datasets":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        DepthbenchError, match=r"package datasets.*pip install 'depthbench\[data\]'"
    ):
        make(tmp_path / "out", "hf:some/name")
