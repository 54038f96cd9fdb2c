"""Folders of tensors that several processes write together, each its parts, as safetensors."""

import warnings
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save


def write_parts(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Write what this process holds of ``tensors``; all processes of the group together.

    Raises `OSError` in each of them if one cannot write.
    """
    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    try:
        save(dict(tensors), storage_writer=writer)
    except CheckpointException as error:
        raise OSError(str(error)) from error


def kinds_of(folder: Path) -> dict[str, Tensor]:
    """The tensors in ``folder`` on the meta device: sizes and kinds of number, whole."""
    found = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    return {
        name: torch.empty(one.size, dtype=one.properties.dtype, device="meta")
        for name, one in found.items()
        if isinstance(one, TensorStorageMetadata)
    }


def read_parts(folder: Path, into: dict[str, Tensor], *, alone: bool) -> None:
    """Fill ``into`` with what it names, laid out as its tensors are.

    All processes of the group together, unless this one is ``alone``.
    """
    with warnings.catch_warnings():
        # it warns of what is asked for: reading in one process
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        load(into, storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=alone)
