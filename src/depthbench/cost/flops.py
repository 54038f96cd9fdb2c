"""Floating-point operations of one forward, from the modules themselves."""

from depthbench.config import Frozen
from depthbench.nn.model import Model, ModelConfig
from depthbench.nn.parameters import Projection

BACKWARD = 2
"""A product's backward is two products of its size: by the input and by the weight."""


class Flops(Frozen):
    """Multiplications and additions of one sequence's forward; a look-up costs none."""

    projections: int
    """``2 T`` times the entries of all matrices in the blocks, a design's included."""
    attention: int
    """``2 T² L·heads·head_dim``: scores and values over the causal half."""
    head: int
    """``2 T d v``."""

    @property
    def forward(self) -> int:
        """All of one forward."""
        return self.projections + self.attention + self.head

    @property
    def training_step(self) -> int:
        """Forward and backward."""
        return (1 + BACKWARD) * self.forward


def backbone_flops(config: ModelConfig, length: int) -> Flops:
    """Matrix products and attention for a sequence of ``length`` tokens.

    Norms, activations and a design's own element-wise work are left out, as is usual for the
    utilisation of a machine's matrix units.
    """
    model = Model.on_meta(config)
    shape = config.shape
    entries = sum(
        module.weight.numel() for module in model.blocks.modules() if isinstance(module, Projection)
    )
    return Flops(
        projections=2 * length * entries,
        attention=2 * length**2 * shape.layers * shape.heads * shape.head_dim,
        head=2 * length * model.head.weight.numel(),
    )
