"""Dynamic dense connections: after each block, a sum over outputs that each token weighs."""

from typing import ClassVar, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from depthbench.designs.base import Card, DesignConfig, Fact, Site
from depthbench.designs.dense import DenseDesign, DenseState, EndConnection
from depthbench.designs.measure import farthest, filled, noise, started
from depthbench.designs.streams import normed_projection_plain
from depthbench.nn.branch import Backbone
from depthbench.nn.parameters import Start, normal_rows, values, zeros
from depthbench.nn.precision import at_least_float32, full_precision
from depthbench.nn.work import Work
from depthbench.shapes import Shape


class DynamicDenseConfig(DesignConfig):
    """Size of what makes the weights."""

    name: str = "dynamic_dense"
    expand: int = Field(default=1, ge=1)
    """Width of the inner layer, over the number of weights that it makes."""


@final
class DynamicAverage(EndConnection):
    """``X_i = h + y``; ``h ← Σ_{j ≤ i} A_ij(X_i) X_j``, for each token.

    ``A_i(X) = W2 GELU(W1 RMSNorm(X)) + a_i`` (no gain; GELU with the error function):
    ``W1`` is ``K × d``, ``W2`` ``(i + 1) × K`` and ``K = expand · (i + 1)``.
    """

    def __init__(
        self, config: DynamicDenseConfig, site: Site, shape: Shape, backbone: Backbone
    ) -> None:
        super().__init__(site, shape, backbone)
        self.eps = backbone.norm_eps
        count = len(self.sources)
        self.inner = nn.Parameter(torch.empty(config.expand * count, shape.width))
        self.outer = nn.Parameter(torch.empty(count, config.expand * count))
        self.static = nn.Parameter(torch.empty(count))

    @property
    def sources(self) -> range:
        return range(self.number + 1)

    def starts(self) -> dict[str, Start]:
        rows, width = self.inner.shape
        return {
            "inner": normal_rows([(rows, width**-0.5)]),
            "outer": zeros(decay=True),
            "static": values([float(j == self.number) for j in self.sources]),
        }

    def weights(self, output: Float[Tensor, "b t d"]) -> Float[Tensor, "l b t"]:
        with full_precision(output):
            inner = nn.functional.gelu(normed_projection_plain(output, self.inner, self.eps))
            dynamic = nn.functional.linear(inner, at_least_float32(self.outer)) + self.static
        return dynamic.movedim(-1, 0)

    def work(self, length: int) -> Work:
        """Both products, and the sum."""
        matrices = self.inner.numel() + self.outer.numel()
        return super().work(length) + Work(products=2 * length * matrices)


@final
class DynamicDense(DenseDesign):
    """Dynamic dense connections of MUDDFormer (arXiv 2502.12170), one way.

    ``Y_i = Σ_{j ≤ i} A_ij(X_i) X_j``, ``X_i = block_i(Y_{i-1})`` with pre-norm blocks that have
    their own skip. Start: ``W1`` normal(0, 1/d), ``W2 = 0``, ``a_i = e_i``, so `prenorm`.
    The multiway part of the paper, with a sum of its own for query, key, value and residual, needs
    an attention with three inputs. ``K`` of the last block is that of any other here; the published
    multiway code makes it 4 times as wide, because there that block makes the weights of one way.
    """

    Config = DynamicDenseConfig
    start_distance: ClassVar[float | None] = 0.0
    card: ClassVar[Card] = Card(
        family="depth average",
        sources="state: weighted sum of the outputs of all blocks",
        weights="dynamic",
        own="(d + 1) L (L + 3) / 2 + (L + 1)(L + 2)(2 L + 3) / 6 - 1",
        equation="x = N(h); h + y inside a block; h ← Σ_j A_ij X_j after it, "
        "A_i = W2 GELU(W1 RMSNorm(X_i)) + a_i",
        paper="arXiv 2502.12170",
    )

    def end(self, site: Site) -> DynamicAverage:
        return DynamicAverage(self.config, site, self.shape, self.backbone)

    def facts(self) -> list[Fact]:
        layers, width = self.shape.layers, self.shape.width
        site = Site(2 * layers - 1, layers)
        fresh, other = started(self.end(site)), filled(self.end(site))
        h, y = noise(1, 3, width), noise(1, 3, width, seed=1)
        state = DenseState(h, {j: noise(1, 3, width, seed=2 + j) for j in range(layers)})
        first = fresh.write(state, y, fresh.read(state)[1], None).stream
        summed = other.write(state, y, other.read(state)[1], None).stream
        output = h + y
        normed = output / output.square().mean(-1, keepdim=True).add(self.backbone.norm_eps).sqrt()
        inner = normed @ other.inner.T
        gelu = inner * (1 + torch.erf(inner / 2**0.5)) / 2
        weights = gelu @ other.outer.T + other.static
        outputs = torch.stack([*state.outputs.values(), output], dim=-1)
        expected = (outputs * weights.unsqueeze(-2)).sum(-1)
        size = expected.detach().abs().max().item()
        return [
            Fact("last sum from its equation", farthest(summed, expected) / size, 0.0),
            Fact("start's last sum from pre-norm", farthest(first, output), 0.0),
        ]
