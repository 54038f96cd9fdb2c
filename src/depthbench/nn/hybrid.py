"""Attention and a state-space branch in parallel, in one site."""

import math
from typing import ClassVar, final

from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from depthbench.errors import DepthbenchError
from depthbench.nn.attention import Attention
from depthbench.nn.branch import Backbone, Branch, Context, Depth, Entry
from depthbench.nn.cache import KeyValues, Memory, Room
from depthbench.nn.parameters import Projection, Start
from depthbench.nn.ssm import SelectiveStateSpace, SSMMemory, SSMSizes
from depthbench.nn.work import Work
from depthbench.shapes import Shape


class HybridBackbone(Backbone):
    """A selective state-space branch beside attention."""

    name: str = "hybrid"
    state: int = Field(default=16, ge=1)
    """Entries of a head's state for each of its features."""
    expand: int = Field(default=1, ge=1)
    """Features of all state-space heads over the width."""
    head_width: int | None = Field(default=None, ge=1)
    """Of a state-space head; None = that of an attention head."""
    kernel: int = Field(default=4, ge=1)
    """Tokens that the convolution sees."""
    chunk: int = Field(default=64, ge=1)
    """Tokens that the scan treats as one matrix; changes the speed alone."""

    def sizes(self, shape: Shape) -> SSMSizes:
        """Sizes of the state-space branch at ``shape``."""
        inner, head_width = self.expand * shape.width, self.head_width or shape.head_dim
        if inner % head_width:
            raise DepthbenchError(
                f"backbone.head_width = {head_width} does not divide the state-space branch's "
                f"{inner} features (expand {self.expand} · width {shape.width}). "
                f"Use a divisor, such as {math.gcd(inner, head_width)}"
            )
        return SSMSizes(
            width=shape.width,
            heads=inner // head_width,
            head_width=head_width,
            state=self.state,
            kernel=self.kernel,
            chunk=self.chunk,
        )


class HybridMemory(Memory):
    """Keys and values of the attention, tail and state of the state-space branch."""

    def __init__(self, attention: KeyValues, states: SSMMemory) -> None:
        self.attention = attention
        self.states = states

    def tensors(self) -> tuple[Tensor, ...]:
        return *self.attention.tensors(), *self.states.tensors()

    def grow(self, room: Room) -> None:
        self.attention.grow(room)
        self.states.grow(room)


@final
class AttentionBesideStates(Branch):
    """``Attention(x) + SelectiveStateSpace(x)``; what a design does over depth is attention's."""

    parts: ClassVar[tuple[str, ...]] = ("attention", "states")

    def __init__(self, attention: Attention, states: SelectiveStateSpace) -> None:
        super().__init__()
        self.attention = attention
        self.states = states

    def starts(self) -> dict[str, Start]:
        return {}

    def last(self) -> tuple[Projection, ...]:
        return *self.attention.last(), *self.states.last()

    def forward(
        self,
        x: Float[Tensor, "b t d"],
        context: Context,
        depth: Depth | None = None,
        memory: Memory | None = None,
    ) -> tuple[Float[Tensor, "b t d"], Entry | None]:
        each, entry = self.apart(x, context, depth, memory)
        return each["attention"] + each["states"], entry

    def apart(
        self,
        x: Float[Tensor, "b t d"],
        context: Context,
        depth: Depth | None = None,
        memory: Memory | None = None,
    ) -> tuple[dict[str, Float[Tensor, "b t d"]], Entry | None]:
        assert memory is None or isinstance(memory, HybridMemory)
        keys, states = (None, None) if memory is None else (memory.attention, memory.states)
        attended, entry = self.attention(x, context, depth, keys)
        return {"attention": attended, "states": self.states(x, context, None, states)[0]}, entry

    def new_memory(self, room: Room) -> HybridMemory:
        return HybridMemory(self.attention.new_memory(room), self.states.new_memory(room))

    def work(self, length: int) -> Work:
        return self.attention.work(length) + self.states.work(length)
