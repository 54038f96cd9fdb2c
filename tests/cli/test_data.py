"""``depthbench data``."""

import json
import math
import os
from pathlib import Path

import pytest
import tomli_w

from depthbench.cli.app import execute
from depthbench.cli.data import shown
from tests.data.test_scale import texts, write_jsonl
from tests.fits import fits
from tests.small import TRAIN

Capture = pytest.CaptureFixture[str]
SIZES = {"layers": 1, "width": 16, "heads": 2, "ffn": 24}


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def source(tmp_path: Path) -> str:
    return str(write_jsonl(tmp_path / "words.jsonl", ["\x1b[31m\\red " + t for t in texts(60)]))


def test_prepare_inspect_and_train(source: str, capsys: Capture, tmp_path: Path) -> None:
    assert execute(["data", "prepare", source, "--out", "out", "--workers", "1", "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    prepared = json.loads(out)
    fits("prepared", prepared)
    assert (prepared["documents"], prepared["vocab"]) == (60, 257)
    assert execute(["data", "prepare", source, "--out", "out"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith("out: 60 documents, ")
    assert prepared["hash"] in out

    assert execute(["data", "inspect", "out", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    fits("inspected", found)
    assert found["ln_vocab"] == pytest.approx(math.log(257))
    assert [side["side"] for side in found["sides"]] == ["train", "validation"]
    assert sum(side["documents"] for side in found["sides"]) == 60
    assert found["sides"][0]["sample"].startswith("\x1b[31m\\red ")
    domain = prepared["domains"][0]
    for name in ("unigram_nats_per_token", "unigram_bits_per_byte"):
        assert found["sides"][0][name] == pytest.approx(domain[name], rel=1e-12)
    assert execute(["data", "inspect", "out"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "words, train: \\x1b[31m\\\\red " in out
    assert "ln(V) = 5.5491 nats" in out

    study = {"name": "s", "designs": ["prenorm"], "shapes": {"sizes": [SIZES]}}
    tables = study | {"search": {"learning_rates": [1e-2]}, "train": TRAIN}
    Path("study.toml").write_text(tomli_w.dumps(tables))
    code = execute(["run", "study.toml", "data.prepared=out", "--workers", "1", "--json"])
    assert code == 0
    rows = [json.loads(line) for line in Path("runs/s/results.jsonl").read_text().splitlines()]
    assert [row["data_hash"] for row in rows] == [prepared["hash"]]
    fits("concluded", json.loads(capsys.readouterr().out))
    trial = f"runs/s/trials/{rows[0]['id']}"
    assert execute(["generate", trial, "--tokens", "2", "--json"]) == 0
    fits("generated", json.loads(capsys.readouterr().out))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prepare", "none.txt", "--out", "x"], "no file or folder none.txt"),
        (["prepare", "{}", "--out", "x", "--vocab", "12"], "vocab = 12: "),
        (["prepare", "{}", "--out", "x", "--validation-fraction", "0.9"], "validation_fraction"),
        (["prepare", "{}", "--out", "x", "--tokenizer", "byte"], "did you mean 'bytes'"),
        (["prepare", "{}"], "Missing option '--out'"),
        (["prepare", "{}", "--out", "{}"], "cannot create the folder"),
        (["inspect", "none"], "none is no folder. Prepare the data again, or name a folder"),
        ([], "Missing command"),
    ],
)
def test_refused_in_one_line(
    source: str, capsys: Capture, tmp_path: Path, arguments: list[str], message: str
) -> None:
    before = sorted(tmp_path.iterdir())
    assert execute(["data", *(part.format(source) for part in arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err
    assert sorted(tmp_path.iterdir()) == before


def test_a_full_disk_is_named(
    source: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("os.fsync", full)
    assert execute(["data", "prepare", source, "--out", "out"]) == 2
    assert "No space left on device. Free some space" in capsys.readouterr().err
    assert not Path("out").exists()


@pytest.mark.parametrize("name", ["prepare", "inspect"])
def test_help_has_an_example(capsys: Capture, name: str) -> None:
    assert execute(["data", name, "--help"]) == 0
    assert f"depthbench data {name}" in capsys.readouterr().out.partition("Example")[2]


def test_what_cannot_be_printed_is_escaped() -> None:
    assert shown("a\n\x1b[2J\u200e\\é∑ ") == "a\\n\\x1b[2J\\u200e\\\\é∑ "
