"""`depthbench choose` on a stored study of thirty trials."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from depthbench.cli.app import execute
from tests.cost.planted import EXPONENT, FACTOR, FLOOR, WORSE, write_planted
from tests.fits import fits

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_planted(tmp_path_factory.mktemp("runs") / "planted")


def answer(capsys: Capture, *arguments: str, code: int = 0) -> dict[str, Any]:
    """What the command says as JSON."""
    assert execute(["choose", *arguments, "--json"]) == code
    said = json.loads(capsys.readouterr().out)
    fits("chosen", said)
    return said


def refused(capsys: Capture, *arguments: str) -> str:
    assert execute(["choose", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


def test_limits_pick_the_next_and_say_what_they_cost(study: Path, capsys: Capture) -> None:
    free = answer(capsys, str(study))["choice"]
    assert free["chosen"] == "hc L4 d64"
    assert len(free["candidates"]) == len(free["feasible"]) == 10
    losses = [one["bits_per_byte"] for one in free["candidates"]]
    assert losses == sorted(losses)
    limited = answer(capsys, str(study), "--max-params", "60k")["choice"]
    assert limited["chosen"] == "hc L2 d32"
    (price,) = limited["prices"]
    by_name = {one["name"]: one["bits_per_byte"] for one in free["candidates"]}
    assert price["without"] == "hc L4 d64"
    assert price["bits_per_byte"] == pytest.approx(by_name["hc L2 d32"] - by_name["hc L4 d64"])


def test_a_limit_on_modelled_time(study: Path, capsys: Capture) -> None:
    found = answer(capsys, str(study), "--context", "1k")["choice"]["candidates"]
    times = sorted(one["tpot_seconds"] for one in found)
    # between the two fastest shapes and the rest
    limit = f"{(times[0] + times[-1]) / 2 * 1e6:.6f}us"
    limited = answer(capsys, str(study), "--context", "1k", "--max-tpot", limit)["choice"]
    meeting = [one for one in found if one["tpot_seconds"] <= limited["limits"]["tpot"]]
    assert 0 < len(meeting) < 10
    assert limited["chosen"] == min(meeting, key=lambda one: one["bits_per_byte"])["name"]
    assert sorted(limited["feasible"]) == sorted(one["name"] for one in meeting)


def test_the_cache_of_32k_tokens_is_32768(study: Path, capsys: Capture) -> None:
    choice = answer(capsys, str(study), "--context", "32k", "--batch", "2")["choice"]
    best = choice["candidates"][0]
    assert best["name"] == "hc L4 d64"
    # 4 layers, keys and values, 2 heads of 16, 2 bytes, 2 sequences
    assert best["kv_bytes"] == 4 * 2 * 2 * 16 * 2 * 32768 * 2


def test_impossible_limits_say_which_one_and_by_how_much(study: Path, capsys: Capture) -> None:
    said = answer(capsys, str(study), "--max-kv", "1KiB", "--context", "4096", code=1)
    (conflict,) = said["choice"]["conflicts"]
    assert said["choice"]["chosen"] is None
    # the smallest: 1 layer, keys and values, 2 heads of 4, 2 bytes, 4096 tokens
    assert (conflict["limits"], conflict["least"]) == (["kv"], 2 * 2 * 4 * 2 * 4096)
    assert conflict["factor"] == 128
    assert (
        "the least in the study is 128 KiB (hc L1 d16), 128 times the limit"
        in (said["sentences"][0])
    )


def test_a_prediction_follows_the_planted_law(study: Path, capsys: Capture) -> None:
    said = answer(capsys, str(study), "--predict", "400k")
    assert [one["label"] for one in said["predictions"]] == ["hc", "prenorm"]
    for one in said["predictions"]:
        loss = FLOOR + FACTOR * 400_000**-EXPONENT + WORSE[one["label"]]
        assert one["bits_per_byte"] == pytest.approx(loss, abs=1e-4)
        assert one["low"] < loss < one["high"]


def test_far_predictions_are_refused(study: Path, capsys: Capture) -> None:
    err = refused(capsys, str(study), "--predict", "800M")
    assert "predict = 800,000,000 parameters is a factor" in err
    assert "at most 4 is allowed" in err


def test_one_seed_is_no_winner(tmp_path: Path, capsys: Capture) -> None:
    folder = write_planted(tmp_path / "one", seeds=1)
    said = answer(capsys, str(folder))
    assert said["choice"]["winner"] is None
    assert "no winner is claimed" in " ".join(said["sentences"])


def test_files_and_table(
    study: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    out = tmp_path / "choice"
    assert execute(["choose", str(study), "--max-params", "60k", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    rows = [line.split() for line in printed.splitlines() if " ± " in line]
    assert rows[0][:4] == ["*P", "hc", "L2", "d32"]
    assert sum("!" in row for row in rows) == 4
    said = json.loads((out / "choose.json").read_text())
    assert said["choice"]["chosen"] == "hc L2 d32"
    assert (out / "pareto.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (out / "pareto.svg").read_text()


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--max-kv", "2", "max-kv = '2' is no amount of memory"),
        ("--max-tpot", "20", "max-tpot = '20' is no time"),
        ("--max-params", "many", "max-params = 'many' is no positive count"),
        ("--context", "long", "context = 'long' is no number"),
        ("--device", "h1000", "h100"),
        ("--predict", "-1", "predict = '-1' is no positive count"),
    ],
)
def test_bad_values_name_field_and_remedy(
    study: Path, capsys: Capture, option: str, value: str, words: str
) -> None:
    assert words in refused(capsys, str(study), f"{option}={value}")


def test_no_study_folder(tmp_path: Path, capsys: Capture) -> None:
    assert "no such folder" in refused(capsys, str(tmp_path / "none"))


def test_rows_of_other_settings_are_told(study: Path, tmp_path: Path, capsys: Capture) -> None:
    copied = tmp_path / "planted"
    shutil.copytree(study, copied)
    lines = (copied / "results.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    for row in rows[:2]:
        row["id"] = row["id"][::-1] + "0"
    (copied / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert execute(["choose", str(copied)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"2 of {len(rows)} rows are of other settings" in said
    for row in rows:
        row["id"] = row["id"][::-1] + "1"
    (copied / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert f"its {len(rows)} rows are of other settings" in refused(capsys, str(copied))
