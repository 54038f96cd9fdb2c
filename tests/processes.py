"""Processes of this machine, as the tests look at them."""

import subprocess
import time
from collections.abc import Callable


def processes_of(word: str) -> list[str]:
    """Command lines of processes that name ``word``."""
    listed = subprocess.run(["ps", "-ewwo", "args"], capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if word in line]


def is_alive(pid: int) -> bool:
    """Whether there is such a process, and nobody has only forgotten to bury it."""
    listed = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return listed.stdout.strip()[:1] not in ("", "Z")


def wait_for(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    """Until ``condition()`` holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)
