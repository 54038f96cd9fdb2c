"""`depthbench cost` and `depthbench bench` as a user calls them."""

import json
from pathlib import Path
from typing import Any

import pytest

from depthbench.cli.app import execute
from depthbench.cost.devices import constant, find_device, read_device
from depthbench.cost.flops import count_flops
from depthbench.nn.model import ModelConfig
from tests.fits import fits

TINY = ["--params", "60k", "--depths", "2,4", "--context", "32"]


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert execute([*arguments, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    fits("costs" if arguments[0] == "cost" else "benched", said)
    return said


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert execute(list(arguments)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


@pytest.mark.slow
def test_rows_are_the_ledgers_and_the_deep_one_waits_for_its_calls(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "cost"
    found = answer(capsys, "cost", *TINY, "--designs", "prenorm,hc", "--workers", "1", "--growth",
                   "--training", "--ways", "1,4", "--out", str(out))  # fmt: skip
    assert [row["label"] for row in found["rows"]] == ["prenorm", "prenorm", "hc", "hc"]
    for row in found["rows"]:
        stated = count_flops(ModelConfig.parse(row["model"]), 32)
        assert row["served"]["ledger"]["stated"] == stated.resolved()
        assert row["tpot_seconds"] == pytest.approx(
            sum(row["served"]["decode"]["by_bound"].values()) + find_device("h100").step
        )
        training = row["training_bytes_by_ways"]
        memory = row["training"]["cost"]["memory"]
        whole = memory["parameters"] + memory["gradients"] + memory["optimizer"]
        assert training["1"] - training["4"] == whole - -(-whole // 4)
    assert "of the difference +100% the program's own calls" in found["sentences"][0]
    assert {one["what"] for one in found["growth"]["hc"]} >= {"forward, FLOPs"}
    assert json.loads((out / "cost.json").read_text()) == found
    assert (out / "cost.png").read_bytes()[:4] == b"\x89PNG"
    assert "time per token" in (out / "cost.svg").read_text()


def test_the_table_names_its_device_and_where_the_numbers_are_from(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ["--device", "a100", "--graphs", "--parts", "--workers", "1"]
    assert execute(["cost", *TINY, *given]) == 0
    printed = capsys.readouterr().out
    assert "32 tokens, batch 1, bfloat16, a100, graphs" in printed
    assert "Device: a100, graphs, data sheet" in printed
    assert "not measured here" in printed
    for part in ("projections", "attention", "head", "norms", "element-wise", "design", "all"):
        assert f"\n{part} " in printed


def test_bad_input_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("DEPTHBENCH_CACHE", raising=False)
    assert "did you mean 'h100'" in refusal(capsys, "cost", *TINY, "--device", "h10")
    assert "bench device" in refusal(capsys, "cost", *TINY, "--device", "this")
    assert "no model is named" in refusal(capsys, "cost")
    assert "did you mean 'prenorm'" in refusal(capsys, "cost", *TINY, "--designs", "prenom")
    assert "both given" in refusal(capsys, "cost", *TINY, "--family", "400m")
    assert "both given" in refusal(capsys, "cost", "runs/x", *TINY)
    assert "context = 'x' is no number" in refusal(capsys, "cost", *TINY[:4], "--context", "x")
    assert "at least 1" in refusal(capsys, "cost", *TINY, "--ways", "0,2")
    assert "unknown dtype" in refusal(capsys, "cost", *TINY, "--dtype", "int8")
    assert "config.json" in refusal(capsys, "cost", str(tmp_path))
    assert "named twice" in refusal(capsys, "cost", *TINY, "--designs", "hc,hc")
    assert "are allowed" in refusal(capsys, "cost", *TINY[:4], "--context", "1e30")
    assert "are allowed" in refusal(capsys, "cost", *TINY, "--batch", "9999999999")
    assert "Use a divisor" in refusal(capsys, "cost", *TINY, "--tensor", "3")
    assert "names a model" in refusal(capsys, "bench", "device", "--params", "60k")
    assert "at least one sequence" in refusal(capsys, "bench", *TINY, "--batch", "0")
    assert "unknown device" in refusal(capsys, "bench", *TINY, "--device", "tpu")
    assert "unknown dtype" in refusal(capsys, "bench", *TINY, "--dtype", "int8")


@pytest.mark.slow
def test_measured_stands_beside_predicted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("DEPTHBENCH_CACHE", raising=False)
    stored = find_device("h100").model_copy(
        update={
            "name": "stored",
            "call": constant(1e-6),
            "overlaps": False,
            "bandwidth": constant(1e10),
        }
    )
    path = tmp_path / "depthbench" / "device.json"
    path.parent.mkdir()
    path.write_text(stored.model_dump_json())
    found = answer(capsys, "bench", *TINY, "--stored", "--repeats", "2", "--tokens", "2",
                   "--out", str(tmp_path / "bench.json"))  # fmt: skip
    assert [row["model"]["shape"]["layers"] for row in found["rows"]] == [2, 4]
    for row in found["rows"]:
        measured, predicted = row["measured"]["each"]["median"], row["predicted"]["decode"]
        assert row["predicted"]["device"] == "stored"
        seconds = predicted["seconds"] + row["predicted"]["step"]
        assert row["tpot_deviation"] == pytest.approx(seconds / measured - 1)
    assert "measured)" in found["sentences"][0]
    assert json.loads((tmp_path / "bench.json").read_text()) == found


@pytest.mark.slow
def test_this_machine_is_measured_and_kept(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "here.json"
    found = answer(capsys, "bench", "device", "--out", str(out))
    assert read_device(out).resolved() == found
    assert found["products"]["float32"]["points"][-1][1] > 1e9
    assert execute(["cost", *TINY, "--device", str(out), "--workers", "1"]) == 0
