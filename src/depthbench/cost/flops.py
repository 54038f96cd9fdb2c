"""Floating-point operations of one forward, from the modules themselves."""

from functools import lru_cache

from depthbench.config import Frozen
from depthbench.nn.model import Model, ModelConfig
from depthbench.nn.work import BACKWARD, Work


class Flops(Frozen):
    """Multiplications and additions of one sequence's forward; a look-up costs none."""

    projections: int
    """``2 T`` times the entries of all matrices of the branches that a token uses; and the
    convolution and scan of a state-space branch."""
    attention: int
    """``2 T² L·heads·head_dim``: scores and values over the causal half."""
    head: int
    """``2 T d v``."""
    own_products: int
    """Matrix products of the design."""
    own_sums: int
    """Weighted sums of vectors in the design: reads, mixes, writes."""

    @property
    def own(self) -> int:
        """All that the design adds."""
        return self.own_products + self.own_sums

    @property
    def forward(self) -> int:
        """All of one forward."""
        return self.projections + self.attention + self.head + self.own

    @property
    def training_step(self) -> int:
        """Forward and backward."""
        return (1 + BACKWARD) * self.forward


def count_flops(config: ModelConfig, length: int) -> Flops:
    """What every branch, connection and the design state for a sequence of ``length`` tokens.

    Norms, gates and activations are left out, as is usual for the utilisation of a machine's
    matrix units.
    """
    model = Model.on_meta(config)
    branches, own = Work(), model.design.work(length)
    for _, branch, connection in model.sites():
        branches += branch.work(length)
        own += connection.work(length)
    return Flops(
        projections=branches.products,
        attention=branches.attention,
        head=model.head.work(length).products,
        own_products=own.products,
        own_sums=own.sums,
    )


def known_flops(config: ModelConfig, length: int) -> Flops:
    """What `count_flops` says, kept: a study trains one model under many seeds and rates."""
    return _known(config.model_dump_json(), length)


@lru_cache(maxsize=4096)
def _known(told: str, length: int) -> Flops:
    return count_flops(ModelConfig.model_validate_json(told), length)
