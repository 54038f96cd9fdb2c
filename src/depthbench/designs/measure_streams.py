"""What reads and writes of streams do to made-up states, for `Design.facts`."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from depthbench.designs.base import Connection


@torch.no_grad()
def mixing(connection: Connection[Tensor], state: Float[Tensor, "1 1 s d"]) -> Float[Tensor, "s s"]:
    """How much of old stream ``i`` is in new stream ``j`` after a read of ``state``: a write is
    linear in the streams once the coefficients are read.
    """
    x, route = connection.read(state)
    rows = []
    for stream in range(state.shape[2]):
        one = torch.zeros_like(state)
        one[:, :, stream] = 1
        rows.append(_written(connection, one, torch.zeros_like(x), route))
    return torch.stack(rows)


@torch.no_grad()
def writing(connection: Connection[Tensor], state: Float[Tensor, "1 1 s d"]) -> Float[Tensor, "s"]:
    """How much of the branch's output is in each new stream after a read of ``state``."""
    x, route = connection.read(state)
    return _written(connection, torch.zeros_like(state), torch.ones_like(x), route)


def tanh_of_normed(
    column: Float[Tensor, "d"], vector: Float[Tensor, "d"], gain: Float[Tensor, "d"], eps: float
) -> Tensor:
    """``tanh(w · RMSNorm(v))``."""
    return torch.tanh((column * gain * vector).sum() / (vector.square().mean() + eps).sqrt())


def _written(connection: Connection[Tensor], state: Tensor, y: Tensor, route: Any) -> Tensor:
    return connection.write(state, y, route, None)[0, 0, :, 0]
