"""Laws of a model that trains: every parameter moves, and the loss falls."""

import torch

from depthbench.check.law import Outcome, broken, within
from depthbench.check.subject import Subject, loss_of, tokens_of
from depthbench.nn.model import Model

STEPS = 20
RATE = 3e-3


def moving(subject: Subject) -> Outcome:
    """After 20 steps every parameter has left its start, and the loss has fallen.

    Adam without weight decay in float64: what moves, moves by its gradient.
    """
    model = Model.build(subject.config(), seed=0, dtype=torch.float64)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    tokens = tokens_of(batch=4, length=17)
    losses = []
    for _ in range(STEPS):
        loss = loss_of(model, tokens)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    still = [name for name, p in model.named_parameters() if torch.equal(p, before[name])]
    if still:
        more = f" and {len(still) - 3} more" if len(still) > 3 else ""
        return broken(f"never moved in {STEPS} steps: {', '.join(still[:3])}{more}")
    return within(losses[-1] / losses[0], 1.0, f"loss after {STEPS} steps over the first")
