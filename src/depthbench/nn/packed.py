"""A design's state as a flat list of tensors, for libraries that only see tensors."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NamedTuple

from torch import Tensor

from depthbench.nn.branch import Context


class Packed(NamedTuple):
    """The tensors of a state in order, and the state with numbers of them in their place."""

    tensors: tuple[Tensor, ...]
    skeleton: Any


@dataclass(frozen=True)
class _Hole:
    """Where a tensor was."""

    number: int


def pack(state: Any) -> Packed:
    """Take every tensor out of ``state``, whatever dataclasses, tuples and dicts it is made of.

    A `Context` inside stays as it is: nothing in it has a gradient.
    """
    tensors: list[Tensor] = []

    def take(part: Any) -> Any:
        if isinstance(part, Tensor):
            tensors.append(part)
            return _Hole(len(tensors) - 1)
        return _rebuilt(part, take)

    skeleton = take(state)
    return Packed(tuple(tensors), skeleton)


def unpack(packed: Packed) -> Any:
    """The state again, with the tensors that ``packed`` holds now."""

    def put(part: Any) -> Any:
        return packed.tensors[part.number] if isinstance(part, _Hole) else _rebuilt(part, put)

    return put(packed.skeleton)


def tensors_in(part: Any) -> Iterator[Tensor]:
    """Every tensor of a state, in the order of `pack`."""
    if isinstance(part, Tensor):
        yield part
    elif is_dataclass(part) and not isinstance(part, type | Context):
        for _, value in _fields(part):
            yield from tensors_in(value)
    elif isinstance(part, tuple | dict):
        for value in part.values() if isinstance(part, dict) else part:
            yield from tensors_in(value)


def _rebuilt(part: Any, change: Any) -> Any:
    if isinstance(part, Context | _Hole):
        return part
    if is_dataclass(part) and not isinstance(part, type):
        return type(part)(**{name: change(value) for name, value in _fields(part)})
    if isinstance(part, tuple):
        return tuple(change(value) for value in part)
    if isinstance(part, dict):
        return {key: change(value) for key, value in part.items()}
    return part


def _fields(part: Any) -> Iterator[tuple[str, Any]]:
    for one in fields(part):
        yield one.name, part.__dict__[one.name]
