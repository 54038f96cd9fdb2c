"""What two models have in common when training begins."""

import re
from collections.abc import Iterable

import torch
from torch import Tensor

from depthbench.config import Frozen
from depthbench.nn.model import Model, ModelConfig
from depthbench.nn.parameters import Parametrised, Start, drawn


class SharedStart(Frozen):
    """Parameters of two models that are the same numbers at the start, bit for bit."""

    numbers: int
    """Parameters (single numbers) that are equal: same name, same shape, same start."""
    of_a: float
    """Their share of all of A's."""
    of_b: float
    other_start: tuple[str, ...]
    """Tensors with the same name and shape that start otherwise; ``*`` stands for every block."""
    other_shape: tuple[str, ...]
    """Tensors with the same name in another shape."""
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]


def shared_start(a: ModelConfig, b: ModelConfig, seed: int) -> SharedStart:
    """Draw the start of both models, a tensor at a time, and compare them."""
    ours, theirs = _starts(a), _starts(b)
    equal, other_start, other_shape = 0, [], []
    for name in ours.keys() & theirs.keys():
        (start, shape), (their_start, their_shape) = ours[name], theirs[name]
        if shape != their_shape:
            other_shape.append(name)
        elif torch.equal(*(_draw(s, shape, seed, name) for s in (start, their_start))):
            equal += shape.numel()
        else:
            other_start.append(name)
    return SharedStart(
        numbers=equal,
        of_a=equal / _size(ours),
        of_b=equal / _size(theirs),
        other_start=_in_all_blocks(other_start),
        other_shape=_in_all_blocks(other_shape),
        only_a=_in_all_blocks(ours.keys() - theirs.keys()),
        only_b=_in_all_blocks(theirs.keys() - ours.keys()),
    )


def _starts(config: ModelConfig) -> dict[str, tuple[Start, torch.Size]]:
    return {
        f"{place}.{name}": (module.starts()[name], parameter.shape)
        for place, module in Model.on_meta(config).named_modules()
        if isinstance(module, Parametrised)
        for name, parameter in module.named_parameters(recurse=False)
    }


def _in_all_blocks(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({re.sub(r"^blocks\.\d+\.", "blocks.*.", name) for name in names}))


def _draw(start: Start, shape: torch.Size, seed: int, name: str) -> Tensor:
    with torch.no_grad():
        return drawn(start, shape, seed, name)


def _size(starts: dict[str, tuple[Start, torch.Size]]) -> int:
    return sum(shape.numel() for _, shape in starts.values())
