"""Laws of the function that a model with this design computes."""

import torch
from torch import Tensor

from depthbench.check.law import Outcome, broken, held, none, within
from depthbench.check.subject import SMALL, Subject, distance, gradients_of, tokens_of
from depthbench.nn.block import Trace
from depthbench.nn.kernels import plain_kernels

ROUNDING = 1e-10
"""Of float64 through a few blocks, relative to the largest entry."""
EFFECT = 1e-6
"""Share of the largest logit below which an input has had no effect."""


@torch.no_grad()
def causal(subject: Subject) -> Outcome:
    """Change one token: logits before it stay, its own and later ones move."""
    tokens = tokens_of()
    before = subject.random(tokens)
    if not before.isfinite().all():
        return broken("the logits at random parameters are not finite")
    scale, worst = before.abs().max().item(), 0.0
    for changed in (0, 4, 9):
        other = tokens.clone()
        other[:, changed] = (tokens[:, changed] + 1) % SMALL.vocab
        moved = (before - subject.random(other)).abs().amax((0, 2)) / scale
        worst = max(worst, moved[:changed].sum().item())
        if not (moved[changed:] > EFFECT).all():
            return broken(f"changing token {changed} leaves a later position as it was")
    return within(worst, ROUNDING, "logits before a changed token")


@torch.no_grad()
def apart(subject: Subject) -> Outcome:
    """Every sequence of a batch, and the same one alone."""
    tokens = tokens_of(batch=4)
    together = subject.random(tokens)
    alone = torch.cat([subject.random(row) for row in tokens.split(1)])
    return within(distance(together, alone), ROUNDING, "a sequence in a batch and alone")


@torch.no_grad()
def programs(subject: Subject) -> Outcome:
    """The program of all blocks is the model; others run and differ; the empty one reads out."""
    model, tokens = subject.random, tokens_of()
    plain = model(tokens)
    if not torch.equal(model(tokens, program=range(SMALL.layers)), plain):
        return broken("the program 0 1 2 is not the plain forward, bit for bit")
    for program in ([0, 2], [0, 1], [0, 2, 1], [0, 1, 1, 2], []):
        other = model(tokens, program=program)
        if not other.isfinite().all():
            return broken(f"program {program} gives logits that are not finite")
        if distance(other, plain) < EFFECT:
            return broken(f"program {program} gives the logits of the whole model")
    return held("skip, exit, swap, repeat and nothing")


@torch.no_grad()
def taps(subject: Subject) -> Outcome:
    """Every branch is called once, can be watched without effect, and matters."""
    model, tokens = subject.random, tokens_of()
    plain, seen = model(tokens), []

    def watch(site: int, x: Tensor, y: Tensor) -> Tensor:
        if x.shape != y.shape or x.shape != (*tokens.shape, SMALL.width):
            seen.append(-1)
        seen.append(site)
        return y

    trace = Trace()
    watched = model(tokens, tap=watch, trace=trace)
    if seen != list(range(SMALL.sites)):
        return broken(f"sites were called as {seen}, not once each with (batch, time, width)")
    if not torch.equal(watched, plain) or len(trace.depth_states) != SMALL.layers + 1:
        return broken("watching changes the logits, or depth states are missing")
    for edited in range(SMALL.sites):

        def silence(site: int, _: Tensor, y: Tensor, edited: int = edited) -> Tensor:
            return torch.zeros_like(y) if site == edited else y

        if distance(model(tokens, tap=silence), plain) < EFFECT:
            return broken(f"the branch of site {edited} has no effect on the logits")
    return held(f"{SMALL.sites} sites")


def kernels(subject: Subject) -> Outcome:
    """Logits and gradients by the fast operations and by torch's own."""
    model, tokens = subject.random, tokens_of()
    logits = model(tokens)
    gradients = gradients_of(model, logits)
    with plain_kernels():
        expected = model(tokens)
        worst, name = distance(logits, expected), "logits"
        for parameter, plain in gradients_of(model, expected).items():
            # gradients that are 0 in exact numbers are rounding in both
            if (
                plain.abs().max() > ROUNDING
                and (d := distance(gradients[parameter], plain)) > worst
            ):
                worst, name = d, parameter
    return within(worst, 1e-8, f"largest for {name}")


@torch.no_grad()
def decoding(subject: Subject) -> Outcome:
    """One token at a time, in pieces, and with left padding."""
    model, tokens = subject.random, tokens_of(batch=3, length=12)
    full, worst = model(tokens), 0.0
    for pieces in ([1] * 12, [5, 1, 4, 2]):
        cache = model.cache(3, 12)
        steps = [model.step(piece, cache) for piece in tokens.split(pieces, dim=1)]
        worst = max(worst, distance(torch.cat(steps, dim=1), full))
    padding = torch.tensor([0, 2, 5])
    cache = model.cache(3, 12, padding=padding)
    steps = torch.cat([model.step(piece, cache) for piece in tokens.split([7, 1, 4], dim=1)], dim=1)
    padded = model(tokens, padding=padding)
    for row, skipped in enumerate(padding.tolist()):
        alone = model(tokens[row : row + 1, skipped:])[0]
        for logits in (steps, padded):
            worst = max(worst, distance(logits[row, skipped:], alone))
    return within(worst, ROUNDING, "cached and full logits; in pieces, with left padding")


def checkpointing(subject: Subject) -> Outcome:
    """Recomputed activations give the same gradients."""
    model, tokens = subject.random, tokens_of()
    kept = gradients_of(model, model(tokens))
    model.checkpointing = True
    try:
        again = gradients_of(model, model(tokens))
    finally:
        model.checkpointing = False
    worst = max(distance(again[name], gradient) for name, gradient in kept.items())
    return within(worst, ROUNDING, "gradients with and without recomputation")


@torch.no_grad()
def mixing(subject: Subject) -> Outcome:
    """Rows and columns of mixing matrices that are claimed to be doubly stochastic."""
    claimed = subject.random.design.mixing_error()
    if claimed is None:
        return none("no constrained mixing matrices")
    trace = Trace()
    subject.random(tokens_of(), trace=trace)
    mixes = [mix for _, route in trace.routes for mix in route.mixes()]
    if not mixes:
        return broken("a mixing error is claimed, but no route holds a mixing matrix")
    if any((mix < 0).any() for mix in mixes):
        return broken("a mixing matrix has an entry below 0, so it is not doubly stochastic")
    # torch's maximum of NaN is NaN, Python's is not
    errors = [(mix.sum(axis) - 1).abs().max() for mix in mixes for axis in (-1, -2)]
    largest = torch.stack(errors).max().item()
    return within(largest, claimed, "largest row or column error, parameters random")
