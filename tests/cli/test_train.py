"""`depthbench train`: a run, its stop by a signal, and going on."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from depthbench.cli.app import execute
from depthbench.study.single import RunConfig
from tests.fits import fits
from tests.small import write_text

Capture = pytest.CaptureFixture[str]
TINY = ["shape.layers=1", "shape.width=16", "shape.heads=2", "shape.ffn=24", "train.length=16"]
SHORT = [*TINY, "train.sequences=4", "train.tokens=512", "train.validation_tokens=256"]


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """The command sets handlers: put ours back."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("train")
    write_text(folder)
    return folder


@pytest.fixture(autouse=True)
def _cache(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(root / "cache"))


def arguments(root: Path, out: Path, *more: str) -> list[str]:
    return ["train", f'data.paths=["{root / "words.txt"}"]', *SHORT, *more, "--out", str(out)]


def test_a_run_ends_in_a_result_with_everything_in_it(
    root: Path, tmp_path: Path, capsys: Capture
) -> None:
    assert execute(arguments(root, tmp_path, "design=hc", "--json")) == 0
    row = json.loads(capsys.readouterr().out)
    fits("row", row)
    assert row == json.loads((tmp_path / "run" / "result.json").read_text())
    assert (row["label"], row["phase"], row["status"], row["steps"]) == ("hc", "single", "done", 8)
    assert row["loss"]["bits_per_byte"] > 0
    assert row["config"]["model"]["design"]["name"] == "hc"
    assert (tmp_path / "run" / "checkpoints" / "step-000008" / "model.safetensors").exists()


def test_a_file_and_settings(root: Path, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\ndesign = "keel"\nlearning_rate = 0.5\n')
    command = arguments(root, tmp_path, "learning_rate=0.01", "--seed", "3")
    assert execute(["train", str(file), *command[1:]]) == 0
    row = json.loads((tmp_path / "mine" / "result.json").read_text())
    assert (row["label"], row["learning_rate"], row["seed"]) == ("keel", 0.01, 3)
    assert "keel: done" in capsys.readouterr().out


def test_a_size_that_is_not_given_is_the_default() -> None:
    shape = RunConfig.parse({"shape": {"layers": 8}}).shape
    assert shape == RunConfig().shape.model_copy(update={"layers": 8})
    assert (shape.width, shape.heads, shape.kv_heads, shape.ffn) == (96, 4, None, 256)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_ends_with_0_and_the_same_command_goes_on(
    number: signal.Signals, root: Path, tmp_path: Path
) -> None:
    long = ["train.tokens=24000", "train.save_every=100000"]
    whole = arguments(root, tmp_path / "whole", *long)
    parts = arguments(root, tmp_path / "parts", *long)
    assert execute(whole) == 0
    environment = {**os.environ, "DEPTHBENCH_CACHE": str(root / "cache")}
    command = [sys.executable, "-m", "depthbench", *parts]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    metrics = tmp_path / "parts" / "run" / "metrics.jsonl"
    while not metrics.exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "the same command goes on" in said
    assert not (tmp_path / "parts" / "run" / "result.json").exists()
    assert execute(parts) == 0
    kept = tmp_path / "whole" / "run" / "metrics.jsonl"
    assert metrics.read_bytes() == kept.read_bytes()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc which signals are caught")
def test_a_signal_before_training_ends_with_0_too(root: Path, tmp_path: Path) -> None:
    text = tmp_path / "long.txt"
    lines = (f"line {n} of {n * 7919 % 1000}" for n in range(300_000))
    text.write_text("\n\n".join(lines), encoding="utf-8")
    settings = [f'data.paths=["{text}"]', 'data.tokenizer="bpe"', "--out", str(tmp_path / "out")]
    environment = {**os.environ, "DEPTHBENCH_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "depthbench", "train", *settings, "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    status = Path(f"/proc/{process.pid}/status")
    # while modules are imported, Python itself may end with SIGINT after all, though it was caught
    while not (catches(signal.SIGTERM, status.read_text()) and any(tmp_path.glob("cache/*"))):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert json.loads(said) == {"schema_version": 1, "status": "stopped", "steps": None}
    assert not (tmp_path / "out").exists()


def catches(number: signal.Signals, status: str) -> bool:
    """Whether the process whose ``/proc/PID/status`` this is has a handler for the signal."""
    [mask] = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")]
    return bool(int(mask, 16) >> (number - 1) & 1)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--resume", "nowhere"], "nowhere is no whole checkpoint"),
        (["design=hcc"], "did you mean 'hc'"),
        (["trian.tokens=5"], "unknown key 'trian'"),
        (["train.micro_sequences=3"], "micro_sequences = 3"),
        (["shape.width=15"], "depthbench: shape: width 15"),
        (["train.health.window=10"], "window_least = 20 is more than window = 10"),
        (["--log", ""], "unknown tracker ''"),
        (["--device", "tpu"], "unknown device 'tpu'"),
        (["nowhere.toml"], "nowhere.toml"),
    ],
)
def test_what_is_refused(
    more: list[str], message: str, root: Path, tmp_path: Path, capsys: Capture
) -> None:
    assert execute(arguments(root, tmp_path, *more)) == 2
    error = capsys.readouterr().err
    assert message in error.lower()
    assert len(error.splitlines()) == 1


# a compiler that fails leaves objects to the garbage collector, whose complaints come at any time
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_compile_is_a_setting_of_the_run(root: Path, tmp_path: Path, capsys: Capture) -> None:
    # the run-time checks of shapes cannot be compiled: tests/train/test_compile.py runs without
    assert execute(arguments(root, tmp_path, "--compile", "--json")) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["config"]["train"]["compile"] is True
    assert [note.split(":")[0] for note in row["notes"]] == ["compile"]


def test_another_config_in_the_same_folder_is_refused(
    root: Path, tmp_path: Path, capsys: Capture
) -> None:
    """Nothing of the first run is touched; --resume never starts over."""
    assert execute(arguments(root, tmp_path)) == 0
    before = {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
    capsys.readouterr()
    assert execute(arguments(root, tmp_path, "design=hc")) == 2
    error = capsys.readouterr().err
    assert "holds a run with other settings" in error
    assert "--resume never" in error
    for path, content in before.items():
        assert path.name.startswith(".lock") or path.read_bytes() == content, path
    assert execute(arguments(root, tmp_path, "design=hc", "--resume", "never")) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["label"] == "hc"
