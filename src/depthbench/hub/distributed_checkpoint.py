"""Distributed checkpoints of others, read without running what is in them.

Their index is a pickle, which can run any code when it is read plainly. Here it may name nothing
but the classes that such an index is made of; tensors are read by torch's loader for weights alone.
"""

import io
import pickle
import warnings
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, final

import torch
from torch import Tensor
from torch.distributed.checkpoint import filesystem, metadata
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from depthbench.errors import DepthbenchError

INDEX = ".metadata"


@final
class IndexUnpickler(pickle.Unpickler):
    """Reads an index; whatever else it asks for is refused."""

    CLASSES: ClassVar[dict[tuple[str, str], Any]] = {
        (kind.__module__, kind.__qualname__): kind
        for kind in (
            metadata.BytesStorageMetadata,
            metadata.ChunkStorageMetadata,
            metadata.Metadata,
            metadata.MetadataIndex,
            metadata.StorageMeta,
            metadata.TensorProperties,
            metadata.TensorStorageMetadata,
            metadata._MEM_FORMAT_ENCODING,
            filesystem._StorageInfo,
            filesystem._StoragePrefix,
        )
    }
    THEIRS: ClassVar[dict[tuple[str, str], Any]] = {
        # OLMo-core's own writer names its copies of torch's classes
        ("olmo_core.distributed.checkpoint.filesystem", "_StorageInfo"): filesystem._StorageInfo,
        ("olmo_core.distributed.checkpoint.filesystem", "_StoragePrefix"): (
            filesystem._StoragePrefix
        ),
    }

    def find_class(self, module: str, name: str, /) -> Any:
        found = self.CLASSES.get((module, name)) or self.THEIRS.get((module, name))
        if found is not None:
            return found
        # where it was written; Python 3.13 keeps the class in a module of pathlib's own
        if module in ("pathlib", "pathlib._local") and name.endswith("Path"):
            return PurePosixPath
        if (module, name) == ("torch", "Size"):
            return torch.Size
        if module == "torch.serialization" and name == "_get_layout":
            return torch.serialization._get_layout
        value = torch.__dict__.get(name) if module == "torch" else None
        if isinstance(value, torch.dtype):
            return value
        raise pickle.UnpicklingError(f"it names {module}.{name}")


@final
class SafeReader(FileSystemReader):
    """`FileSystemReader` whose index is read by `IndexUnpickler`."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        path = Path(str(self.path)) / INDEX
        try:
            found = IndexUnpickler(io.BytesIO(path.read_bytes())).load()
        except OSError as error:
            raise DepthbenchError(
                f"{path} cannot be read: {error.strerror or error}. A distributed checkpoint "
                "needs it"
            ) from None
        # a broken pickle raises nearly anything
        except Exception as error:
            raise DepthbenchError(
                f"{path} is no index of a distributed checkpoint, and is not run to find out "
                f"({str(error).splitlines()[0] if str(error) else type(error).__name__})"
            ) from None
        if not isinstance(found, Metadata):
            raise DepthbenchError(f"{path} holds a {type(found).__name__}, no checkpoint's index")
        if found.storage_meta is None:
            found.storage_meta = StorageMeta()
        found.storage_meta.load_id = self.load_id
        return found


def read_tensors(folder: Path, prefix: str = "model.") -> dict[str, Tensor]:
    """Tensors of the checkpoint in ``folder`` whose names begin with ``prefix``, without it.

    All tensors, if no name begins with it. Raises `DepthbenchError` for a broken checkpoint.
    """
    reader = SafeReader(str(folder))
    kinds = {
        name: one
        for name, one in reader.read_metadata().state_dict_metadata.items()
        if isinstance(one, TensorStorageMetadata)
    }
    chosen = [name for name in kinds if name.startswith(prefix)] or list(kinds)
    into = {
        name: torch.empty(kinds[name].size, dtype=kinds[name].properties.dtype) for name in chosen
    }
    try:
        with warnings.catch_warnings():
            # it warns of what is asked for: reading in one process
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            load(into, storage_reader=reader, no_dist=True)
    # torch wraps whatever went wrong in an error of its own, which is no Exception
    except (Exception, CheckpointException) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise DepthbenchError(f"{folder} cannot be read ({reason[-1]}). Copy it again") from None
    return {name.removeprefix(prefix): tensor for name, tensor in into.items()}


def write_tensors(folder: Path, tensors: dict[str, Tensor], prefix: str = "model.") -> None:
    """Write a distributed checkpoint of one process into a folder that holds none."""
    named = {prefix + name: tensor.detach() for name, tensor in tensors.items()}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        save(named, storage_writer=FileSystemWriter(str(folder), overwrite=False), no_dist=True)
