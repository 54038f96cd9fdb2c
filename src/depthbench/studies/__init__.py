"""Study files that come with the package."""

from importlib import resources
from pathlib import Path
from typing import Any

from depthbench.config import read_toml
from depthbench.errors import DepthbenchError, nearest


def packaged() -> dict[str, Path]:
    """Name and path of every study in the package."""
    folder = Path(str(resources.files(__name__)))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def read_study(name_or_path: str) -> dict[str, Any]:
    """The tables of a study file, or of a packaged study by name.

    Raises `DepthbenchError` with the packaged names when neither exists.
    """
    known = packaged()
    if name_or_path in known:
        return read_toml(known[name_or_path])
    path = Path(name_or_path)
    if path.suffix != ".toml" and not path.exists():
        raise DepthbenchError(
            f"no study file '{name_or_path}'{nearest(name_or_path, known) or '.'} Name a .toml "
            f"file, or a study of the package: {', '.join(known)}"
        )
    return read_toml(path)
