"""States of several programs as one: joined along the batch axis and taken apart again.

Where that axis is, the types say: ``Float[Tensor, "mixes b t"]`` has it second. A tensor whose
type names no batch axis (``Float[Tensor, "mixes d"]``) is the same in all; one without a type of
its own has it first.
"""

import functools
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from jaxtyping import AbstractArray
from torch import Tensor

from depthbench.nn.branch import Context

BATCH = frozenset({"b", "*bt", "rows", "*rows"})
"""Names of the batch axis, alone or together with the axes that follow it."""


@dataclass(frozen=True)
class Placed:
    """A tensor of a state, and where its batch axis is; None where it has none."""

    tensor: Tensor
    axis: int | None


def joined(states: Sequence[Any], context: Context) -> Any:
    """The states one after another; ``context`` is that of so many programs."""

    def together(parts: Sequence[Placed]) -> Tensor:
        first = parts[0]
        if first.axis is None:
            return first.tensor
        return torch.cat([part.tensor for part in parts], dim=first.axis)

    return _merged(list(states), context, together, None)


def taken(state: Any, start: int, stop: int, copies: int, context: Context) -> Any:
    """Programs ``start`` to ``stop`` of ``copies``; ``context`` is that of so many programs."""

    def part(parts: Sequence[Placed]) -> Tensor:
        [one] = parts
        if one.axis is None:
            return one.tensor
        rows = one.tensor.shape[one.axis] // copies
        return one.tensor.narrow(one.axis, start * rows, (stop - start) * rows)

    return _merged([state], context, part, None)


def size_of(state: Any) -> int:
    """Bytes of all tensors with a batch axis."""
    total = 0

    def count(parts: Sequence[Placed]) -> Tensor:
        nonlocal total
        [one] = parts
        if one.axis is not None:
            total += one.tensor.numel() * one.tensor.element_size()
        return one.tensor

    _merged([state], None, count, None)
    return total


def form_of(state: Any) -> Any:
    """All but the numbers in its tensors: states of one form can be joined."""
    if isinstance(state, Tensor):
        return "tensor", state.ndim
    if isinstance(state, Context):
        return "context"
    if is_dataclass(state) and not isinstance(state, type):
        return type(state), tuple(form_of(state.__dict__[one.name]) for one in fields(state))
    if isinstance(state, tuple):
        return tuple(form_of(one) for one in state)
    if isinstance(state, dict):
        return tuple((key, form_of(one)) for key, one in state.items())
    return state


def _merged(
    parts: list[Any],
    context: Context | None,
    tensors: Callable[[Sequence[Placed]], Tensor],
    hint: Any,
) -> Any:
    first = parts[0]

    def inner(pieces: list[Any], hint: Any) -> Any:
        return _merged(pieces, context, tensors, hint)

    if isinstance(first, Tensor):
        axis = _axis(hint, first.ndim)
        return tensors([Placed(part, axis) for part in parts])
    if isinstance(first, Context):
        return first if context is None else context
    if is_dataclass(first) and not isinstance(first, type):
        hints = _hints(type(first))
        return type(first)(
            **{
                field.name: inner([part.__dict__[field.name] for part in parts], hints[field.name])
                for field in fields(first)
            }
        )
    if isinstance(first, tuple):
        of_items = _of_items(hint)
        return tuple(inner(list(row), of_items) for row in zip(*parts, strict=True))
    if isinstance(first, dict):
        return {key: inner([part[key] for part in parts], _of_items(hint)) for key in first}
    return first


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _axis(hint: Any, ndim: int) -> int | None:
    """Of the batch in a tensor of type ``hint``."""
    dims = _dims(hint)
    if dims is None:
        return 0
    # axes such as *bt may be left out together
    if ndim < len(dims):
        return None
    places = [place for place, name in enumerate(dims) if name in BATCH]
    return places[0] if places else None


def _dims(hint: Any) -> list[str] | None:
    """Names of the axes that a jaxtyping type gives; None for another."""
    for one in (hint, *typing.get_args(hint)):
        if isinstance(one, type) and issubclass(one, AbstractArray):
            return one.dim_str.split()
    return None


def _of_items(hint: Any) -> Any:
    """The type of a tuple's or dict's items, if ``hint`` is one such."""
    for one in (hint, *typing.get_args(hint)):
        kind, arguments = typing.get_origin(one), typing.get_args(one)
        if kind is tuple and arguments:
            return arguments[0]
        if kind is dict and arguments:
            return arguments[1]
    return None
