"""Next-token losses of what programs end with."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from depthbench.nn.precision import at_least_float32
from depthbench.probes.batch import Batch
from depthbench.probes.subject import Session

LOGITS = 2**24
"""Logits that are formed at a time."""


def token_losses(session: Session[Any], state: Any) -> Float[Tensor, "n"]:
    """``-ln p(next token)`` in nats at every predicted position, row by row."""
    return losses_of(session, session.readout(state))


def losses_of(session: Session[Any], hidden: Float[Tensor, "b t d"]) -> Float[Tensor, "n"]:
    """The same of what the final norm reads."""
    batch = session.batch
    read, targets = hidden[:, :-1][batch.predicted], batch.tokens[:, 1:][batch.predicted]
    found: list[Tensor] = []
    for rows, wanted in chunks(session, read, targets):
        logits = at_least_float32(session.logits(rows))
        found.append(functional.cross_entropy(logits, wanted, reduction="none"))
    return torch.cat(found)


def chunks(
    session: Session[Any], read: Float[Tensor, "n d"], targets: Tensor
) -> list[tuple[Tensor, Tensor]]:
    """Parts of positions whose logits fit."""
    size = max(1, LOGITS // session.vocab)
    return list(zip(read.split(size), targets.split(size), strict=True))


def by_row(batch: Batch, each: Float[Tensor, "n"]) -> Float[Tensor, "b"]:
    """Sums over the predicted positions of each row, in float64."""
    spread = torch.zeros(batch.predicted.shape, dtype=torch.float64, device=each.device)
    spread[batch.predicted] = each.double()
    return spread.sum(1)


def own_loss(session: Session[Any]) -> Float[Tensor, ""]:
    """Mean next-token loss of the model's own forward, for those who train it."""
    return mean_loss(session.batch, session.own_logits())


def mean_loss(batch: Batch, logits: Float[Tensor, "b t v"]) -> Float[Tensor, ""]:
    """Mean next-token loss of ``logits`` over the predicted positions."""
    read, targets = logits[:, :-1][batch.predicted], batch.tokens[:, 1:][batch.predicted]
    return functional.cross_entropy(at_least_float32(read), targets)
