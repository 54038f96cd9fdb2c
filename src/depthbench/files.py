"""Atomic writes: a reader sees the old file or the new one, never half of one."""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from depthbench.errors import DepthbenchError


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write ``content`` to ``path`` through a temporary file, fsync and rename.

    Raises `DepthbenchError` in one line when the folder cannot be written or the disk is full.
    """
    data = content.encode() if isinstance(content, str) else content
    save_atomic(path, lambda temporary: Path(temporary).write_bytes(data))


def save_atomic(path: Path, save: Callable[[str], object]) -> None:
    """Let ``save`` fill a temporary file beside ``path``, then put it in place atomically."""
    make_folder(path.parent)
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        save(temporary)
        with Path(temporary).open("rb") as written:
            os.fsync(written.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError as error:
        raise DepthbenchError(
            f"cannot write {path}: {error.strerror or error}. Name a folder that can be written"
        ) from None
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Create ``path`` and its parents; a one-line error when that is not possible."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DepthbenchError(
            f"cannot create the folder {path}: {error.strerror or error}. "
            "Name a folder that can be written with --out"
        ) from None


def append_line(path: Path, record: dict[str, Any]) -> None:
    """Append one JSON line and fsync it; a torn last line of a killed run is cut off first.

    Raises `DepthbenchError` in one line when the file cannot be written.
    """
    make_folder(path.parent)
    line = json.dumps(record, allow_nan=False, sort_keys=True) + "\n"
    try:
        with path.open("a+b") as file:
            _cut_torn_line(file)
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise DepthbenchError(f"cannot write {path}: {error.strerror or error}") from None


def _cut_torn_line(file: Any) -> None:
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return
    file.seek(-1, os.SEEK_END)
    if file.read(1) == b"\n":
        return
    file.seek(0)
    whole = file.read()
    file.truncate(whole.rfind(b"\n") + 1)
    file.seek(0, os.SEEK_END)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON lines of ``path``; a torn last line is left out, a broken earlier one an error."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    records: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError as error:
            if number == len(lines):
                break
            raise DepthbenchError(
                f"{path} line {number} is no valid JSON ({error.msg}). "
                "Remove that line, or run the study again"
            ) from None
    return records
