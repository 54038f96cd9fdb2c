"""The right to write in a trial's folder: one process has it, on whatever node it runs."""

import os
import platform
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from depthbench.errors import DepthbenchError
from depthbench.files import make_folder, write_atomic

LOCK, OWNER = ".lock", ".lock-owner"
"""Files in a folder that is written to: the lock, and who has it."""
WAIT_SECONDS = 120.0
"""A node that was cut off ends its processes within a minute."""
LOOK_SECONDS = 5.0
"""Between two looks at who the owner is."""
TRY_SECONDS = 0.2


class TakenError(Exception):
    """Another process trains this trial."""


class Claim:
    """Held while a trial is trained."""

    def __init__(self, folder: Path, look: float) -> None:
        self.path, self.look = folder / OWNER, look
        self.owner = f"process {os.getpid()} on {platform.node()} ({secrets.token_hex(4)})"
        self.next_look = 0.0

    def check(self) -> None:
        """Raise `TakenError` if another process is the owner now.

        That happens where a node was cut off for so long that its file lock was given away.
        """
        now = time.monotonic()
        if now < self.next_look:
            return
        self.next_look = now + self.look
        owner = _owner(self.path)
        if owner != self.owner:
            raise TakenError(f"{owner or 'another process'} has taken the trial over")


@contextmanager
def claimed(
    folder: Path,
    stop: Callable[[], bool],
    *,
    wait: float = WAIT_SECONDS,
    look: float = LOOK_SECONDS,
) -> Iterator[Claim]:
    """Hold the claim on a trial's folder.

    Raises `TakenError` if another process holds it for longer than ``wait`` seconds or until
    ``stop()``: a process that its study has lost may need a while to end.
    """
    make_folder(folder)
    lock = filelock.FileLock(folder / LOCK, thread_local=False)
    claim = Claim(folder, look)
    _acquire(lock, claim, stop, time.monotonic() + wait)
    try:
        write_atomic(claim.path, claim.owner)
        yield claim
        if _owner(claim.path) == claim.owner:
            claim.path.unlink(missing_ok=True)
    finally:
        lock.release()


def _acquire(
    lock: filelock.BaseFileLock, claim: Claim, stop: Callable[[], bool], end: float
) -> None:
    while True:
        try:
            lock.acquire(timeout=0)
            return
        except filelock.Timeout:
            if stop() or time.monotonic() > end:
                owner = _owner(claim.path) or "another process"
                raise TakenError(f"{owner} still trains it") from None
        except (OSError, NotImplementedError) as error:
            raise DepthbenchError(
                f"{lock.lock_file} cannot be locked: {error}. Use a folder on a file system with "
                "file locks (NFS 4, or Lustre mounted with flock)"
            ) from None
        time.sleep(TRY_SECONDS)


def _owner(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return None
