"""Norms over the width axis."""

from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from depthbench.nn.fast_norm import rms_norm_fast, rms_norm_plain
from depthbench.nn.kernels import fast, holding
from depthbench.nn.parameters import Parametrised, Start, constant


@final
class RMSNorm(Parametrised):
    """``x / sqrt(mean(x²) + eps) ⊙ gain`` (arXiv 1910.07467), in float32 or better."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.gain = nn.Parameter(torch.empty(width))

    def starts(self) -> dict[str, Start]:
        return {"gain": constant(1.0)}

    def forward(self, x: Float[Tensor, "*axes d"]) -> Float[Tensor, "*axes d"]:
        norm = rms_norm_fast if fast(x) else rms_norm_plain
        return norm(x, self.gain, self.eps)


@final
class LayerNorm(Parametrised):
    """``(x - mean(x)) / sqrt(var(x) + eps) ⊙ gain``, without bias (arXiv 1607.06450)."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.gain = nn.Parameter(torch.empty(width))

    def starts(self) -> dict[str, Start]:
        return {"gain": constant(1.0)}

    def forward(self, x: Float[Tensor, "*axes d"]) -> Float[Tensor, "*axes d"]:
        x = x.to(self.gain.dtype)
        if holding():
            centred = x - x.mean(-1, keepdim=True)
            return rms_norm_plain(centred, self.gain, self.eps)
        return nn.functional.layer_norm(x, self.gain.shape, self.gain, None, self.eps)
