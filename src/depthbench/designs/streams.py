"""What designs with several streams share: `(b, t, s, d)` states and their products."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from depthbench.designs.base import Design, Route
from depthbench.nn.branch import Context
from depthbench.nn.precision import at_least_float32, full_precision


@dataclass(frozen=True)
class StreamRoute(Route):
    """Coefficients of one site, per token: read ``α``, mix ``A`` and write ``β``."""

    read: Float[Tensor, "*bt s"] | None = None
    mix: Float[Tensor, "*bt s s"] | None = None
    """``A[i, j]``: how much of old stream ``i`` goes to new stream ``j``; None for no mixing."""
    write: Float[Tensor, "*bt s"] | None = None

    def mixes(self) -> tuple[Float[Tensor, "*bt s s"], ...]:
        return () if self.mix is None else (self.mix,)


class StreamDesign(Design[Tensor], ABC):
    """Several streams, on an axis of their own, that start as copies of the embedding."""

    @property
    @abstractmethod
    def streams(self) -> int:
        """Number of streams."""

    def open(self, embedding: Float[Tensor, "b t d"], context: Context) -> Float[Tensor, "b t s d"]:
        return embedding.unsqueeze(2).repeat(1, 1, self.streams, 1)

    def depth_state(self, state: Float[Tensor, "b t s d"]) -> Float[Tensor, "b t width"]:
        return state.flatten(2)

    def with_depth_state(
        self, state: Float[Tensor, "b t s d"], z: Float[Tensor, "b t width"]
    ) -> Float[Tensor, "b t s d"]:
        return z.unflatten(2, state.shape[2:])


class MixedStreamDesign(StreamDesign, ABC):
    """``m`` streams that every site mixes, read out as their mean.

    The mean, not the sum: the readout stays on the scale of one stream.
    """

    @property
    def streams(self) -> int:
        return self.config.streams

    def readout(self, state: Float[Tensor, "b t s d"]) -> Float[Tensor, "b t d"]:
        return state.mean(2)

    def reads_out_mean(self) -> bool:
        return True


def mix_and_write_plain(
    streams: Float[Tensor, "b t s d"],
    mix: Float[Tensor, "*bt s s"] | None,
    y: Float[Tensor, "b t d"],
    write: Float[Tensor, "*bt s"],
) -> Float[Tensor, "b t s d"]:
    """New stream ``j`` = ``Σ_i A[i, j] H_i + β_j y``; without ``mix`` = ``H_j + β_j y``."""
    written = write.unsqueeze(-1) * y.unsqueeze(2)
    if mix is None:
        return (streams + written).to(streams.dtype)
    mixed = torch.matmul(mix.transpose(-1, -2), streams.to(mix.dtype))
    return (mixed + written).to(streams.dtype)


def read_streams_plain(
    streams: Float[Tensor, "b t s d"], read: Float[Tensor, "*bt s"]
) -> Float[Tensor, "b t d"]:
    """``Σ_s α_s H_s``."""
    return (read.unsqueeze(-1) * streams).sum(2)


def normed_projection_plain(
    x: Float[Tensor, "*axes d"], weight: Float[Tensor, "k d"], eps: float
) -> Float[Tensor, "*axes k"]:
    """``W x / sqrt(mean(x²) + eps)``, in float32 or better."""
    with full_precision(x):
        x = at_least_float32(x)
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
        return torch.nn.functional.linear(x, at_least_float32(weight)) * scale
