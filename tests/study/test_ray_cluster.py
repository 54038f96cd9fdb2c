"""Studies on a Ray cluster of two nodes: killed, cut off, left alone by their driver."""

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
from ray.cluster_utils import Cluster

from depthbench.errors import DepthbenchError
from depthbench.files import read_lines
from depthbench.study.engine import Place, Running
from depthbench.study.plan import Planned
from depthbench.study.run import train_study
from depthbench.study.store import Row
from tests.processes import is_alive, processes_of, wait_for
from tests.small import TRAIN, study_tables
from tests.study.ray_studies import metrics, opened, results

pytestmark = pytest.mark.slow

STEPS = 1200
SAVE_EVERY = 20
CHANGES: dict[str, Any] = {
    "designs": ["prenorm"],
    "seeds": [0, 1],
    "search": {"learning_rates": [1e-2]},
    "train": TRAIN | {"tokens": 64 * STEPS, "save_every": SAVE_EVERY, "log_every": 10},
}
"""Four trials of several seconds."""


@pytest.fixture
def cluster(short: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A head and another node, of one core each."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    handler = signal.getsignal(signal.SIGTERM)
    cluster = Cluster(initialize_head=True, head_node_args={"include_dashboard": False})
    try:
        cluster.add_node()
        yield cluster
    finally:
        cluster.shutdown()
        signal.signal(signal.SIGTERM, handler)
    wait_for(lambda: processes_of(short) == [])


@pytest.fixture(scope="module")
def expected(text_root: Path) -> tuple[list[Row], dict[str, bytes]]:
    """Rows and metrics of the study on this machine, undisturbed."""
    study = opened(text_root, "local", Place(), **CHANGES)
    return train_study(study, place=Place(workers=2)), metrics(study)


def node_of(running: Running) -> str:
    """Socket of the Ray node whose worker started the trial's process."""
    pid = running.pid
    while True:
        assert pid, "no process of a Ray node"
        listed = subprocess.run(
            ["ps", "-wwo", "ppid=,args=", "-p", str(pid)],
            capture_output=True,
            text=True,
            check=True,
        )
        parent, command = listed.stdout.split(maxsplit=1)
        if "--raylet_socket_name=" in command:
            return command.split("--raylet_socket_name=")[1].split()[0]
        pid = int(parent)


def test_trials_of_a_killed_node_go_on_at_another(
    cluster: Cluster, text_root: Path, expected: tuple[list[Row], dict[str, bytes]]
) -> None:
    [other] = cluster.worker_nodes
    place = Place("ray", address=cluster.address)
    study = opened(text_root, "killed", place, **CHANGES)
    lost: list[Running] = []
    went_on_from: list[int] = []

    def kill_node(running: list[Running], _: list[Planned]) -> None:
        if not lost and len(running) == 2 and all(one.tokens > 64 * 300 for one in running):
            lost.extend(one for one in running if node_of(one) == other.raylet_socket_name)
            cluster.remove_node(other, allow_graceful=False)
        for one in running:
            again = lost and one.planned.id == lost[0].planned.id and one is not lost[0]
            if again and one.tokens:
                went_on_from.append(one.tokens)

    rows = train_study(study, place=place, watch=kill_node)
    assert len(lost) == 1, "one trial ran at the killed node"
    assert len(read_lines(study.store.path)) == 4
    assert results(rows) == results(expected[0])
    assert metrics(study) == expected[1]
    notes = {row.id: row.notes for row in rows}
    host = rows[0].machine.host
    assert notes.pop(lost[0].planned.id) == [f"tried again because node {host} was lost"]
    assert list(notes.values()) == [[], [], []]
    assert went_on_from[0] > 64 * 300, "it began anew instead of going on from its checkpoint"


def test_a_trial_does_not_go_on_while_it_may_still_run_on_a_lost_node(
    cluster: Cluster, text_root: Path, expected: tuple[list[Row], dict[str, bytes]]
) -> None:
    """A node that was cut off and not killed: its trial stands still and then comes back."""
    [other] = cluster.worker_nodes
    place = Place("ray", address=cluster.address)
    study = opened(text_root, "cut", place, **CHANGES)
    old: list[Running] = []
    seen: list[bytes] = []
    freed: list[float] = []

    def cut(running: list[Running], _: list[Planned]) -> None:
        if not old and len(running) == 2 and all(one.tokens > 64 * 300 for one in running):
            old.extend(one for one in running if node_of(one) == other.raylet_socket_name)
            assert old[0].pid is not None
            os.kill(old[0].pid, signal.SIGSTOP)
            cluster.remove_node(other, allow_graceful=False)
        for one in running:
            if freed or not old or one.planned.id != old[0].planned.id or one is old[0]:
                continue
            if one.pid is None:
                continue
            # another process has the trial now, and must wait for the old one
            seen.append((study.folder / "trials" / one.planned.id / "metrics.jsonl").read_bytes())
            if len(seen) > 12:
                assert old[0].pid is not None
                os.kill(old[0].pid, signal.SIGCONT)
                freed.append(time.monotonic())

    rows = train_study(study, place=place, watch=cut)
    assert freed
    assert len(set(seen)) == 1, "two processes trained it at once"
    assert old[0].pid is not None
    assert not is_alive(old[0].pid)
    assert len(read_lines(study.store.path)) == 4
    assert results(rows) == results(expected[0])
    assert metrics(study) == expected[1]


def command(study: Path, out: Path, *more: str) -> list[str]:
    arguments = ["run", str(study), "--out", str(out), "--engine", "ray", *more]
    # a test run in the background of a shell ignores Ctrl-C, and so would what it starts
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from depthbench.cli import main; main()"
    )
    return [sys.executable, "-c", program, *arguments]


