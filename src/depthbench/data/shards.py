"""Files of little-endian numbers: writing, checking, reading several as one sequence."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from depthbench.data.manifest import Shard
from depthbench.errors import DepthbenchError
from depthbench.files import save_atomic

Dtype = Literal["<u2", "<u4"]


def token_dtype(vocab: int) -> Dtype:
    """The narrowest type that holds every token."""
    return "<u2" if vocab <= 2**16 else "<u4"


def write_shard(
    path: Path, chunks: Iterable[NDArray[Any]], dtype: Dtype, beside: Path | None = None
) -> Shard:
    """Write ``chunks`` one behind another, atomically; see `save_atomic` for ``beside``."""
    digest = hashlib.sha256()
    size = 0

    def save(temporary: str) -> None:
        nonlocal size
        with Path(temporary).open("wb") as file:
            for chunk in chunks:
                data = chunk.astype(dtype).tobytes()
                digest.update(data)
                size += len(data)
                file.write(data)

    save_atomic(path, save, beside)
    return Shard(file=path.name, dtype=dtype, size=size, sha256=digest.hexdigest())


def check_shard(folder: Path, shard: Shard, content: bool = True) -> Path:
    """Path of ``shard``, once its size and (with ``content``) hash agree with the manifest.

    Raises `DepthbenchError` if they do not.
    """
    path = folder / shard.file
    try:
        same = path.stat().st_size == shard.size
        if same and content:
            with path.open("rb") as file:
                same = hashlib.file_digest(file, "sha256").hexdigest() == shard.sha256
    except OSError as error:
        raise DepthbenchError(
            f"{path} cannot be read: {error.strerror or error}. Prepare the data again"
        ) from None
    if not same:
        raise DepthbenchError(
            f"{path} is not what the manifest says (size or hash differs): prepare the data again"
        )
    return path


@final
class Numbers:
    """Memory-mapped shards, read as if they were one."""

    def __init__(self, folder: Path, shards: Sequence[Shard], content: bool = True) -> None:
        """Raises `DepthbenchError` if a shard is not what the manifest says."""
        self.parts = [
            np.memmap(check_shard(folder, shard, content), dtype=shard.dtype, mode="r")
            for shard in shards
        ]
        self.ends = np.cumsum([len(part) for part in self.parts])

    def __len__(self) -> int:
        return int(self.ends[-1])

    def window(self, start: int, length: int) -> NDArray[np.int64]:
        """``length`` numbers from ``start`` on, across shards."""
        number = int(np.searchsorted(self.ends, start, side="right"))
        found: list[NDArray[np.unsignedinteger]] = []
        begin = start - int(self.ends[number]) + len(self.parts[number])
        while length > 0:
            piece = self.parts[number][begin : begin + length]
            found.append(piece)
            length -= len(piece)
            number, begin = number + 1, 0
        return np.concatenate(found).astype(np.int64)
