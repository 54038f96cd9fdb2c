"""A model's weights in a few digits."""

import hashlib

import torch
from torch import nn

from depthbench.errors import DepthbenchError


def check_finite(model: nn.Module, source: str) -> None:
    """Raise `DepthbenchError` if a weight is NaN or infinite: no measure of it would hold."""
    for name, tensor in model.named_parameters():
        if not bool(torch.isfinite(tensor).all()):
            raise DepthbenchError(
                f"{source}: the weights hold values that are not finite ({name}). The model has "
                "diverged or its file is damaged: take an earlier checkpoint"
            )


def hash_of(model: nn.Module) -> str:
    """Twelve hexadecimal digits of all parameters and buffers with their names, in any place."""
    digest = hashlib.sha256()
    seen: dict[str, torch.Tensor] = dict(model.named_parameters())
    seen |= dict(model.named_buffers())
    for name in sorted(seen):
        tensor = seen[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:12]