@pytest.fixture
def study_file(text_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(text_root / "cache"))
    path = tmp_path / "study.toml"
    path.write_text(tomli_w.dumps(study_tables(text_root / "words.txt", **CHANGES)))
    return path


def trials_with_metrics(out: Path) -> int:
    return len(list((out / "small" / "trials").glob("*/metrics.jsonl")))


def test_when_the_driver_is_killed_its_trials_save_and_end(
    cluster: Cluster, study_file: Path, tmp_path: Path, expected: tuple[list[Row], dict[str, bytes]]
) -> None:
    out = tmp_path / "runs"
    arguments = command(study_file, out, "--ray-address", str(cluster.address), "--json")
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as driver:
        wait_for(lambda: trials_with_metrics(out) == 2)
        driver.send_signal(signal.SIGKILL)
    wait_for(lambda: not list((out / "small").glob(".shared-*")))
    folders = [path.parent for path in (out / "small" / "trials").glob("*/config.json")]
    for folder in folders:
        # its end removes the mark of the owner
        wait_for(lambda folder=folder: not (folder / ".lock-owner").exists())
        assert list((folder / "checkpoints").iterdir())
    # the same command goes on, in a cluster that is still there
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verdict"]["finished"] == 4
    rows = [Row.model_validate(one) for one in read_lines(out / "small" / "results.jsonl")]
    assert results(rows) == results(expected[0])


def test_ctrl_c_saves_every_trial_and_leaves_nothing_running(
    short: str, study_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "runs"
    with subprocess.Popen(
        command(study_file, out), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_for(lambda: trials_with_metrics(out) == 2)
        process.send_signal(signal.SIGINT)
        said, err = process.communicate()
    assert process.returncode == 130
    assert said == ""
    assert err == "Stopped: 0 of 4 trials are finished and kept. The same command continues.\n"
    assert processes_of(short) == []
    trials = list((out / "small" / "trials").iterdir())
    assert len(trials) == 2
    for trial in trials:
        assert list((trial / "checkpoints").iterdir())
    assert list(Path(short).glob("db-*")) == []


def test_two_processes_train_a_trial_on_one_node(cluster: Cluster, text_root: Path) -> None:
    big = cluster.add_node(num_cpus=2)
    place = Place("ray", address=cluster.address)
    train = TRAIN | {"tokens": 64 * 60}
    alone = opened(text_root, "alone", Place(), **CHANGES | {"train": train})
    expected = {row.id: row for row in train_study(alone)}
    study = opened(
        text_root, "pairs", place, resources={"processes": 2}, **CHANGES | {"train": train}
    )
    nodes: set[str] = set()

    def watch(running: list[Running], _: list[Planned]) -> None:
        assert len(running) <= 1, "only one node has two cores"
        nodes.update(node_of(one) for one in running if one.tokens)

    rows = train_study(study, place=place, watch=watch)
    assert nodes == {big.raylet_socket_name}
    assert len(rows) == 4
    for row in rows:
        loss, single = row.loss, expected[row.id].loss
        assert loss is not None
        assert single is not None
        assert loss.nats_per_token == pytest.approx(single.nats_per_token, rel=1e-4)
        assert row.notes == ["trained by 2 processes (the model whole in each)"]


def test_a_trial_that_no_node_can_run_is_an_error_in_words(
    cluster: Cluster, text_root: Path
) -> None:
    place = Place("ray", address=cluster.address)
    study = opened(text_root, "large", place, resources={"cpus": 3}, **CHANGES)
    with pytest.raises(DepthbenchError) as caught:
        train_study(study, place=place)
    assert str(caught.value) == (
        "no node can run a trial: it needs 3 cores and 0 GPUs, the most that a node has is "
        "1 cores and 0 GPUs. Lower resources, or add a node"
    )
