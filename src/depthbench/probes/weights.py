"""A model's weights in a few digits."""

import hashlib

import torch
from torch import nn


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
