"""Made-up connections and states for `Design.facts`: float64, on CPU, seeded."""

from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from depthbench.nn.parameters import initialise

M = TypeVar("M", bound=nn.Module)


def started(module: M) -> M:
    """``module`` on CPU in float64 with the start of every parameter."""
    module = module.double().to_empty(device="cpu")
    initialise(module, seed=0)
    return module


def filled(module: M, seed: int = 0) -> M:
    """``module`` on CPU in float64 with random parameters of order 1."""
    module = module.double().to_empty(device="cpu")
    with torch.no_grad():
        for number, parameter in enumerate(module.parameters()):
            parameter.copy_(noise(*parameter.shape, seed=1000 * seed + number))
    return module


def uniform(module: M, value: float) -> M:
    """``module`` on CPU in float64, all of whose parameters are ``value``."""
    module = module.double().to_empty(device="cpu")
    for parameter in module.parameters():
        nn.init.constant_(parameter, value)
    return module


def noise(*axes: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    """Normal numbers of standard deviation ``scale``."""
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(axes, generator=generator, dtype=torch.float64, device="cpu")


def rms(x: Tensor) -> float:
    """Root of the mean square of all entries."""
    return x.detach().square().mean().sqrt().item()


def farthest(x: Tensor, y: Tensor) -> float:
    """Largest difference of two entries."""
    return (x - y).detach().abs().max().item()


def coefficients(total: Float[Tensor, "*axes"], *terms: Float[Tensor, "*axes"]) -> list[float]:
    """``c`` of the least ``‖total - Σ_i c_i terms_i‖``."""
    columns = torch.stack([term.detach().flatten() for term in terms], dim=1)
    solved = torch.linalg.lstsq(columns, total.detach().flatten()[:, None]).solution
    return solved.flatten().tolist()
