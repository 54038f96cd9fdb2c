"""The model that a run begins with, instead of one drawn from a seed."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import save
from torch import Tensor

from depthbench.nn.model import ModelConfig
from depthbench.train.load import config_of, weights_of


@dataclass(frozen=True)
class Beginning:
    """A model and its weights."""

    model: ModelConfig
    tensors: dict[str, Tensor]
    """Whole, by the model's own names."""

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits of the SHA-256 of the weights as safetensors."""
        kept = {name: self.tensors[name].contiguous() for name in sorted(self.tensors)}
        return hashlib.sha256(save(kept)).hexdigest()[:12]


def beginning_of(folder: Path) -> Beginning:
    """Of a trial or run, or of a folder that ``depthbench convert`` wrote.

    Raises `DepthbenchError` for a folder that is neither, or holds no whole model.
    """
    if not (folder / "checkpoints").is_dir() and (folder / "config.json").is_file():
        # transformers takes seconds to import
        from depthbench.hub.own_folder import is_own, read_model

        if is_own(folder):
            model = read_model(folder)
            return Beginning(model.config, dict(model.float().state_dict()))
    config = config_of(folder)
    return Beginning(config.model, weights_of(folder).tensors("model"))
