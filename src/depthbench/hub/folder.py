"""A folder that is written whole or not at all."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from depthbench.errors import DepthbenchError
from depthbench.files import make_folder


def check_new(folder: Path) -> None:
    """Raise `DepthbenchError` unless ``folder`` is empty or not there."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DepthbenchError(f"{folder} exists and is not empty. Name a new folder")


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A place beside ``folder`` to write to, which becomes it at the end; an error leaves nothing.

    Raises `DepthbenchError` unless ``folder`` is new, and where it cannot be written.
    """
    check_new(folder)
    make_folder(folder.parent)
    place: Path | None = None
    try:
        place = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".unfinished-{folder.name}."))
        yield place
        place.chmod(0o755)
        if folder.exists():
            folder.rmdir()
        place.rename(folder)
    except OSError as error:
        raise DepthbenchError(
            f"cannot write {folder}: {error.strerror or error}. Free space, or name another folder"
        ) from None
    finally:
        if place is not None:
            shutil.rmtree(place, ignore_errors=True)
