"""`depthbench eval` and `depthbench generate` under programs, on a trained run."""

import json
import math
from pathlib import Path

import pytest
import torch

from depthbench.cli.app import execute
from depthbench.probes.load import open_model
from depthbench.train.load import load_trial
from tests.small import TRAIN, write_text

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text, pairs and a trained run of two blocks."""
    folder = tmp_path_factory.mktemp("eval")
    text = write_text(folder)
    pairs = [{"q": "depth ", "a": "width"}, {"q": "a ", "a": "norm"}]
    (folder / "set.jsonl").write_text("\n".join(map(json.dumps, pairs)), encoding="utf-8")
    settings = [f"train.{name}={json.dumps(value)}" for name, value in TRAIN.items()]
    shape = ["shape.layers=2", "shape.width=16", "shape.heads=2", "shape.ffn=24"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEPTHBENCH_CACHE", str(folder / "cache"))
        given = [*settings, *shape, f'data.paths=["{text}"]']
        assert execute(["train", *given, "--out", str(folder / "runs")]) == 0
    return folder


@pytest.fixture(autouse=True)
def _cache(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(root / "cache"))


def answered(capsys: Capture, *arguments: object) -> dict:
    capsys.readouterr()
    assert execute(["eval", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_own_text_own_results(root: Path, capsys: Capture) -> None:
    """Its own validation text without --data; results lie beside it and grow by measurement."""
    run = root / "runs" / "run"
    first = answered(capsys, run, "--length", 32)
    [one] = first["measured"]
    assert (one["kind"], one["name"], one["program"]) == ("domain", "words", "plain")
    assert one["policy"]["stride"] == 16
    assert one["counts"]["bytes"] == one["counts"]["tokens"]
    reader = open_model(run).reader()
    assert (reader.trained, reader.known, reader.words) == (TRAIN["length"], 257, 257)
    answered(capsys, run, "--length", 32, "--skip", 1)
    answered(capsys, run, "--length", 32)
    kept = json.loads((run / "results" / "eval.json").read_text(encoding="utf-8"))
    assert kept["schema_version"] == 1
    assert [m["program"] for m in kept["measured"]] == ["plain", "skip 1"]
    assert kept["measured"][0]["numbers"] == one["numbers"]
    assert kept["subject"] == first["subject"]


TWENTY = b"\xffdepth \xc3( is \xe2\x82! 20."
"""Bytes of which some are no UTF-8."""


@pytest.mark.parametrize("bos", ["document", "always", "never"])
@torch.no_grad()
def test_29_30_31_twenty_tokens_by_hand(root: Path, bos: str, capsys: Capture) -> None:
    """CASES 29 to 31: what stands in front, the shift, and bytes that add up to the file's size.

    One softmax a token, each from the model's own forward on what stands before it.
    """
    (root / "raw.txt").write_bytes(TWENTY)
    given = ("--data", root / "raw.txt", "--bos", bos, "--length", 12, "--stride", 5)
    [found] = answered(capsys, root / "runs" / "run", *given)["measured"]
    model = load_trial(root / "runs" / "run")[0].eval()
    ids = [256, *TWENTY] if bos == "document" else list(TWENTY)
    front = [256] if bos == "always" else []
    hand = 0.0
    for place in range(0 if front else 1, len(ids)):
        begin = 0
        while begin + 12 - len(front) <= place:
            begin += 5
        logits = model(torch.tensor([[*front, *ids[begin:place]]]))[0, -1].double()
        hand += float(logits.exp().sum().log() - logits[ids[place]])
    scored = 20 if bos != "never" else 19
    assert found["counts"]["tokens"] == found["counts"]["bytes"] == scored
    assert found["counts"]["bytes_read"] == (root / "raw.txt").stat().st_size == 20
    nats, bits = found["numbers"]
    assert (nats["name"], bits["name"]) == ("nats_per_token", "bits_per_byte")
    assert nats["value"] == pytest.approx(hand / scored, rel=1e-5)
    assert bits["value"] == pytest.approx(hand / math.log(2) / scored, rel=1e-5)
    assert found["policy"]["bos"] == bos
    assert found["policy"]["bos_token"] == (None if bos == "never" else 256)


def test_batches_of_one_and_eight_agree(root: Path, capsys: Capture) -> None:
    run, values = root / "runs" / "run", []
    for batch in (1, 8):
        given = ("--data", root / "words.txt", "--length", 24, "--stride", 7, "--tokens", 300)
        [found] = answered(capsys, run, *given, "--batch", batch)["measured"]
        values.append([one["value"] for one in found["numbers"]])
    assert values[1] == pytest.approx(values[0], rel=1e-6)


def test_a_published_set_from_a_copy(root: Path, capsys: Capture) -> None:
    row = {"question": "How deep?", "answer": "Two"}
    (root / "copy.jsonl").write_text(json.dumps(row), encoding="utf-8")
    pair = {"prompt": "Question: How deep?\nAnswer:", "answer": " Two"}
    (root / "same.jsonl").write_text(json.dumps(pair), encoding="utf-8")
    run = root / "runs" / "run"
    [by_name] = answered(capsys, run, "--set", f"gsm8k={root / 'copy.jsonl'}")["measured"]
    [by_hand] = answered(capsys, run, "--pairs", root / "same.jsonl")["measured"]
    assert by_name["numbers"] == by_hand["numbers"]
    assert by_name["data_hash"] == by_hand["data_hash"]
    assert (by_name["name"], by_name["policy"]["sets"]) == ("gsm8k", ["gsm8k"])


def test_pairs_and_text_together(root: Path, capsys: Capture) -> None:
    fields = ("--prompt-field", "q", "--answer-field", "a")
    files = ("--data", root / "words.txt", "--pairs", root / "set.jsonl")
    found = answered(capsys, root / "runs" / "run", *files, *fields, "--tokens", "1k")
    assert [m["kind"] for m in found["measured"]] == ["domain", "pairs"]
    assert found["measured"][1]["counts"]["tokens"] == 9


def test_sweep_is_one_command(root: Path, capsys: Capture) -> None:
    run = root / "runs" / "run"
    capsys.readouterr()
    assert execute(["eval", str(run), "--sweep", "skip", "--tokens", "512"]) == 0
    said = capsys.readouterr().out
    alone = answered(capsys, run, "--tokens", 512, "--skip", 0)["measured"][0]["numbers"][0]
    plain = answered(capsys, run, "--tokens", 512)["measured"][0]["numbers"][0]
    assert f"{alone['value'] - plain['value']:+.4f}" in said
    assert (run / "results" / "sweep-skip.png").stat().st_size > 1000
    assert (run / "results" / "sweep-skip.svg").exists()


def test_text_under_a_program(root: Path, capsys: Capture) -> None:
    capsys.readouterr()
    given = ["generate", str(root / "runs" / "run"), "--prompt", "de", "--tokens", "4", "--json"]
    assert execute([*given, "--repeat", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["program"], found["blocks"]) == ("repeat 1", [0, 1, 1])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--skip", "7"], "block 7 is not there"),
        (["--skip", "0", "--sweep", "skip"], "are given together"),
        (["--sweep", "drop"], "sweep = 'drop'"),
        (["--stride", "600"], "stride = 600"),
        (["--bos", "once"], "bos = 'once'"),
        (["--pairs", "nowhere.jsonl"], "nowhere.jsonl cannot be read"),
        (["--data", "nowhere"], "no file or folder nowhere"),
        (["--set", "humanevil"], "unknown set 'humanevil', did you mean 'humaneval'"),
        (["--set", "gsm8k,mpbb"], "unknown set 'mpbb', did you mean 'mbpp'"),
        (["--limit", "3"], "is for --lm-eval TASK and --set NAME"),
    ],
)
def test_bad_input_in_one_line(root: Path, given: list[str], words: str, capsys: Capture) -> None:
    capsys.readouterr()
    assert execute(["eval", str(root / "runs" / "run"), *given]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_no_model(capsys: Capture) -> None:
    assert execute(["eval"]) == 2
    assert "MODEL" in capsys.readouterr().err
    assert execute(["eval", "nowhere/at-all-x.gguf"]) == 2
