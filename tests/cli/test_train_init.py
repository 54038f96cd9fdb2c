"""`depthbench train --init`: training that begins with the weights of another run."""

import json
from pathlib import Path
from typing import Any

import pytest

from depthbench.cli.app import execute
from tests.cli.test_train import SHORT, _cache, _signals, arguments, root

__all__ = ["_cache", "_signals", "root"]

TRAIN = [one for one in SHORT if one.startswith("train.")]


def go_on(root: Path, out: Path, init: Path, *more: str) -> list[str]:
    given = [f'data.paths=["{root / "words.txt"}"]', *TRAIN, "learning_rate=1e-4", *more]
    return ["train", *given, "--init", str(init), "--out", str(out)]


def losses(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [one for one in map(json.loads, lines) if "train_loss" in one]


def test_another_design_goes_on_where_the_first_ended(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(arguments(root, tmp_path / "a", "learning_rate=1e-2")) == 0
    first = tmp_path / "a" / "run"
    written = ["convert", str(first), str(tmp_path / "hc"), "--to", "depthbench"]
    capsys.readouterr()
    assert execute([*written, "--design", "hc", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["upcycled"]
    assert told["largest"] < 1e-4
    assert told["promised"] == 1e-14
    assert execute(["cost", str(tmp_path / "hc"), "--context", "32", "--json"]) == 0
    [costs] = json.loads(capsys.readouterr().out)["rows"]
    assert (costs["label"], costs["model"]["shape"]["layers"]) == ("hc", 1)
    assert execute(go_on(root, tmp_path / "b", first)) == 0
    assert execute(go_on(root, tmp_path / "c", tmp_path / "hc")) == 0
    plain, streams = (losses(tmp_path / one / "run") for one in ("b", "c"))
    # bfloat16 products, where the machine has them, round the same sums in another order
    assert streams[0]["train_loss"] == pytest.approx(plain[0]["train_loss"], abs=0.02)
    assert plain[0]["train_loss"] < losses(first)[0]["train_loss"] - 0.2
    result = json.loads((tmp_path / "c" / "run" / "result.json").read_text())
    assert result["label"] == "hc"
    assert result["config"]["weights"]
    told = json.loads((tmp_path / "b" / "run" / "result.json").read_text())["config"]["weights"]
    assert told != result["config"]["weights"]
    assert "weights" not in json.loads((first / "config.json").read_text())


def test_the_same_command_goes_on_and_others_are_refused(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(arguments(root, tmp_path / "a")) == 0
    first = tmp_path / "a" / "run"
    assert execute(go_on(root, tmp_path / "b", first)) == 0
    before = (tmp_path / "b" / "run" / "metrics.jsonl").read_text()
    assert execute(go_on(root, tmp_path / "b", first)) == 0
    assert (tmp_path / "b" / "run" / "metrics.jsonl").read_text() == before
    capsys.readouterr()
    for more, said in {
        "design=hc": "fixes design too",
        "shape.layers=2": "fixes shape too",
    }.items():
        assert execute(go_on(root, tmp_path / "c", first, more)) == 2
        assert said in capsys.readouterr().err
    assert execute(go_on(root, tmp_path / "c", tmp_path)) == 2
    assert "config.json" in capsys.readouterr().err
    given = ["convert", str(first), str(tmp_path / "x"), "--to", "llama", "--design", "hc"]
    assert execute(given) == 2
    assert "a LLaMA is a pre-norm model" in capsys.readouterr().err


def test_what_is_refused_leaves_no_folder(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(go_on(root, tmp_path / "a", tmp_path / "nosuch")) == 2
    assert "nosuch" in capsys.readouterr().err
    assert not (tmp_path / "a" / "run").exists()
