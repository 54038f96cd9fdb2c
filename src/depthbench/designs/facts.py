"""Made-up parameters and states, for what designs measure on their own connections."""

from typing import TypeVar

import torch
from torch import Tensor, nn

M = TypeVar("M", bound=nn.Module)


def numbers(*shape: int, seed: int = 1) -> Tensor:
    """Normal numbers in float64 on CPU."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")


@torch.no_grad()
def drawn(module: M, std: float = 0.5) -> M:
    """``module`` in float64 on CPU, all its parameters drawn anew: it may have none on meta."""
    module = module.double().to_empty(device="cpu")
    for seed, parameter in enumerate(module.parameters()):
        parameter.copy_(std * numbers(*parameter.shape, seed=seed))
    return module
