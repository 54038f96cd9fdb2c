"""One Transformer block: two branches, their connections, and how a state goes through them."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from depthbench.designs.base import Connection, Design, Route, Site
from depthbench.nn.backbones import backbone_kind
from depthbench.nn.branch import Backbone, Branch, Context, Depth, Entry, Load, Role
from depthbench.nn.packed import Packed, pack, unpack
from depthbench.nn.recompute import recomputed
from depthbench.shapes import Shape

Tap = Callable[[int, Tensor, Tensor], Tensor]
"""``tap(site, x, y)`` returns what stands in for the output ``y`` of a branch with input ``x``."""

Pair = tuple[Branch, Connection[Any]]


@dataclass
class Trace:
    """What a forward saw: depth states ``z_0 … z_L`` and the route of every site, in order."""

    depth_states: list[Tensor] = field(default_factory=list)
    routes: list[tuple[int, Route]] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    """Of every router, in order."""
    read: Tensor | None = None
    """What the head reads: the final norm of the readout."""


class Block(nn.Module):
    """Two branches and the connections of their sites.

    It is a module of its own so that it can be sharded and compiled as one.
    """

    def __init__(
        self,
        number: int,
        shape: Shape,
        backbone: Backbone,
        design: Design[Any],
        branch_factor: float = 1.0,
    ) -> None:
        super().__init__()
        self.number = number
        self.branch_factor = branch_factor
        self.compiles_whole = design.checkpoint_unit == "block"

        def std(role: Role) -> float:
            deep = (2 * shape.layers) ** -0.5 if backbone.depth_scaled_init else 1.0
            return (
                backbone.init_std
                * design.branch_scale(role)
                * (deep if role in ("o", "down") else 1.0)
            )

        kind = backbone_kind(backbone)
        self.attention = kind.attention(shape, std)
        self.feedforward = kind.feedforward(shape, std)
        self.attention_connection = design.connection(Site(2 * number, shape.layers))
        self.feedforward_connection = design.connection(Site(2 * number + 1, shape.layers))

    def pairs(self) -> tuple[Pair, Pair]:
        """Branch and connection of both sites."""
        return (
            (self.attention, self.attention_connection),
            (self.feedforward, self.feedforward_connection),
        )

    def sites(self) -> Iterator[tuple[int, Branch, Connection[Any]]]:
        """Number, branch and connection of both sites."""
        for side, (branch, connection) in enumerate(self.pairs()):
            yield 2 * self.number + side, branch, connection

    def forward(
        self, state: Any, context: Context, tap: Tap | None = None, trace: Trace | None = None
    ) -> Any:
        """The state behind both sites.

        ``context.recompute = "block"`` keeps only the state before them for the backward pass; not
        with a ``trace``, which keeps the routes anyway. A `Packed` state comes back packed,
        together with what the block's routers did.
        """
        if isinstance(state, Packed):
            loads: list[Load] = []
            own = replace(context, loads=None if context.loads is None else loads)
            return pack((self.forward(unpack(state), own, tap, trace), tuple(loads)))
        if context.recompute == "block":
            inside = replace(context, recompute=None)
            if trace is None:
                return recomputed(
                    lambda own, state: self._run(own, state, tap, None), inside, state
                )
            context = inside
        return self._run(context, state, tap, trace)

    def site(self, side: int, state: Any, context: Context) -> Any:
        """The state behind one site alone: 0 the attention's, 1 the feed-forward's."""
        return _site(context, self, side, self.pairs()[side], state, None, None)

    def replaced(self, outputs: Sequence[Tensor], state: Any) -> Any:
        """The state behind both sites, had their branches given ``outputs``.

        Their connections do what they always do; no branch hands an entry on over depth.
        """
        for y, (_, connection) in zip(outputs, self.pairs(), strict=True):
            _, route = connection.read(state)
            state = connection.write(state, y, route, None)
        return state

    def apart(
        self, state: Any, context: Context, silent: Collection[str] = ()
    ) -> tuple[Any, list[dict[str, Tensor]]]:
        """The state behind both sites, and what the parts of each branch gave, by name.

        Parts called one of ``silent`` give nothing to the state; what an attention hands on over
        depth it hands on all the same.
        """
        found: list[dict[str, Tensor]] = []
        for branch, connection in self.pairs():
            x, route = connection.read(state)
            given, entry = branch.apart(x, context, route.depth)
            parts = {name: y * self.branch_factor for name, y in given.items()}
            kept = [y for name, y in parts.items() if name not in silent]
            y = torch.stack(kept).sum(0) if kept else torch.zeros_like(x)
            state = connection.write(state, y, route, entry)
            found.append(parts)
        return state, found

    def _run(self, context: Context, state: Any, tap: Tap | None, trace: Trace | None) -> Any:
        if context.compiled is not None and self.compiles_whole:
            return context.compiled(_through, context, self, state)
        return _through(context, self, state, tap, trace)


def _through(
    context: Context, block: Block, state: Any, tap: Tap | None = None, trace: Trace | None = None
) -> Any:
    for side, pair in enumerate(block.pairs()):
        state = _site(context, block, side, pair, state, tap, trace)
    return state


def _site(
    context: Context,
    block: Block,
    side: int,
    pair: Pair,
    state: Any,
    tap: Tap | None,
    trace: Trace | None,
) -> Any:
    # the number is read only where someone asks for it: a graph that holds it serves one block
    branch, connection = pair
    x, route = connection.read(state)
    if context.cache is None:
        y, entry = _output(context, branch, x, route.depth)
    else:
        memory = context.cache.branch(2 * block.number + side, context.turn)
        y, entry = branch(x, context, route.depth, memory)
    if block.branch_factor != 1.0:
        y = y * block.branch_factor
    if tap is not None:
        y = tap(2 * block.number + side, x, y)
    if trace is not None:
        trace.routes.append((2 * block.number + side, route))
    return connection.write(state, y, route, entry)


def _output(
    context: Context, branch: Branch, x: Tensor, depth: Depth | None
) -> tuple[Tensor, Entry | None]:
    if context.recompute == "branch":
        inside = replace(context, recompute=None)
        return recomputed(lambda own, x, depth: _output(own, branch, x, depth), inside, x, depth)
    # entries over depth grow from site to site: see `Compiler`
    if context.compiled is not None and depth is None:
        return context.compiled(_branch, context, branch, x)
    return branch(x, context, depth)


def _branch(context: Context, branch: Branch, x: Tensor) -> tuple[Tensor, Entry | None]:
    return branch(x, context)
