"""GPU kernels of other packages that compute what some of this package's functions do.

Each adapter takes a package's function to the layout of ours; what the two call rows, columns, eps
and gain is settled here and nowhere else. They give first derivatives alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version

import torch
from torch import Tensor

from depthbench.nn.kernels import plain_only
from depthbench.nn.loss import Finish

Function = Callable[..., Tensor]
"""One of another package."""
Mixer = Callable[[Sequence[Tensor], Tensor, float], tuple[Tensor, Tensor]]
"""``mixer(sources, query, eps)``: their softmax mix, and its weights, which have no gradient."""


@dataclass(frozen=True)
class Kernels:
    """What stands in for torch's own operations; None where nothing does."""

    read_streams: Callable[[Tensor, Tensor], Tensor] | None = None
    """``(H, α)``: ``Σ_s α_s H_s``."""
    mix_and_write: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] | None = None
    """``(H, A, y, β)``: new stream ``j`` = ``Σ_i A[i, j] H_i + β_j y``."""
    mix_sources: Mixer | None = None
    loss: Callable[[Tensor, int], Finish] | None = None
    """``(targets, vocab)``: the mean cross entropy, without all logits at once."""


PLAIN = Kernels()


def suits(tensor: Tensor) -> bool:
    """Whether kernels may be given ``tensor``: float32, where not torch's own alone may run."""
    return tensor.dtype == torch.float32 and not plain_only()


def power_of_two(number: int) -> bool:
    """What kernels ask of a number of streams."""
    return number & (number - 1) == 0


def reader(liger_mhc_pre: Function) -> Callable[[Tensor, Tensor], Tensor]:
    """``Σ_s h_pre[s] x[s]`` is ours as it is."""

    def read(streams: Tensor, read: Tensor) -> Tensor:
        return liger_mhc_pre(streams, read.expand(streams.shape[:3]).contiguous())

    return read


def writer(liger_mhc_post_res: Function) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """``x_out[o] = Σ_i h_res[o, i] x[i] + h_post[o] f``: the transpose of our ``A[i, j]``."""

    def write(streams: Tensor, mix: Tensor, y: Tensor, write: Tensor) -> Tensor:
        each = streams.shape[:3]
        turned = mix.expand(*each, each[2]).transpose(-1, -2).contiguous()
        return liger_mhc_post_res(streams, y.contiguous(), write.expand(each).contiguous(), turned)

    return write


def mixer(fused_attnres: Callable[..., tuple[Tensor, Tensor]]) -> Mixer:
    """``softmax_l(<RMSNorm(v_l) ⊙ w, q>)`` with ``w = 1``: our queries hold their gain already."""

    def mix(sources: Sequence[Tensor], query: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        gain = torch.ones_like(query)
        return fused_attnres(query, sources, gain, rms_eps=eps, return_weights=True)

    return mix


def mean_loss(liger_fused_linear_cross_entropy: Function) -> Callable[[Tensor, int], Finish]:
    """The factor on the logits goes to what the matrix is applied to."""

    def loss(targets: Tensor, vocab: int) -> Finish:
        def finish(x: Tensor, weight: Tensor, factor: float) -> Tensor:
            rows = (x if factor == 1.0 else factor * x).flatten(0, 1)
            return liger_fused_linear_cross_entropy(rows, weight[:vocab], targets.flatten())

        return finish

    return loss


def _liger(kernels: Kernels) -> Kernels:
    from liger_kernel.transformers.functional import (  # pyright: ignore[reportMissingImports]
        liger_fused_linear_cross_entropy,
        liger_mhc_post_res,
        liger_mhc_pre,
    )

    return replace(
        kernels,
        read_streams=reader(liger_mhc_pre),
        mix_and_write=writer(liger_mhc_post_res),
        loss=mean_loss(liger_fused_linear_cross_entropy),
    )


def _fla(kernels: Kernels) -> Kernels:
    from fla.ops.attnres import fused_attnres  # pyright: ignore[reportMissingImports]

    return replace(kernels, mix_sources=mixer(fused_attnres))


PACKAGES: dict[str, Callable[[Kernels], Kernels]] = {
    "liger-kernel": _liger,
    "flash-linear-attention": _fla,
}
"""Adds what a package brings; raises `ImportError` where it is not there or too old."""


def load_kernels(device: torch.device) -> tuple[Kernels, list[str]]:
    """The kernels for ``device``, and in words where they come from or why there are none."""
    if device.type != "cuda":
        return PLAIN, [f"kernels: torch's own operations, for there are none on {device.type}"]
    found, notes = PLAIN, []
    for package, add in PACKAGES.items():
        try:
            found = add(found)
            notes.append(f"kernels: those of {package} {version(package)}")
        except ImportError as error:
            notes.append(f"kernels: none of {package} ({error}). Install depthbench[kernels]")
    return found, notes
