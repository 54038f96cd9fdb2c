"""Trials through Ray, in a cluster that is started for them and shut down again."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import NodeDiedError, OutOfMemoryError, RayTaskError, WorkerCrashedError

from depthbench.files import read_lines
from depthbench.study.engine import Place, Running
from depthbench.study.engine_ray import refusal
from depthbench.study.plan import Planned
from depthbench.study.process import End, Job
from depthbench.study.ray_driver import largest, missing, room, why
from depthbench.study.run import train_study
from tests.processes import processes_of
from tests.small import TRAIN
from tests.study.ray_studies import metrics, opened, results

ON_RAY = Place("ray", workers=1)


@pytest.mark.slow
def test_a_study_has_the_rows_of_a_local_one_though_a_trial_was_killed(
    text_root: Path, short: str
) -> None:
    changes: dict[str, Any] = {
        "designs": ["prenorm"],
        "search": {"learning_rates": [1e-2]},
        "train": TRAIN | {"tokens": 64 * 60, "save_every": 5},
    }
    local = opened(text_root, "local", Place(), **changes)
    expected = train_study(local, place=Place(workers=2))
    killed: list[Running] = []

    def kill_once(running: list[Running], _: list[Planned]) -> None:
        for one in running:
            if one.pid is not None and not killed:
                os.kill(one.pid, signal.SIGKILL)
                killed.append(one)

    study = opened(text_root, "ray", ON_RAY, **changes)
    rows = train_study(study, place=ON_RAY, watch=kill_once)
    assert results(rows) == results(expected)
    assert metrics(study) == metrics(local)
    assert len(read_lines(study.store.path)) == 2
    notes = {row.id: row.notes for row in rows}
    reason = "tried again because its process was killed by signal 9 (out of memory?)"
    assert notes.pop(killed[0].planned.id) == [reason]
    assert list(notes.values()) == [[]]
    assert [row.machine for row in rows] == [row.machine for row in expected]
    assert list(study.folder.glob(".shared-*")) == []
    assert processes_of(short) == []
    assert list(Path(short).glob("db-*")) == []


def test_why_ray_refuses_is_said_in_one_line(tmp_path: Path) -> None:
    log = tmp_path / "ray.log"
    log.write_text("noise\n")
    assert str(refusal("no such session", log)) == (
        f"Ray refused: no such session ({log} tells more)"
    )
    log.write_text("RPC error: InvalidAuthToken: Authentication token is missing or incorrect\n")
    assert str(refusal("Failed to connect", log)).startswith(
        "the Ray cluster asks for its token. Set RAY_AUTH_MODE=token"
    )


def node(alive: bool = True, **resources: float) -> dict[str, Any]:
    return {"Alive": alive, "Resources": resources}


def test_room_is_what_living_nodes_have_for_whole_trials() -> None:
    nodes = [node(CPU=8.0), node(CPU=3.0, GPU=2.0), node(alive=False, CPU=64.0, GPU=8.0)]
    assert room(nodes, cores=1, gpus=0) == 11
    assert room(nodes, cores=2, gpus=0) == 5
    assert room(nodes, cores=1, gpus=1) == 2
    assert room(nodes, cores=1, gpus=3) == 0
    assert largest(nodes) == "the most that a node has is 8 cores and 2 GPUs"


def test_what_a_node_lacks_is_said_with_its_name(tmp_path: Path) -> None:
    seal, data = tmp_path / "runs" / ".shared-1", tmp_path / "data"
    job = Job("", str(data), str(tmp_path))
    assert missing(job, str(seal), "1", "1", "n7", wait=0.0) == (
        f"node n7 does not see the study's folder {seal.parent}. "
        "Name one on a file system that all nodes share, with --out"
    )
    seal.parent.mkdir()
    seal.touch()
    assert missing(job, str(seal), "1", "1", "n7", wait=0.0) == (
        f"node n7 does not see the data in {data}. Set DEPTHBENCH_CACHE to a folder "
        "on a file system that all nodes share"
    )
    data.mkdir()
    assert missing(job, str(seal), "1", "1", "n7", wait=0.0) is None
    assert missing(job, str(seal), "1", "2", "n7", wait=0.0) == (
        "node n7 has depthbench 2, the study runs with 1. Install the same version on every node"
    )


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (NodeDiedError("…"), End(None, "node n7 was lost", broken_off=True)),
        (OutOfMemoryError("…"), End(None, "node n7 ran out of memory", broken_off=True)),
        (
            WorkerCrashedError(),
            End(None, "its process on node n7 was killed (out of memory?)", broken_off=True),
        ),
        (
            RayTaskError("run_trial", "…", ValueError("no\nluck")),
            End(None, "node n7: ValueError: no luck"),
        ),
    ],
)
def test_only_what_a_machine_did_is_tried_again(error: Exception, end: End) -> None:
    assert why(error, "n7") == end
