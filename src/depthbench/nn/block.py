"""One Transformer block: two branches, their connections, and how a state goes through them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from depthbench.designs.base import Connection, Design, Route, Site
from depthbench.nn.backbones import backbone_kind
from depthbench.nn.branch import Backbone, Branch, Context, Depth, Entry, Load, Role
from depthbench.nn.packed import Packed, pack, unpack
from depthbench.nn.recompute import recomputed
from depthbench.shapes import Shape

Tap = Callable[[int, Tensor, Tensor], Tensor]
"""``tap(site, x, y)`` returns what stands in for the output ``y`` of a branch with input ``x``."""


@dataclass
class Trace:
    """What a forward saw: depth states ``z_0 … z_L`` and the route of every site, in order."""

    depth_states: list[Tensor] = field(default_factory=list)
    routes: list[tuple[int, Route]] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    """Of every router, in order."""


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

    def sites(self) -> Iterator[tuple[int, Branch, Connection[Any]]]:
        """Number, branch and connection of both sites."""
        yield 2 * self.number, self.attention, self.attention_connection
        yield 2 * self.number + 1, self.feedforward, self.feedforward_connection

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
                    lambda own, state: self._through(state, own, tap, None), inside, state
                )
            context = inside
        return self._through(state, context, tap, trace)

    def _through(self, state: Any, context: Context, tap: Tap | None, trace: Trace | None) -> Any:
        for site, branch, connection in self.sites():
            x, route = connection.read(state)
            y, entry = _output(site, branch, x, context, route.depth)
            if self.branch_factor != 1.0:
                y = y * self.branch_factor
            if tap is not None:
                y = tap(site, x, y)
            state = connection.write(state, y, route, entry)
            if trace is not None:
                trace.routes.append((site, route))
        return state


def _output(
    site: int, branch: Branch, x: Tensor, context: Context, depth: Depth | None
) -> tuple[Tensor, Entry | None]:
    if context.recompute == "branch":
        return recomputed(lambda own, x, depth: branch(x, own, depth), context, x, depth)
    memory = None if context.cache is None else context.cache.branches[site]
    return branch(x, context, depth, memory)
