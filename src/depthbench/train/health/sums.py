"""Sums over the parameters of every block, also where each process holds a shard of them.

Sums of squares add up over shards and roots do not, so what is here stays a sum: one small tensor,
reduced over processes where the parameters say that they are sharded, read once.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float

# many tensors in one kernel: torch documents these by their use in its optimizers alone
from torch import (
    Tensor,
    _foreach_add_,  # pyright: ignore[reportPrivateImportUsage]
    _foreach_div,  # pyright: ignore[reportPrivateImportUsage]
    _foreach_mul,  # pyright: ignore[reportPrivateImportUsage]
    _foreach_norm,  # pyright: ignore[reportPrivateImportUsage]
    _foreach_sqrt,  # pyright: ignore[reportPrivateImportUsage]
    nn,
)

from depthbench.nn.model import Model
from depthbench.train.tensors import is_split

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import Placement

Blocks = list[list[nn.Parameter]]
"""The parameters of every block, bottom first."""


def blocks_of(model: Model) -> Blocks:
    """The parameters of every block, bottom first."""
    return [list(block.parameters()) for block in model.blocks]


def squares(blocks: Sequence[Sequence[Tensor | None]]) -> Float[Tensor, "blocks"]:
    """Sum of squares of each block's entries, in float64; None counts as zeros."""
    return _powers(blocks, 2)


def magnitudes(blocks: Sequence[Sequence[Tensor | None]]) -> Float[Tensor, "blocks"]:
    """Sum of absolute values of each block's entries, in float64; None counts as zeros."""
    return _powers(blocks, 1)


def update_squares(blocks: Blocks, optimizer: torch.optim.AdamW) -> Float[Tensor, "blocks"]:
    """Sum of squares of ``learning rate · m̂ / (sqrt(v̂) + eps)``: the last step, without decay.

    A parameter that never had a gradient counts as zeros. Block by block, so that it takes the
    memory of one block.
    """
    group_of = {id(one): group for group in optimizer.param_groups for one in group["params"]}
    moved = [[p for p in block if optimizer.state.get(p)] for block in blocks]
    flat = [(number, p) for number, block in enumerate(moved) for p in block]
    if not flat:
        return torch.zeros(len(blocks), dtype=torch.float64)
    steps = iter(torch.stack([optimizer.state[p]["step"] for _, p in flat]).tolist())
    norms: list[Tensor] = []
    for block in moved:
        if block:
            norms += _update_norms(block, [next(steps) for _ in block], group_of, optimizer)
    return _reduced(torch.stack(norms).double().square(), flat, len(blocks))


def _update_norms(
    block: list[nn.Parameter],
    steps: list[float],
    group_of: dict[int, dict[str, Any]],
    optimizer: torch.optim.AdamW,
) -> list[Tensor]:
    """Norm of the last step of each parameter (of this process's shards)."""
    first = [_local(optimizer.state[p]["exp_avg"]) for p in block]
    second = [_local(optimizer.state[p]["exp_avg_sq"]) for p in block]
    eps, factors = [], []
    for parameter, step in zip(block, steps, strict=True):
        group = group_of[id(parameter)]
        beta1, beta2 = group["betas"]
        # m̂ / (sqrt(v̂) + eps) = root / (1 - β1^t) · m / (sqrt(v) + root · eps)
        root = math.sqrt(1 - beta2**step)
        eps.append(group["eps"] * root)
        factors.append(group["lr"] * root / (1 - beta1**step))
    below = _foreach_sqrt(second)
    _foreach_add_(below, eps)
    norms = _foreach_norm(_foreach_div(first, below))
    return list(_foreach_mul(norms, factors))


def _powers(blocks: Sequence[Sequence[Tensor | None]], order: int) -> Float[Tensor, "blocks"]:
    flat = [(number, t) for number, block in enumerate(blocks) for t in block if t is not None]
    if not flat:
        return torch.zeros(len(blocks), dtype=torch.float64)
    norms = _foreach_norm([_local(tensor) for _, tensor in flat], order)
    return _reduced(torch.stack(norms).double().pow(order), flat, len(blocks))


def _reduced(
    values: Float[Tensor, "n"], owners: Sequence[tuple[int, Tensor]], blocks: int
) -> Float[Tensor, "blocks"]:
    """``values`` added up by block, and over the processes that hold shards of their tensors."""
    layouts = [_layout(tensor) for _, tensor in owners]
    total = torch.zeros(blocks, dtype=values.dtype, device=values.device)
    for layout in dict.fromkeys(layouts):
        places = [place for place, one in enumerate(layouts) if one == layout]
        index = torch.tensor([owners[place][0] for place in places], device=values.device)
        part = torch.zeros_like(total).index_add_(0, index, values[places])
        total += part if layout is None else _over_shards(part, *layout)
    return total


def _layout(tensor: Tensor) -> "tuple[DeviceMesh, tuple[Placement, ...]] | None":
    """Mesh and placements of a tensor that processes share; None for one that is whole here."""
    return (tensor.device_mesh, tensor.placements) if is_split(tensor) else None


def _local(tensor: Tensor) -> Tensor:
    """What this process holds of a tensor."""
    return tensor.to_local() if is_split(tensor) else tensor


def _over_shards(part: Tensor, mesh: "DeviceMesh", placements: "tuple[Placement, ...]") -> Tensor:
    """Sum over the processes that hold different shards; copies count once."""
    from torch.distributed.tensor import DTensor, Partial, Replicate

    kinds = [Partial() if one.is_shard() else Replicate() for one in placements]
    return DTensor.from_local(part, mesh, kinds).full_tensor()
