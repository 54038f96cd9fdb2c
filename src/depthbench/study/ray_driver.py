"""The process that talks to Ray for a study: commands come in on stdin, events go out on stdout.

Ray prints what it likes, sets signal handlers, and aborts its process when it loses its head node.
None of that may happen to the process that holds the terminal and the results. Light to import.
"""

import json
import os
import platform
import queue
import shutil
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

import ray
from ray.exceptions import (
    NodeDiedError,
    OutOfMemoryError,
    RayError,
    RayTaskError,
    TaskCancelledError,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from depthbench.study.process import End, Job, TrialProcess, places, wait_for_any

BEAT_SECONDS = 1.0
"""Between two reports of a trial, and between two looks at the cluster."""
STOP_SECONDS = 300.0
"""For trials to end their step and write a checkpoint."""
SEE_SECONDS = 5.0
"""For a new file to be seen on another node."""
STORE_BYTES = 100 * 2**20
"""Of a cluster of our own: nothing big goes through Ray."""


@dataclass(frozen=True)
class Options:
    """What the study asks of Ray."""

    address: str | None
    """None = a cluster of this machine, for this study alone."""
    cores: int
    gpus: float
    seal: str
    """A file that every node must see."""
    scratch: str
    """Folder for the files of a cluster of our own."""


@dataclass
class State:
    """What a trial says about itself."""

    node: str
    pid: int
    tokens: int


class Board:
    """Where trials write how far they are and read whether to stop; an actor beside the driver."""

    def __init__(self) -> None:
        self.states: dict[str, State] = {}
        self.stopping = False

    def tell(self, key: str, state: State) -> bool:
        """Write the state of a trial; whether it is to stop."""
        self.states[key] = state
        return self.stopping

    def read(self) -> dict[str, State]:
        """The states of all trials that were told since the last look."""
        states, self.states = self.states, {}
        return states

    def stop(self) -> None:
        """From now on every trial is told to stop."""
        self.stopping = True


def run_trial(board: Any, key: str, job: Job, seal: str, wanted: str) -> dict[str, Any]:
    """Train one trial on the node that Ray chose; how it ended, as the fields of `End`."""
    node = platform.node()
    lack = missing(job, seal, wanted, version("depthbench"), node)
    if lack is not None:
        return asdict(End(None, lack, refused=True))
    process = _warm(job)
    try:
        answer, told = board.tell.remote(key, State(node, process.pid, 0)), time.monotonic()
        while True:
            wait_for_any([process], BEAT_SECONDS)
            end = process.take()
            if end is not None:
                return asdict(end)
            if time.monotonic() - told < BEAT_SECONDS:
                continue
            ready, _ = ray.wait([answer], timeout=0)
            if not ready:
                continue
            if ray.get(answer):
                process.terminate()
            state = State(node, process.pid, process.tokens)
            answer, told = board.tell.remote(key, state), time.monotonic()
    except BaseException:
        process.terminate()
        process.join()
        raise
    finally:
        if process.gone:
            _KEPT.clear()


_KEPT: list[TrialProcess] = []
"""The process of this Ray worker that trains trials; Ray uses its workers again."""


def _warm(job: Job) -> TrialProcess:
    if _KEPT:
        _KEPT[0].begin(job)
    else:
        _KEPT.append(TrialProcess(job))
    return _KEPT[0]


def missing(
    job: Job, seal: str, wanted: str, has: str, node: str, wait: float = SEE_SECONDS
) -> str | None:
    """What this node lacks to train trials of the study, in words."""
    if has != wanted:
        return (
            f"node {node} has depthbench {has}, the study runs with {wanted}. "
            "Install the same version on every node"
        )
    end = time.monotonic() + wait
    while not Path(seal).exists():
        if time.monotonic() > end:
            return (
                f"node {node} does not see the study's folder {Path(seal).parent}. "
                "Name one on a file system that all nodes share, with --out"
            )
        time.sleep(0.2)
    if not Path(job.data).is_dir():
        return (
            f"node {node} does not see the data in {job.data}. Set DEPTHBENCH_CACHE to a folder "
            "on a file system that all nodes share"
        )
    return None


def room(nodes: Sequence[Mapping[str, Any]], cores: int, gpus: float) -> int:
    """Trials that the living nodes have room for at once; none is split between two."""
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    return sum(places(one.get("CPU", 0), one.get("GPU", 0), cores, gpus) for one in alive)


def largest(nodes: Sequence[Mapping[str, Any]]) -> str:
    """The most that a living node has, in words."""
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    cores, gpus = (max(one.get(name, 0) for one in alive) for name in ("CPU", "GPU"))
    return f"the most that a node has is {cores:g} cores and {gpus:g} GPUs"


@dataclass
class Driver:
    """Starts trials as Ray tasks and reports what becomes of them."""

    options: Options
    out: TextIO
    events: "queue.SimpleQueue[Any]" = field(default_factory=queue.SimpleQueue)
    tasks: dict[str, Any] = field(default_factory=dict)
    """References of running tasks by trial."""
    nodes: dict[str, str] = field(default_factory=dict)
    """Names of the nodes where trials run."""
    room: int = -1
    board: Any = None
    task: Any = None

    def open(self) -> None:
        """Connect to the cluster, or start one."""
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if self.options.address is not None:
            ray.init(address=self.options.address, **quiet)
        else:
            # of processes that Ray ends too suddenly for them to clean up
            os.environ["TMPDIR"] = self.options.scratch
            ray.init(
                address="local",
                include_dashboard=False,
                object_store_memory=STORE_BYTES,
                _temp_dir=self.options.scratch,
                **quiet,
            )
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self.board = ray.remote(Board).options(num_cpus=0, scheduling_strategy=here).remote()
        self.task = ray.remote(run_trial).options(
            num_cpus=self.options.cores, num_gpus=self.options.gpus, max_retries=0
        )

    def serve(self) -> None:
        """Until told to stop: start what comes in, report what ends and how far the rest is."""
        beat = 0.0
        while True:
            if time.monotonic() >= beat:
                self._beat()
                beat = time.monotonic() + BEAT_SECONDS
            try:
                event = self.events.get(timeout=max(0.0, beat - time.monotonic()))
            except queue.Empty:
                continue
            if isinstance(event, Over):
                self._over(event)
            elif event is None or "stop" in event:
                return
            else:
                self._start(event["start"], Job(**event["job"]))

    def say(self, event: dict[str, Any]) -> None:
        """Send one event; a study that is gone has closed its end, which `listen` sees."""
        try:
            print(json.dumps(event), file=self.out, flush=True)
        except OSError:
            self.events.put(None)

    def listen(self) -> None:
        """Take commands in; the end of them is the wish to stop. In a thread of its own."""
        for line in sys.stdin:
            self.events.put(json.loads(line))
        self.events.put(None)

    def _start(self, key: str, job: Job) -> None:
        wanted = version("depthbench")
        reference = self.task.remote(self.board, key, job, self.options.seal, wanted)
        self.tasks[key] = reference
        reference.future().add_done_callback(lambda done: self.events.put(Over(key, done)))

    def _beat(self) -> None:
        nodes = ray.nodes()
        now = room(nodes, self.options.cores, self.options.gpus)
        if now != self.room:
            self.room = now
            self.say({"room": now, "largest": largest(nodes)})
        if self.tasks:
            states: dict[str, State] = ray.get(self.board.read.remote())
            self.nodes |= {key: state.node for key, state in states.items()}
            self.say({"states": {key: asdict(state) for key, state in states.items()}})

    def _over(self, event: "Over") -> None:
        del self.tasks[event.key]
        node = self.nodes.pop(event.key, "unknown")
        try:
            end = event.done.result()
        except (RayError, OSError) as error:
            end = asdict(why(error, node))
        self.say({"over": event.key, "end": end})

    def stop(self) -> None:
        """Let running trials write a checkpoint and end; those that wait never begin."""
        ray.get(self.board.stop.remote())
        end = time.monotonic() + STOP_SECONDS
        began = set(self.nodes) | set(ray.get(self.board.read.remote()))
        for key in set(self.tasks) - began:
            ray.cancel(self.tasks[key])
        while self.tasks and time.monotonic() < end:
            try:
                event = self.events.get(timeout=1.0)
            except queue.Empty:
                continue
            if isinstance(event, Over):
                self._over(event)


@dataclass
class Over:
    """A task has ended, well or not."""

    key: str
    done: Any


def why(error: Exception, node: str) -> End:
    """The end of a trial whose task broke, from Ray's error."""
    if isinstance(error, NodeDiedError):
        return End(None, f"node {node} was lost", broken_off=True)
    if isinstance(error, OutOfMemoryError):
        return End(None, f"node {node} ran out of memory", broken_off=True)
    if isinstance(error, TaskCancelledError):
        return End(None, "it was stopped before it began", broken_off=True)
    if isinstance(error, RayTaskError):
        cause = " ".join(str(error.cause).split())
        return End(None, f"node {node}: {type(error.cause).__name__}: {cause}")
    return End(None, f"its process on node {node} was killed (out of memory?)", broken_off=True)


def main() -> None:
    """Serve one study; what Ray prints goes to stderr, which the study has led to a file."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    driver = Driver(Options(**json.loads(sys.stdin.readline())), out)
    try:
        driver.open()
    except (OSError, RuntimeError, ValueError, RayError) as error:
        driver.say({"refused": " ".join(str(error).split())})
        return
    # Ray has set its own handler, which would leave trials no time
    signal.signal(signal.SIGTERM, lambda *_: driver.events.put(None))
    threading.Thread(target=driver.listen, daemon=True).start()
    try:
        driver.serve()
    finally:
        driver.stop()
        ray.shutdown()
        # the study does this too, unless it was killed
        Path(driver.options.seal).unlink(missing_ok=True)
        shutil.rmtree(driver.options.scratch, ignore_errors=True)
