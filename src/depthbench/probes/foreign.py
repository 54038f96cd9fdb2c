"""Models that are not of this package: which kind a name or folder is, and who reads it."""

import torch

from depthbench.errors import DepthbenchError
from depthbench.probes.load import Opened, Parts


def open_foreign(source: str, device: str, dtype: torch.dtype, parts: Parts) -> Opened:
    """A Hugging Face model, a GGUF file or an OLMo-core checkpoint.

    Raises `DepthbenchError` for what is none of these.
    """
    raise DepthbenchError(f"{source} is no model that this version reads")
