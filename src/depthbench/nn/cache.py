"""What a model keeps of the tokens that it has already seen."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from depthbench.errors import DepthbenchError
from depthbench.marks import NO_MARKS, Marks


@dataclass(frozen=True)
class Room:
    """Sizes of a cache."""

    batch: int
    capacity: int
    """Positions, padding included."""
    device: torch.device
    dtype: torch.dtype
    """Of keys and values."""
    marks: Marks = NO_MARKS

    def check(self) -> None:
        """Raise `DepthbenchError` for sizes and kinds of number that hold nothing."""
        for name, size in (("batch", self.batch), ("capacity", self.capacity)):
            if size < 1:
                raise DepthbenchError(f"cache: {name} = {size} must be at least 1")
        if not self.dtype.is_floating_point:
            raise DepthbenchError(
                f"cache: dtype = {self.dtype} is no kind of real number. Use torch.float32, "
                "torch.bfloat16 or torch.float16"
            )

    """What the design is told of the tokens."""


class Memory(ABC):
    """What one branch, or a design at one site, keeps of earlier tokens."""

    @abstractmethod
    def tensors(self) -> tuple[Tensor, ...]:
        """All that is kept, allocated once: its bytes are the memory's."""

    def grow(self, room: Room) -> None:
        """Make room for more positions; nothing to do where the size does not depend on them."""
        return


class KeyValues(Memory):
    """Keys (after RoPE) and values of an attention: ``2·kv_heads·head_dim`` numbers a position."""

    def __init__(self, room: Room, kv_heads: int, head_dim: int) -> None:
        shape = (room.batch, kv_heads, room.capacity, head_dim)
        self.keys = torch.zeros(shape, device=room.device, dtype=room.dtype)
        self.values = torch.zeros(shape, device=room.device, dtype=room.dtype)

    def tensors(self) -> tuple[Tensor, ...]:
        return self.keys, self.values

    def grow(self, room: Room) -> None:
        more = room.capacity - self.keys.shape[2]
        self.keys, self.values = (
            torch.nn.functional.pad(kept, (0, 0, 0, more)) for kept in (self.keys, self.values)
        )

    def extend(
        self, past: int, key: Float[Tensor, "b t kv hd"], value: Float[Tensor, "b t kv hd"]
    ) -> tuple[Float[Tensor, "b n kv hd"], Float[Tensor, "b n kv hd"]]:
        """Store the next tokens behind ``past``; all keys and values up to and with them."""
        end = past + key.shape[1]
        self.keys[:, :, past:end] = key.transpose(1, 2)
        self.values[:, :, past:end] = value.transpose(1, 2)
        return (
            self.keys[:, :, :end].transpose(1, 2).to(key.dtype),
            self.values[:, :, :end].transpose(1, 2).to(value.dtype),
        )


@dataclass
class Cache:
    """Memories of all branches and of the design, for one batch of sequences; see `Model.cache`."""

    room: Room
    cos: Float[Tensor, "capacity half"]
    """RoPE's table for every position."""
    sin: Float[Tensor, "capacity half"]
    branches: list[Memory | None]
    """By site."""
    connections: list[Memory | None]
    """By site: what the design keeps there."""
    design: Memory | None
    """What the design keeps at its opening."""
    padding: Int[Tensor, "b"] | None = None
    """Number of tokens on the left of each sequence that are no text."""
    length: int = 0
    """Positions that are filled."""
    program: Sequence[int] | None = None
    """Blocks that run, in order; None for all."""
    again: list[dict[int, Memory | None]] = field(default_factory=list)
    """Of branches by site, for the second run of their block in ``program``, the third, …"""

    def branch(self, site: int, turn: int) -> Memory | None:
        """That of the branch at ``site``, of whose block ``turn`` runs came before."""
        return self.again[turn - 1][site] if turn else self.branches[site]

    def memories(self) -> list[Memory]:
        """All of them."""
        again = [memory for run in self.again for memory in run.values()]
        every = (*self.branches, *again, *self.connections, self.design)
        return [memory for memory in every if memory is not None]

    @property
    def bytes(self) -> int:
        """Of all memories."""
        tensors = [tensor for memory in self.memories() for tensor in memory.tensors()]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
