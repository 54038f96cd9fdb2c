"""Tensors of which each process may hold a part."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeGuard

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def is_split(tensor: Tensor) -> "TypeGuard[DTensor]":
    """Whether this process may hold a part alone."""
    # it takes long to import, and commands that do not train need none of it
    from torch.distributed.tensor import DTensor

    return isinstance(tensor, DTensor)


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor whose parts lie in several processes; any other as it is.

    All processes must ask together.
    """
    return tensor.full_tensor() if is_split(tensor) else tensor


def norm_of(tensors: Iterable[Tensor]) -> Tensor:
    """Euclidean norm of all entries together; reads only, scales nothing."""
    split, plain = _by_kind(tensors)
    if not split:
        return nn.utils.get_total_norm(plain)
    norms = [whole(nn.utils.get_total_norm(part)) for part in (split, plain) if part]
    return torch.stack(norms).square().sum().sqrt()


def clip_gradients(parameters: Iterable[nn.Parameter], largest: float, norm: Tensor) -> None:
    """Scale gradients, whose norm over all is ``norm``, to a norm of ``largest`` at most."""
    for part in _by_kind(parameters):
        nn.utils.clip_grads_with_norm_(part, largest, norm)


def _by_kind(tensors: Iterable[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Those of which this process holds a part, and the others: torch takes no mixed lists."""
    split: list[Tensor] = []
    plain: list[Tensor] = []
    for tensor in tensors:
        (split if is_split(tensor) else plain).append(tensor)
    return split, plain
