"""Products of stream mixing matrices over depth."""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from depthbench.designs.streams import StreamRoute
from depthbench.nn.block import Trace


def mixing_product(mixes: Iterable[Float[Tensor, "*bt s s"]]) -> Float[Tensor, "*bt s s"]:
    """``A_1 A_2 … A_n`` in float64: how old stream ``i`` reaches new stream ``j`` through all.

    In float64 whatever the model ran in: the product of many doubly stochastic matrices goes to
    the matrix of equal entries, and in low precision its small singular values are rounding.
    Raises `ValueError` without matrices.
    """
    product: Tensor | None = None
    for mix in mixes:
        product = mix.double() if product is None else product @ mix.double()
    if product is None:
        raise ValueError("no mixing matrices: the design has none, or the trace is empty")
    return product


def traced_mixes(trace: Trace) -> list[Float[Tensor, "*bt s s"]]:
    """The mixing matrices of all sites that a traced forward passed, in order."""
    routes = (route for _, route in trace.routes)
    return [r.mix for r in routes if isinstance(r, StreamRoute) and r.mix is not None]


def effective_rank(
    matrix: Float[Tensor, "*bt s s"], *, without_mean: bool = False
) -> Float[Tensor, "*bt"]:
    """``exp(-Σ p ln p)`` of the normalised singular values ``p``, from 1 to ``s``, in float64.

    ``without_mean`` takes the all-ones direction out on both sides first, ``C A C`` with
    ``C = I - 1 1ᵀ/s``: every doubly stochastic matrix keeps that direction whole, so with it the
    rank cannot tell forgetting from keeping. A matrix that is zero then has rank 0.
    """
    matrix = matrix.double()
    if without_mean:
        size = matrix.shape[-1]
        centre = torch.eye(size, dtype=matrix.dtype, device=matrix.device) - 1 / size
        matrix = centre @ matrix @ centre
    values = torch.linalg.svdvals(matrix)
    total = values.sum(-1, keepdim=True)
    # what centring leaves of an exactly constant matrix is rounding, not a direction
    nothing = total[..., 0] <= matrix.shape[-1] ** 2 * torch.finfo(matrix.dtype).eps
    share = values / torch.where(total > 0, total, torch.ones_like(total))
    rank = torch.exp(-torch.special.xlogy(share, share).sum(-1))
    return torch.where(nothing, torch.zeros_like(rank), rank)
