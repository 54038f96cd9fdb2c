"""Checkpoints of one trial: written whole or not at all, and checked before they are used."""

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from depthbench.config import Frozen
from depthbench.errors import DepthbenchError
from depthbench.files import make_folder

FORMAT: Literal[1] = 1
MANIFEST = "state.json"
SUFFIX = ".safetensors"
UNFINISHED = ".unfinished-"

Tensors = dict[str, dict[str, Tensor]]
"""Tensors of each file, by the file's name without its ending."""


class Manifest(Frozen):
    """``state.json``: written last inside a checkpoint, so that it names all that belongs to it."""

    format: Literal[1] = FORMAT
    step: int = Field(ge=0)
    """Optimizer steps that are done; the sampler goes on at this step."""
    config: str
    """Digest of the trial's config, the length of its schedule included."""
    files: dict[str, str]
    """SHA-256 of every other file."""
    versions: dict[str, str]
    state: dict[str, Any]
    """What else the training goes on from."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose files are what its manifest says."""

    path: Path
    manifest: Manifest

    def tensors(self, name: str) -> dict[str, Tensor]:
        """The tensors of one file."""
        return load_file(self.path / f"{name}{SUFFIX}")


def save(root: Path, step: int, config: str, tensors: Tensors, state: dict[str, Any]) -> Path:
    """Write a checkpoint into a folder of its own below ``root``, and put it in place at once.

    Files are fsynced before the folder gets its name, the name before the call returns. Raises
    `DepthbenchError` if that is not possible; earlier checkpoints stay as they are.
    """
    make_folder(root)
    path, unfinished = root / f"step-{step:06d}", root / f"{UNFINISHED}step-{step:06d}"
    if _is_whole(path, config):
        return path
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        files = {}
        for name, own in tensors.items():
            file = unfinished / f"{name}{SUFFIX}"
            save_file({key: tensor.contiguous() for key, tensor in own.items()}, file)
            files[file.name] = _synced(file)
        manifest = Manifest(
            step=step, config=config, files=files, versions=_versions(), state=state
        )
        (unfinished / MANIFEST).write_text(manifest.model_dump_json(indent=1), encoding="utf-8")
        _synced(unfinished / MANIFEST)
        _sync_folder(unfinished)
        shutil.rmtree(path, ignore_errors=True)
        unfinished.rename(path)
        _sync_folder(root)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        kept = [one.name for one in _folders(root)]
        still = f"{kept[-1]} is whole and kept" if kept else "there is no earlier one"
        raise DepthbenchError(
            f"cannot write checkpoint {path}: {reason} ({still}). Free space, or name another "
            "folder with --out; the same command goes on from there"
        ) from None
    return path


def newest(root: Path, config: str) -> tuple[Checkpoint | None, list[str]]:
    """The last whole checkpoint of this config, and what is wrong with later ones, in words.

    What a killed save left is removed.
    """
    notes = []
    for left in root.glob(f"{UNFINISHED}*"):
        shutil.rmtree(left, ignore_errors=True)
    for path in reversed(_folders(root)):
        try:
            found = read(path)
        except DepthbenchError as error:
            notes.append(f"{error}; the one before it is used")
            continue
        if found.manifest.config == config:
            return found, notes
        notes.append(f"{path} is of another config; it is left alone")
    return None, notes


def read(path: Path) -> Checkpoint:
    """The checkpoint in ``path``.

    Raises `DepthbenchError` if a file is missing, or not what was written.
    """
    try:
        data = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        manifest = Manifest.parse(data, str(path / MANIFEST))
        wrong = [name for name, digest in manifest.files.items() if _digest(path / name) != digest]
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DepthbenchError(f"{path} is no whole checkpoint: {reason}") from None
    if wrong:
        raise DepthbenchError(f"{path} was altered: {', '.join(wrong)} is not what was written")
    return Checkpoint(path, manifest)


def _is_whole(path: Path, config: str) -> bool:
    """Whether this very step is there already: a resumed run makes it again, bit for bit."""
    try:
        return read(path).manifest.config == config
    except DepthbenchError:
        return False


def prune(root: Path, keep_last: int, best: int | None) -> None:
    """Remove all but the last ``keep_last`` checkpoints and that of step ``best``."""
    kept = {f"step-{best:06d}"} if best is not None else set()
    for path in _folders(root)[:-keep_last]:
        if path.name not in kept:
            shutil.rmtree(path, ignore_errors=True)


def remove(root: Path) -> None:
    """All checkpoints of a trial that starts anew, or that keeps none."""
    shutil.rmtree(root, ignore_errors=True)


def _folders(root: Path) -> list[Path]:
    return sorted(path for path in root.glob("step-*") if path.is_dir())


def _synced(path: Path) -> str:
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return _digest(path)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync_folder(path: Path) -> None:
    """Names in a folder are durable only once it is synced itself; Windows cannot."""
    if os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _versions() -> dict[str, str]:
    return {"depthbench": version("depthbench"), "torch": torch.__version__}
