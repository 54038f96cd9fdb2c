"""What an unfinished preparation has done so far: files, and a journal that names whole ones."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

import filelock
import numpy as np
from numpy.typing import NDArray

from depthbench.data.manifest import Shard
from depthbench.data.shards import check_shard
from depthbench.data.unit import Made, Unit
from depthbench.errors import DepthbenchError
from depthbench.files import append_line, make_folder, read_lines, save_atomic, write_atomic

FOLDER = ".work"
PLAN = "plan.json"


@final
class Journal:
    """The folder ``.work`` of a dataset in the making."""

    def __init__(self, folder: Path) -> None:
        self.target = folder
        self.folder = folder / FOLDER
        self.path = self.folder / "journal.jsonl"
        self.units: dict[str, dict[str, Any]] = {}
        """Facts of every unit that is done, by key."""
        self.shards: dict[str, list[Shard]] = {}
        """Files of every shard that is done."""

    def begin(self, plan: dict[str, Any]) -> None:
        """Go on with this plan (plain JSON), or start it.

        Raises `DepthbenchError` if another one is unfinished here.
        """
        path = self.folder / PLAN
        if not path.exists():
            write_atomic(path, json.dumps(plan, indent=1) + "\n")
            return
        try:
            earlier = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            earlier = {}
        different = [name for name in plan if earlier.get(name) != plan[name]]
        if different:
            raise DepthbenchError(
                f"{self.target} holds an unfinished preparation that differs in "
                f"{', '.join(different)}. Run its own command again, remove {self.folder}, or name "
                "another folder with --out"
            )
        for record in read_lines(self.path):
            if "unit" in record:
                self._found(record)
            else:
                files = [Shard.parse(file) for file in record["files"]]
                self.shards[record["shard"]] = files

    def _found(self, record: dict[str, Any]) -> None:
        path = self._unit(record["unit"])
        if path.exists() and path.stat().st_size == record["size"]:
            self.units[record["unit"]] = record

    def add_unit(self, unit: Unit, made: Made, read: int, state: Any) -> dict[str, Any]:
        """Keep a unit's result; it counts once its line is in the journal.

        ``read`` bytes of input made it, and ``state`` is where the input stands behind it."""

        def save(temporary: str) -> None:
            with Path(temporary).open("wb") as file:
                for array in (made.records, made.tokens, made.sizes):
                    np.save(file, array, allow_pickle=False)

        path = self._unit(unit.key)
        save_atomic(path, save)
        record = {
            "unit": unit.key,
            "size": path.stat().st_size,
            "documents": len(made.records),
            "bytes": int(made.records["bytes"].sum()),
            "tokens": len(made.tokens),
            "left_out": len(made.left_out),
            "first_left_out": made.left_out[0] if made.left_out else None,
            "read": read,
            "state": state,
        }
        append_line(self.path, record)
        self.units[unit.key] = record
        return record

    def records(self, key: str) -> NDArray[Any]:
        """A unit's documents."""
        with self._unit(key).open("rb") as file:
            return np.load(file, allow_pickle=False)

    def arrays(self, key: str) -> tuple[NDArray[Any], NDArray[Any]]:
        """A unit's tokens, and the sizes of those that validate."""
        with self._unit(key).open("rb") as file:
            np.load(file, allow_pickle=False)
            return np.load(file, allow_pickle=False), np.load(file, allow_pickle=False)

    def shard(self, name: str) -> list[Shard] | None:
        """Files of a shard that was written before, if they are still what they were."""
        try:
            for file in self.shards.get(name, []):
                check_shard(self.target, file)
        except DepthbenchError:
            return None
        return self.shards.get(name)

    def add_shard(self, name: str, files: list[Shard]) -> None:
        """Note a shard whose files are in place."""
        append_line(self.path, {"shard": name, "files": [file.resolved() for file in files]})
        self.shards[name] = files

    def _unit(self, key: str) -> Path:
        return self.folder / f"{key}.unit"


@contextmanager
def locked(folder: Path) -> Iterator[Journal]:
    """The journal of ``folder``, for one process at a time.

    `.work` goes if the block ends well, or nothing was done in it.

    Raises `DepthbenchError` if another process is at it.
    """
    journal = Journal(folder)
    make_folder(journal.folder)
    lock = filelock.FileLock(journal.folder / ".lock", blocking=False)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise DepthbenchError(
            f"{folder} is being prepared by another process. Wait for it, or use --out"
        ) from None
    except OSError as error:
        raise DepthbenchError(
            f"cannot write {journal.folder}: {error.strerror or error}. "
            "Name a folder that can be written with --out"
        ) from None
    done = False
    try:
        yield journal
        done = True
    finally:
        lock.release()
        if done or not journal.path.exists():
            shutil.rmtree(journal.folder, ignore_errors=True)
            _remove_if_empty(folder)


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return
