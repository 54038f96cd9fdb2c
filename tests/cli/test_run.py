"""`depthbench run` from a study file to a report, and what an interrupt leaves."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from depthbench.cli.app import execute
from depthbench.files import read_lines
from tests.small import TRAIN, study_tables, write_text

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _terminated() -> Iterator[None]:
    """The command sets a handler for SIGTERM: put ours back."""
    kept = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, kept)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    write_text(folder)
    return folder


@pytest.fixture(autouse=True)
def _cache(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(root / "cache"))
    monkeypatch.setenv("COLUMNS", "120")


def study_file(root: Path, folder: Path, **changes: Any) -> Path:
    path = folder / "study.toml"
    path.write_text(tomli_w.dumps(study_tables(root / "words.txt", **changes)))
    return path


def test_a_study_ends_in_a_table_a_verdict_and_a_report(
    root: Path, tmp_path: Path, capsys: Capture
) -> None:
    study = study_file(root, tmp_path, search={"learning_rates": [1e-2]})
    arguments = ["run", str(study), "--out", str(tmp_path / "runs"), "--verbose"]
    assert execute(arguments) == 0
    out, err = capsys.readouterr()
    folder = tmp_path / "runs" / "small"
    rows = read_lines(folder / "results.jsonl")
    assert len(rows) == 4
    lines = err.splitlines()
    assert sorted(line.split()[0] for line in lines) == sorted(row["id"] for row in rows)
    for row in rows:
        loss = f"done, {row['loss']['bits_per_byte']:.3f} bits per byte"
        assert any(line.startswith(row["id"]) and line.endswith(loss) for line in lines)
        assert f"{row['loss']['bits_per_byte']:.3f}" in out
    assert "prenorm" in out
    assert out.rstrip().endswith(f"Report: {folder / 'report.html'}")
    assert (folder / "report.html").stat().st_size > 1000

    # again, as JSON: nothing is trained, and stdout is JSON alone
    assert execute([*arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    answer = json.loads(out)
    assert answer["report"] == str(folder / "report.html")
    assert answer["verdict"]["finished"] == 4
    assert len(read_lines(folder / "results.jsonl")) == 4


def test_overrides_reach_the_trials(root: Path, tmp_path: Path, capsys: Capture) -> None:
    study = study_file(root, tmp_path, designs=["prenorm"])
    arguments = [
        *("run", str(study), "train.tokens=1.28e2", "search.learning_rates=[5e-3]"),
        *("--seed", "7", "--dtype", "float32", "--device", "cpu", "--workers", "1"),
        *("--out", str(tmp_path / "runs"), "--json"),
    ]
    assert execute(arguments) == 0
    json.loads(capsys.readouterr().out)
    rows = read_lines(tmp_path / "runs" / "small" / "results.jsonl")
    assert [(row["tokens"], row["seed"], row["learning_rate"]) for row in rows] == [
        (128, 7, 5e-3)
    ] * 2


def test_own_text_takes_the_place_of_domains(root: Path, tmp_path: Path, capsys: Capture) -> None:
    study = study_file(
        root,
        tmp_path,
        designs=["prenorm"],
        search={"learning_rates": [1e-2]},
        data={"domains": ["code", "math"]},
    )
    other = write_text(tmp_path, seed=5)
    arguments = ["run", str(study), "--data", str(root / "words.txt"), "--data", str(other)]
    assert execute([*arguments, "--out", str(tmp_path / "runs"), "--json"]) == 0
    json.loads(capsys.readouterr().out)
    rows = read_lines(tmp_path / "runs" / "small" / "results.jsonl")
    assert set(rows[0]["domains"]) == {"words", "words-2"}


def test_a_failed_trial_is_exit_code_1_and_named(
    root: Path, tmp_path: Path, capsys: Capture
) -> None:
    study = study_file(root, tmp_path, designs=["prenorm"], search={"learning_rates": [1e-2]})
    arguments = ["run", str(study), "--out", str(tmp_path / "runs")]
    assert execute(arguments) == 0
    folder = tmp_path / "runs" / "small"
    [first, second] = read_lines(folder / "results.jsonl")
    (folder / "results.jsonl").write_text(json.dumps(second) + "\n")
    config = folder / "trials" / first["id"] / "config.json"
    config.unlink()
    config.mkdir()
    capsys.readouterr()
    assert execute(arguments) == 1
    err = capsys.readouterr().err.splitlines()
    # two trials side by side: either may be the first to finish
    size = f"L{first['shape']['layers']} d{first['shape']['width']}"
    said = f"{first['id']} prenorm {size} lr 0.01 seed 0: failed, cannot write "
    assert err[0].startswith(said)
    assert "Is a directory" in err[0]
    assert err[1] == "1 trial failed; the same command tries again"


def test_ctrl_c_leaves_whole_rows_no_process_and_a_study_that_goes_on(
    root: Path, tmp_path: Path, capsys: Capture
) -> None:
    train = TRAIN | {"tokens": 64 * 120, "log_every": 20}
    study = study_file(root, tmp_path, designs=["prenorm"], train=train)
    arguments = ["run", str(study), "--out", str(tmp_path / "runs"), "--workers", "1"]
    results = tmp_path / "runs" / "small" / "results.jsonl"
    # a test run in the background of a shell ignores Ctrl-C, and so would what it starts
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from depthbench.cli import main; main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            wait_for(lambda: len(read_lines(results)) == 1)
            # a second run of the same study meanwhile is refused
            code = execute(arguments)
        finally:
            process.send_signal(signal.SIGINT)
        assert code == 2
        assert capsys.readouterr().err == (
            f"depthbench: {results.parent} is being trained by another process. "
            "Wait for it, or use --out\n"
        )
        out, err = process.communicate()
    assert process.returncode == 130
    assert out == ""
    kept = read_lines(results)
    assert len(kept) in (1, 2)
    assert err == (
        f"Stopped: {len(kept)} of 3 trials are finished and kept. The same command continues.\n"
    )
    wait_for(lambda: not group_is_alive(process.pid))
    assert execute(arguments) == 0
    rows = read_lines(results)
    assert rows[: len(kept)] == kept
    assert [row["status"] for row in rows] == ["done"] * 3
    assert len({row["id"] for row in rows}) == 3


def group_is_alive(leader: int) -> bool:
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for(condition: Any, seconds: float = 240.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)
