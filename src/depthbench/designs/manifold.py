"""Stream connections whose coefficients are bounded: what mHC and its kin share."""

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from depthbench.designs.fast_streams import normed_projection
from depthbench.designs.mergeable import MergeableConnection, sizes
from depthbench.designs.streams import StreamRoute
from depthbench.nn.branch import Backbone
from depthbench.nn.parameters import Start, constant, values, zeros
from depthbench.nn.work import Work
from depthbench.shapes import Shape


class ManifoldConnection(MergeableConnection, ABC):
    """``α = σ(α̃)``, ``β = 2σ(β̃)`` and a doubly stochastic ``A``, made of logits of its own.

    Logits: the RMS-normed concatenation of all streams (no gain) times one projection (rows for
    ``α̃``, ``β̃``, and the mix), times a gate for each of the three, plus a bias. After a merge each
    carried stream counts in the concatenation as much as those it stands for.
    """

    def __init__(
        self, config: Any, mix_shape: tuple[int, ...], shape: Shape, backbone: Backbone
    ) -> None:
        super().__init__(config, shape, backbone)
        self.config = config
        self.eps = backbone.norm_eps
        m = self.made
        rows = 2 * m + math.prod(mix_shape)
        self.projection = nn.Parameter(torch.empty(rows, self.streams * shape.width))
        self.gates = nn.Parameter(torch.empty(3))
        self.bias_read = nn.Parameter(torch.empty(m))
        self.bias_write = nn.Parameter(torch.empty(m))
        self.bias_mix = nn.Parameter(torch.empty(mix_shape))
        if self.joining is not None:
            self.share = nn.Parameter(torch.empty(self.streams))

    def starts(self) -> dict[str, Start]:
        starts = {
            "projection": zeros(decay=True, over_width=True),
            "gates": constant(self.config.gate),
            **self.bias_starts(),
        }
        if self.joining is not None:
            each = sizes(self.made, self.streams)
            shares = [(one * self.streams / self.made) ** 0.5 for one in each]
            starts["share"] = values(shares)
        return starts

    @abstractmethod
    def bias_starts(self) -> dict[str, Start]:
        """Of the three biases."""

    @abstractmethod
    def mix(self, logits: Float[Tensor, "b t *mix"]) -> Float[Tensor, "b t s s"]:
        """``A`` from its logits."""

    def route(self, streams: Float[Tensor, "b t s d"]) -> StreamRoute:
        m = self.made
        if self.joining is not None:
            streams = self.share.to(streams.dtype).unsqueeze(-1) * streams
        product = normed_projection(streams.flatten(2), self.projection, self.eps)
        read, write, mix = product.split([m, m, self.bias_mix.numel()], dim=-1)
        mix = mix.unflatten(-1, self.bias_mix.shape)
        return self.joined(
            StreamRoute(
                read=torch.sigmoid(self.gates[0] * read + self.bias_read),
                mix=self.mix(self.gates[2] * mix + self.bias_mix),
                write=2 * torch.sigmoid(self.gates[1] * write + self.bias_write),
            )
        )

    def coefficients_into(self, new: Any, expand: Float[Tensor, "m s"], collect: Any) -> None:
        for name in ("gates", "bias_read", "bias_write", "bias_mix"):
            new.get_parameter(name).copy_(self.get_parameter(name))
        old = expand.new_ones(self.streams) if self.joining is None else self.share.to(expand)
        squares = (old.square() @ expand.square()) * expand.shape[1] / expand.shape[0]
        new.share.copy_(squares.sqrt())
        by_stream = self.projection.to(expand).unflatten(1, (self.streams, -1))
        weighed = torch.einsum("rmd,ms->rsd", by_stream * old.unsqueeze(-1), expand)
        new.projection.copy_((weighed / squares.sqrt().unsqueeze(-1)).flatten(1))

    def work(self, length: int) -> Work:
        """The projection of all streams at once, the read, the mix and the write."""
        projected = Work(products=2 * length * self.projection.numel())
        if self.joining is not None:
            projected += self.joining.work(length, length)
        return projected + self.joining_work(length)
