"""Trials over the CPUs and GPUs of a Ray cluster, or of this machine through Ray."""

import importlib.util
import json
import os
import queue
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from depthbench.errors import DepthbenchError
from depthbench.files import write_atomic
from depthbench.study.engine import POLL_SECONDS, Ended, Engine, Need, Place, Running, Setup, ended
from depthbench.study.plan import Planned
from depthbench.study.process import End

REACH_SECONDS = 5.0
ANSWER_SECONDS = 60.0
"""For a cluster that runs to take the study in."""
START_SECONDS = 120.0
"""For one to be started."""
STOP_SECONDS = 330.0
"""A little longer than the driver gives the trials."""
JOIN_SECONDS = 30.0
"""For the first node with room to join a cluster."""
END_SECONDS = 30.0
"""For a driver that has nothing to stop."""
EMPTY_SECONDS = 120.0
"""How long a cluster without room for a single trial is waited for: nodes come back."""
SEAL = ".shared-"
COMMAND = "from depthbench.study.ray_driver import main; main()"
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    # without it Ray warns of a change to come
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


class RayEngine(Engine):
    """As many trials at once as the cluster has room for; nodes may come and go.

    Ray lives in a process of its own, so nothing that it does happens to this one.
    """

    here = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.room, self.largest, self.ready = 0, "", False
        self.empty_since = time.monotonic()
        self.log = setup.folder.absolute() / "ray.log"
        for old in setup.folder.glob(f"{SEAL}*"):
            old.unlink(missing_ok=True)
        self.seal = setup.folder.absolute() / f"{SEAL}{secrets.token_hex(8)}"
        write_atomic(self.seal, "")
        # sockets in it may have 107 letters: a Mac's own temporary folder is too long
        short = "/tmp" if sys.platform == "darwin" else None
        self.scratch = tempfile.TemporaryDirectory(
            prefix="db-", dir=short, ignore_cleanup_errors=True
        )
        with self.log.open("w") as log:
            self.driver = subprocess.Popen(
                # -P: a folder "ray" beside the study is no package
                [sys.executable, "-P", "-c", COMMAND],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=QUIET | os.environ,
                # Ctrl-C in the terminal is for this process, which tells the driver what to do
                start_new_session=True,
            )
        self.events: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            self._say(
                {
                    "address": setup.place.address,
                    "cores": setup.need.cores,
                    "gpus": setup.need.gpus,
                    "seal": str(self.seal),
                    "scratch": self.scratch.name,
                }
            )
            self._begin()
        except BaseException:
            self.stop()
            raise

    @classmethod
    def check(cls, place: Place, need: Need) -> None:
        if importlib.util.find_spec("ray") is None:
            raise DepthbenchError(
                "--engine ray: Ray is not installed. Install it with pip install 'depthbench[ray]'"
            )
        # which GPUs there are is known once the cluster is, that none are wanted on a CPU now
        _ = need.gpus
        if place.address is not None and place.address != "auto":
            _reach(place.address)

    @property
    def free(self) -> int:
        return min(self.room, self.setup.place.workers or self.room) - len(self.running)

    def start(self, planned: Planned) -> None:
        job = self.setup.job(planned, elsewhere=True)
        self._say({"start": planned.id, "job": asdict(job)})
        self.running.append(Running(planned))

    def poll(self) -> list[Ended]:
        over = self._take(POLL_SECONDS)
        if self.room or self.running:
            self.empty_since = time.monotonic()
        elif time.monotonic() - self.empty_since > EMPTY_SECONDS:
            raise self._no_room("no node can run a trial any more")
        return over

    def stop(self) -> None:
        self._say({"stop": True})
        try:
            self.driver.wait(STOP_SECONDS if self.ready else END_SECONDS)
        except subprocess.TimeoutExpired:
            self.driver.kill()
            self.driver.wait()
        assert self.driver.stdin is not None
        with suppress(OSError):
            self.driver.stdin.close()
        self.seal.unlink(missing_ok=True)
        self.scratch.cleanup()
        self.running.clear()

    def _begin(self) -> None:
        """Wait until the driver has a cluster."""
        address = self.setup.place.address
        self._take(START_SECONDS if address is None else ANSWER_SECONDS)
        if not self.ready:
            # it waits inside Ray, where it hears nothing
            self.driver.kill()
            raise DepthbenchError(
                "Ray could not be started here"
                if address is None
                else f"--ray-address {address}: what is there does not answer as Ray does. "
                "`ray status` shows the address of a cluster"
            )
        end = time.monotonic() + (0.0 if address is None else JOIN_SECONDS)
        while not self.room and time.monotonic() < end:
            self._take(POLL_SECONDS)
        if not self.room:
            raise self._no_room("no node can run a trial")

    def _say(self, command: dict[str, Any]) -> None:
        assert self.driver.stdin is not None
        try:
            print(json.dumps(command), file=self.driver.stdin, flush=True)
        except OSError:
            # the driver is gone, which the next look at the events finds
            return

    def _listen(self) -> None:
        """Take events in; None when the driver is gone. In a thread of its own."""
        assert self.driver.stdout is not None
        with self.driver.stdout as lines:
            for line in lines:
                self.events.put(json.loads(line))
        self.events.put(None)

    def _take(self, seconds: float) -> list[Ended]:
        """Wait for an event, and take in all that have come; the trials that ended."""
        over: list[Ended] = []
        try:
            event = self.events.get(timeout=seconds)
            while True:
                over += self._understand(event)
                event = self.events.get_nowait()
        except queue.Empty:
            return over

    def _understand(self, event: dict[str, Any] | None) -> list[Ended]:
        if event is None:
            raise DepthbenchError(
                f"the connection to Ray broke. {self.log} tells more; the same command goes on"
            )
        if "refused" in event:
            raise refusal(event["refused"], self.log)
        if "room" in event:
            self.room, self.largest, self.ready = event["room"], event["largest"], True
        for one in self.running:
            if one.planned.id in event.get("states", {}):
                state = event["states"][one.planned.id]
                one.node, one.pid, one.tokens = state["node"], state["pid"], state["tokens"]
        if "over" not in event:
            return []
        [one] = [one for one in self.running if one.planned.id == event["over"]]
        end = End(**event["end"])
        if end.refused:
            raise DepthbenchError(str(end.reason))
        self.running.remove(one)
        return [ended(one, end)]

    def _no_room(self, what: str) -> DepthbenchError:
        need = self.setup.need
        return DepthbenchError(
            f"{what}: it needs {need.cores} cores and {need.gpus:g} GPUs, {self.largest}. "
            "Lower resources, or add a node"
        )


def refusal(said: str, log: Path) -> DepthbenchError:
    """Ray's reason for not beginning, which for a missing token stands in its log alone."""
    if "InvalidAuthToken" in log.read_text(encoding="utf-8", errors="replace"):
        return DepthbenchError(
            "the Ray cluster asks for its token. Set RAY_AUTH_MODE=token where the token is in "
            "~/.ray/auth_token, as it is on the cluster's nodes"
        )
    return DepthbenchError(f"Ray refused: {said} ({log} tells more)")


def _reach(address: str) -> None:
    """Raise `DepthbenchError` unless something listens at ``address``."""
    host, colon, port = address.rpartition(":")
    if "://" in address or not colon or not port.isdecimal():
        raise DepthbenchError(
            f"--ray-address {address}: give the address of the cluster's head node, such as "
            "10.0.0.1:6379, and start depthbench on one of its nodes"
        )
    try:
        socket.create_connection((host, int(port)), timeout=REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise DepthbenchError(
            f"--ray-address {address} cannot be reached: {error}. Check the address, and that "
            "`ray status` knows the cluster there"
        ) from None
