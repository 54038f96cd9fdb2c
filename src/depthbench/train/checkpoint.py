"""Checkpoints of one trial: written whole or not at all, and checked before they are used.

A set of tensors is one file, or a folder of parts that several processes wrote
(torch.distributed.checkpoint, as safetensors); either is read by any number of processes.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from depthbench.config import Frozen, digest_of
from depthbench.errors import DepthbenchError
from depthbench.files import make_folder
from depthbench.train.team import SUFFIX, Solo, Team

FORMAT: Literal[2] = 2
MANIFEST = "state.json"
UNFINISHED = ".unfinished-"

Tensors = dict[str, dict[str, Tensor]]
"""Tensors of each file, by the file's name without its ending."""


class Manifest(Frozen):
    """``state.json``: written last inside a checkpoint, so that it names all that belongs to it."""

    format: Literal[2] = FORMAT
    step: int = Field(ge=0)
    """Optimizer steps that are done; the sampler goes on at this step."""
    config: str
    """Digest of the trial's config, the length of its schedule included."""
    files: dict[str, str]
    """SHA-256 of every other file, by its path inside the checkpoint."""
    versions: dict[str, str]
    state: dict[str, Any]
    """What else the training goes on from."""
    seal: str = ""
    """Digest of all of the above."""

    def sealed(self) -> "Manifest":
        """With the seal that belongs to the rest."""
        return self.model_copy(update={"seal": self._digest()})

    def check(self) -> None:
        """Raise `ValueError` unless this is what was written."""
        if self.seal != self._digest():
            raise ValueError(f"{MANIFEST} is not what was written")

    def _digest(self) -> str:
        return digest_of({k: v for k, v in self.resolved().items() if k != "seal"})


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose files are what its manifest says."""

    path: Path
    manifest: Manifest

    def parts(self, name: str) -> Path | None:
        """The folder of a set of tensors that several processes wrote; None if it is one file."""
        folder = self.path / name
        return folder if folder.is_dir() else None

    def tensors(self, name: str) -> dict[str, Tensor]:
        """A set of tensors, each of them whole."""
        parts = self.parts(name)
        if parts is None:
            return load_file(self.path / f"{name}{SUFFIX}")
        # few checkpoints are in parts, and the library that reads them takes long to import
        from depthbench.train.parts import kinds_of, read_parts

        found = {name: torch.empty_like(one, device="cpu") for name, one in kinds_of(parts).items()}
        read_parts(parts, found, alone=True)
        return found

    def each(self, name: str) -> Iterator[tuple[str, Tensor]]:
        """The tensors of one file, one after the other."""
        with safe_open(self.path / f"{name}{SUFFIX}", "pt") as file:
            keys = file.keys()
            for key in keys:
                yield key, file.get_tensor(key)


def save(
    root: Path,
    step: int,
    config: str,
    tensors: Tensors,
    state: dict[str, Any],
    team: Team | None = None,
) -> Path:
    """Write a checkpoint into a folder of its own below ``root``, and put it in place at once.

    Files are fsynced before the folder gets its name, the name before the call returns. Raises
    `DepthbenchError`, in every process of the ``team``, if that is not possible; earlier
    checkpoints stay as they are.
    """
    team = team or Solo()
    path, unfinished = root / f"step-{step:06d}", root / f"{UNFINISHED}step-{step:06d}"
    if team.told(team.main and _is_whole(path, config)):
        return path

    def begin() -> None:
        make_folder(root)
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()

    def end() -> None:
        files = {
            file.relative_to(unfinished).as_posix(): _synced(file)
            for file in sorted(unfinished.rglob(f"*{SUFFIX}"))
        }
        manifest = Manifest(
            step=step, config=config, files=files, versions=_versions(), state=state
        ).sealed()
        (unfinished / MANIFEST).write_text(manifest.model_dump_json(indent=1), encoding="utf-8")
        _synced(unfinished / MANIFEST)
        for folder in (*(one for one in unfinished.iterdir() if one.is_dir()), unfinished):
            _sync_folder(folder)
        shutil.rmtree(path, ignore_errors=True)
        unfinished.rename(path)
        _sync_folder(root)

    steps = (
        lambda: begin() if team.main else None,
        lambda: team.write(unfinished, tensors),
        lambda: end() if team.main else None,
    )
    for one in steps:
        reason = next((text for text in team.gathered(_reason(one)) if text), None)
        if reason is not None:
            if team.main:
                shutil.rmtree(unfinished, ignore_errors=True)
            raise DepthbenchError(_not_written(root, path, reason))
    return path


def _reason(act: Callable[[], object]) -> str | None:
    """Why ``act`` could not write; None if it could."""
    try:
        act()
    except (OSError, SafetensorError) as error:
        return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return None


def _not_written(root: Path, path: Path, reason: str) -> str:
    kept = [one.name for one in _folders(root)]
    still = f"{kept[-1]} is whole and kept" if kept else "there is no earlier one"
    return (
        f"cannot write checkpoint {path}: {reason.strip().splitlines()[-1]} ({still}). Free space, "
        "or name another folder with --out; the same command goes on from there"
    )


def newest(root: Path, config: str) -> tuple[Checkpoint | None, list[str]]:
    """The last whole checkpoint of this config, and what is wrong with later ones, in words."""
    notes = []
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


def last(root: Path) -> Checkpoint | None:
    """The last checkpoint, whatever its config; None if there is none.

    Raises `DepthbenchError` if it is not what was written.
    """
    found = _folders(root)
    return read(found[-1]) if found else None


def read(path: Path) -> Checkpoint:
    """The checkpoint in ``path``.

    Raises `DepthbenchError` if a file is missing, or not what was written.
    """
    try:
        data = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        manifest = Manifest.parse(data, str(path / MANIFEST))
        manifest.check()
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


def sweep(root: Path) -> None:
    """Remove what a killed save left; for who writes here, since a save may be at work."""
    for left in root.glob(f"{UNFINISHED}*"):
        shutil.rmtree(left, ignore_errors=True)


def prune(root: Path, keep_last: int, best: int | None) -> None:
    """Remove all but the last ``keep_last`` checkpoints and that of step ``best``."""
    kept = {f"step-{best:06d}"} if best is not None else set()
    for path in _folders(root)[:-keep_last]:
        if path.name not in kept:
            shutil.rmtree(path, ignore_errors=True)


def remove(root: Path) -> None:
    """All checkpoints of a trial that starts anew, or that keeps none."""
    shutil.rmtree(root, ignore_errors=True)


def remove_after(root: Path, step: int) -> None:
    """The checkpoints of later steps than ``step``."""
    for path in _folders(root):
        if _step_of(path) > step:
            shutil.rmtree(path, ignore_errors=True)


def _folders(root: Path) -> list[Path]:
    """The checkpoints, by their steps; six digits are no limit."""
    found = (path for path in root.glob("step-*") if path.is_dir())
    return sorted((path for path in found if path.name[5:].isdecimal()), key=_step_of)


def _step_of(path: Path) -> int:
    return int(path.name[5:])


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
