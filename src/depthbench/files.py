"""Atomic writes: a reader sees the old file or the new one, never half of one."""

import errno
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from depthbench.errors import DepthbenchError


def write_atomic(path: Path, content: str | bytes, beside: Path | None = None) -> None:
    """Write ``content`` to ``path`` through a temporary file (see `save_atomic`), fsync and rename.

    Raises `DepthbenchError` in one line when the folder cannot be written or the disk is full.
    """
    data = content.encode() if isinstance(content, str) else content
    save_atomic(path, lambda temporary: Path(temporary).write_bytes(data), beside)


def save_atomic(path: Path, save: Callable[[str], object], beside: Path | None = None) -> None:
    """Let ``save`` fill a temporary file, then put it in place as ``path`` atomically.

    The temporary file is made in ``path``'s folder, or in ``beside`` on the same disk.
    """
    make_folder(path.parent)
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=beside or path.parent, prefix=f".{path.name}.")
        os.close(handle)
        save(temporary)
        with Path(temporary).open("rb") as written:
            os.fsync(written.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError as error:
        raise DepthbenchError(
            f"cannot write {path}: {error.strerror or error}. {_remedy(error)}"
        ) from None
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def replace_text(path: Path, text: str) -> None:
    """Put ``text`` in place as ``path``, whole for every reader, but not durably.

    For what may be lost with the power, where waiting for the disk costs more; one process
    writes it. Raises `OSError`.
    """
    # always the same name: what a kill leaves behind is used up by the next write
    new = path.with_name(f".{path.name}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


def _remedy(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "Free some space, or name a folder on another disk"
    return "Name a folder that can be written"


def user_path(given: str) -> Path:
    """``given`` with ``~`` replaced by the home folder; unchanged where there is no such user."""
    try:
        return Path(given).expanduser()
    except RuntimeError:
        return Path(given)


def try_to_reach(path: Path) -> None:
    """Raise `OSError` where the system refuses ``path``: a name too long, no permission.

    That nothing is there is no refusal. `Path.is_dir` and its kind raise for the one or the other
    in some versions of Python, and answer False in others.
    """
    try:
        path.stat()
    except ValueError:  # a NUL, which no name has
        return
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise


def make_folder(path: Path) -> None:
    """Create ``path`` and its parents; a one-line error when that is not possible."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DepthbenchError(
            f"cannot create the folder {path}: {error.strerror or error}. "
            "Name another folder, which can be written"
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
    """The JSON objects of ``path``, one a line; none when there is no such file.

    A last line without its end is left out, as `append_line` cuts it off. Raises `DepthbenchError`
    for any other line that is no JSON object, and for a file that cannot be read.
    """
    return [_record(path, n, line) for n, line in enumerate(whole_lines(path), 1) if line.strip()]


def whole_lines(path: Path) -> list[bytes]:
    """The lines of ``path`` that have their end; none when there is no such file.

    Raises `DepthbenchError` for a file that cannot be read.
    """
    if not path.exists():
        return []
    try:
        return path.read_bytes().split(b"\n")[:-1]
    except OSError as error:
        raise DepthbenchError(
            f"{path} cannot be read: {error.strerror or error}. Check its permissions"
        ) from None


def _record(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "no UTF-8 text"
    else:
        if isinstance(record, dict):
            return record
        reason = "no object"
    raise DepthbenchError(
        f"{path} line {number} is no valid JSON ({reason}). "
        "Remove that line, or run the study again"
    )
