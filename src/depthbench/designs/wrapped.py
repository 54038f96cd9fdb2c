"""A residual design around the branches of any other model."""

from collections.abc import Sequence
from typing import Any, final

from jaxtyping import Float
from torch import Tensor, nn

from depthbench.designs.base import Connection, Design, DesignConfig, Site
from depthbench.errors import DepthbenchError
from depthbench.nn.branch import Backbone, Context
from depthbench.nn.parameters import initialise
from depthbench.shapes import Shape


@final
class Wrapped(nn.Module):
    """``readout(… write(read) …)`` with one site for each branch; see `depthbench.designs.wrap`."""

    def __init__(
        self,
        kind: type[Design[Any]],
        config: DesignConfig,
        branches: Sequence[nn.Module],
        width: int,
        *,
        seed: int,
        norm_eps: float,
    ) -> None:
        super().__init__()
        layers = _blocks_of(kind, branches, width)
        shape = Shape(layers=layers, width=width, heads=1, kv_heads=1, ffn=1, vocab=2)
        design = kind(config, shape, Backbone(norm_eps=norm_eps))
        sites = [Site(number, layers) for number in range(len(branches))]
        self.design = design
        self.branches = nn.ModuleList(branches)
        self.connections = nn.ModuleList(design.connection(site) for site in sites)
        # the branches' own parameters start as their makers chose
        own = {"design": self.design, "connections": self.connections}
        initialise(nn.ModuleDict(own), seed)

    def forward(self, x: Float[Tensor, "*axes d"]) -> Float[Tensor, "*axes d"]:
        """``x`` through all branches: ``(…, t, d)``, or ``(b, d)`` for rows without a time axis.

        Raises `DepthbenchError` where a branch changes the shape of what it reads.
        """
        width = self.design.shape.width
        if x.ndim < 2 or x.shape[-1] != width:
            raise DepthbenchError(
                f"x has shape {tuple(x.shape)}, but the design was made for width {width}. "
                f"Give (batch, time, {width}) or (batch, {width})"
            )
        rows = x.unsqueeze(-2) if x.ndim == 2 else x
        nowhere = rows.new_empty(0, 1)
        state = self.design.open(rows.flatten(0, -3), Context(nowhere, nowhere))
        state = self.design.enter(state, 0)
        for number, (branch, connection) in enumerate(
            zip(self.branches, self.connections, strict=True)
        ):
            if number and number % 2 == 0:
                state = self.design.enter(state, number // 2)
            assert isinstance(connection, Connection)
            read, route = connection.read(state)
            y = branch(read.reshape(x.shape))
            _check_output(number, y, x)
            state = connection.write(state, y.reshape(read.shape), route, None)
        return self.design.readout(state).reshape(x.shape)


def _check_output(number: int, y: Any, x: Tensor) -> None:
    if not isinstance(y, Tensor):
        raise DepthbenchError(
            f"branch {number} returned a {type(y).__name__}, but a tensor is needed. Put a module "
            "around it that returns the tensor alone"
        )
    if y.shape != x.shape:
        raise DepthbenchError(
            f"branch {number} made {tuple(x.shape)} into {tuple(y.shape)}. A branch must keep the "
            "shape of what it reads"
        )


def _blocks_of(kind: type[Design[Any]], branches: Sequence[nn.Module], width: int) -> int:
    """Number of blocks; raises `DepthbenchError` for what cannot be wrapped."""
    name = kind.Config.model_fields["name"].default
    if kind.in_attention:
        raise DepthbenchError(
            f"design '{name}' changes what attention computes, so it cannot be put around other "
            "branches. Use it in a depthbench model, or wrap another design"
        )
    for number, branch in enumerate(branches):
        if not isinstance(branch, nn.Module):
            raise DepthbenchError(
                f"branch {number} is a {type(branch).__name__}, but a torch.nn.Module is needed"
            )
    if not branches or len(branches) % 2:
        raise DepthbenchError(
            f"{len(branches)} branches: a design counts two to a block. Give an even number, such "
            "as attention and feed-forward of each block"
        )
    if not isinstance(width, int) or width < 2 or width % 2:
        raise DepthbenchError(f"width = {width!r}: an even number is needed here")
    return len(branches) // 2
