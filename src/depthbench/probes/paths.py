"""Path weights: how strongly each branch output enters each branch's input.

Once the coefficients of a design and the scales of its norms are held where they are, what a branch
reads is a linear map of the embedding and all earlier outputs. The part of it that comes from one
of them is found by forward differentiation along that output; parts add up to the whole.
"""

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
import torch.autograd.forward_ad as forward
from jaxtyping import Float
from torch import Tensor

from depthbench.nn.kernels import held, plain_kernels
from depthbench.probes.own import OwnSession

TOGETHER = 8
"""Sources whose parts are formed at a time."""


@dataclass(frozen=True)
class Paths:
    """All parts of all inputs; targets are the sites in order and the readout, sources the
    embedding and the sites."""

    inputs: Float[Tensor, "targets b t d"]
    """What the norms read."""
    outputs: Float[Tensor, "sources b t d"]
    """The embedding, and what the branches gave."""
    parts: Float[Tensor, "targets sources b t d"]

    def weights(self) -> Float[Tensor, "targets sources b t"]:
        """``w_{i→l} = <part, y_i> / <y_i, y_i>``: the coefficient, where the part is ``w y_i``."""
        own = self.outputs.double()
        dots = (self.parts.double() * own).sum(-1)
        return dots / own.square().sum(-1).clamp(min=torch.finfo(own.dtype).tiny)

    def shares(self) -> Float[Tensor, "targets sources b t"]:
        """``<part, input> / <input, input>``: adds up to 1 over the sources of a target."""
        whole = self.inputs.double().unsqueeze(1)
        dots = (self.parts.double() * whole).sum(-1)
        return dots / whole.square().sum(-1).clamp(min=torch.finfo(whole.dtype).tiny)


def look_back(
    weights: Float[Tensor, "targets sources n"],
) -> tuple[Float[Tensor, "targets sources n"], Float[Tensor, "targets n"]]:
    """Shares of the weights' sizes over the sources, and ``Σ_i share_i (l - i)`` in sites."""
    shares = weights.abs() / weights.abs().sum(1, keepdim=True)
    targets = torch.arange(len(weights), device=weights.device).unsqueeze(1)
    sources = torch.arange(weights.shape[1], device=weights.device)
    back = (targets - sources).clamp(min=0).double()
    return shares, (shares * back.unsqueeze(-1)).sum(1)


@torch.no_grad()
def paths_of(session: OwnSession) -> Paths:
    """Of every token of the session's batch."""
    with plain_kernels():
        outputs = _outputs(session)
    with held():
        inputs = torch.stack(_inputs(session, outputs, 1))
    numbers = range(len(outputs))
    parts = [
        _parts(session, outputs, numbers[start : start + TOGETHER])
        for start in range(0, len(outputs), TOGETHER)
    ]
    return Paths(inputs, torch.stack(outputs), torch.cat(parts, dim=1))


def _parts(
    session: OwnSession, outputs: list[Tensor], sources: range
) -> Float[Tensor, "targets sources b t d"]:
    """Of these sources: as many copies of the batch, each with a derivative along one of them."""
    copies, rows = len(sources), len(outputs[0])
    with held(), forward.dual_level():
        duals: list[Tensor] = []
        for number, output in enumerate(outputs):
            primal = output.repeat(copies, 1, 1)
            if number in sources:
                tangent = torch.zeros_like(primal)
                tangent.unflatten(0, (copies, rows))[number - sources.start] = output
                primal = forward.make_dual(primal, tangent)
            duals.append(primal)
        seen = [forward.unpack_dual(one) for one in _inputs(session, duals, copies)]
    # a target that no source reaches has no tangent
    along = [torch.zeros_like(one.primal) if one.tangent is None else one.tangent for one in seen]
    return torch.stack(along).unflatten(1, (copies, rows))


def _outputs(session: OwnSession) -> list[Tensor]:
    """The embedding, and the outputs of all branches."""
    model = session.model
    found = [model.embed(session.batch.tokens)]

    def keep(_: int, __: Tensor, y: Tensor) -> Tensor:
        found.append(y)
        return y

    model(session.batch.tokens, padding=session.batch.padding, tap=keep)
    return found


def _inputs(session: OwnSession, outputs: list[Tensor], copies: int) -> list[Tensor]:
    """What the norms of all sites and the final norm read, with the branches cut off."""
    model, context = session.model, session.context(copies)
    state = model.design.open(outputs[0], context)
    found: list[Tensor] = []
    for site, _, connection in model.sites():
        if site % 2 == 0:
            state = model.design.enter(state, site // 2)
        _, route = connection.read(state)
        route = fixed(route)
        found.append(connection.mixed(state, route))
        state = connection.write(state, outputs[site + 1], route, None)
    found.append(model.design.readout(state))
    return found


def fixed(route: Any) -> Any:
    """``route`` with all its tensors out of the graph."""
    if isinstance(route, Tensor):
        return route.detach()
    if is_dataclass(route) and not isinstance(route, type):
        return replace(
            route, **{one.name: fixed(route.__dict__[one.name]) for one in fields(route)}
        )
    if isinstance(route, tuple):
        return tuple(fixed(one) for one in route)
    return route
