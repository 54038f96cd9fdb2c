"""Models that are not of this package: which kind a name or folder is, and who reads it."""

import torch

from depthbench.data.tokenizer import HUB
from depthbench.errors import DepthbenchError
from depthbench.files import user_path
from depthbench.probes.load import Opened, Parts
from depthbench.probes.pretrained import NAME, Place, model_type_of, of_hub, open_pretrained

KINDS = (
    "a trial of ours, a Hugging Face folder or name (owner/model), a .gguf file, or an OLMo-core "
    "checkpoint"
)


def open_foreign(source: str, device: str, dtype: torch.dtype, parts: Parts) -> Opened:
    """A Hugging Face model, a GGUF file or an OLMo-core checkpoint.

    Raises `DepthbenchError` for what is none of these.
    """
    return open_pretrained(_place(source), device, dtype, parts)


def _place(source: str) -> Place:
    if source.startswith(HUB):
        return of_hub(source)
    path = user_path(source)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise DepthbenchError(f"{source} is not there. Check the name of the file")
        return Place(source, path.parent, path.name)
    if path.is_dir():
        if model_type_of(path) is not None:
            return Place(source, path)
        files = sorted(one.name for one in path.glob("*.gguf"))
        such = f". It holds a GGUF file: name {path / files[0]}" if files else ""
        raise DepthbenchError(
            f"{source} is a folder without a model: no checkpoints/ of ours, and no config.json "
            f"that names a model_type{such}"
        )
    if path.exists():
        raise DepthbenchError(f"{source} is no model. Name {KINDS}")
    if NAME.fullmatch(source):
        return of_hub(source)
    such = "" if "/" in source else f"; a name without an owner is written {HUB}{source}"
    raise DepthbenchError(f"{source} is not there. Name {KINDS}{such}")
