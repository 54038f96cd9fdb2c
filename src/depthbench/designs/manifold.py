"""Stream connections whose coefficients are bounded: what mHC and its kin share."""

import math
from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from depthbench.designs.fast_streams import normed_projection
from depthbench.designs.stream_connection import StreamConnection
from depthbench.designs.streams import StreamRoute
from depthbench.nn.branch import Backbone
from depthbench.nn.parameters import Start, constant, zeros
from depthbench.nn.work import Work
from depthbench.shapes import Shape


class ManifoldConnection(StreamConnection, ABC):
    """``α = σ(α̃)``, ``β = 2σ(β̃)`` and a doubly stochastic ``A``, made of logits of its own.

    Logits: the RMS-normed concatenation of all streams (no gain) times one projection (rows for
    ``α̃``, ``β̃``, and the mix), times a gate for each of the three, plus a bias.
    """

    def __init__(
        self,
        streams: int,
        mix_shape: tuple[int, ...],
        gate: float,
        shape: Shape,
        backbone: Backbone,
    ) -> None:
        super().__init__(streams, shape, backbone)
        self.eps = backbone.norm_eps
        self.gate = gate
        rows = 2 * streams + math.prod(mix_shape)
        self.projection = nn.Parameter(torch.empty(rows, streams * shape.width))
        self.gates = nn.Parameter(torch.empty(3))
        self.bias_read = nn.Parameter(torch.empty(streams))
        self.bias_write = nn.Parameter(torch.empty(streams))
        self.bias_mix = nn.Parameter(torch.empty(mix_shape))

    def starts(self) -> dict[str, Start]:
        return {
            "projection": zeros(decay=True, over_width=True),
            "gates": constant(self.gate),
            **self.bias_starts(),
        }

    @abstractmethod
    def bias_starts(self) -> dict[str, Start]:
        """Of the three biases."""

    @abstractmethod
    def mix(self, logits: Float[Tensor, "b t *mix"]) -> Float[Tensor, "b t s s"]:
        """``A`` from its logits."""

    def route(self, streams: Float[Tensor, "b t s d"]) -> StreamRoute:
        m = self.streams
        product = normed_projection(streams.flatten(2), self.projection, self.eps)
        read, write, mix = product.split([m, m, self.bias_mix.numel()], dim=-1)
        mix = mix.unflatten(-1, self.bias_mix.shape)
        return StreamRoute(
            read=torch.sigmoid(self.gates[0] * read + self.bias_read),
            mix=self.mix(self.gates[2] * mix + self.bias_mix),
            write=2 * torch.sigmoid(self.gates[1] * write + self.bias_write),
        )

    def work(self, length: int) -> Work:
        """The projection of all streams at once, the read, the mix and the write."""
        projected = Work(products=2 * length * self.projection.numel())
        return projected + self.joining_work(length)
