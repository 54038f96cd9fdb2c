"""Coefficients in float32: what steers a residual stream must not be rounded to bfloat16."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def full_precision(tensor: Tensor) -> Iterator[None]:
    """Autocast off on ``tensor``'s device, whatever surrounds it."""
    with torch.autocast(tensor.device.type, enabled=False):
        yield


def at_least_float32(tensor: Tensor) -> Tensor:
    """``tensor`` in float32, or as it is when that is already as precise or more."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
