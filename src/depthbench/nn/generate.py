"""Continue token sequences with a model, one token at a time over its cache."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from depthbench.config import Frozen, Seed
from depthbench.errors import DepthbenchError
from depthbench.nn.branch import check_padding
from depthbench.nn.model import Model

AHEAD = 256
"""New tokens that there is room for at the start: most texts end long before the most allowed."""


class Sampling(Frozen):
    """How the next token is chosen: first ``top_k``, then ``top_p`` narrow the choice."""

    temperature: float = Field(default=0.0, ge=0)
    """Logits are divided by it; 0 takes the most likely token."""
    top_k: int | None = Field(default=None, ge=1)
    """Only the ``top_k`` most likely tokens."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Only the fewest most likely tokens whose probabilities reach ``top_p`` (arXiv 1904.09751)."""
    seed: Seed = 0
    """Of what is drawn."""


@torch.no_grad()
def generate(
    model: Model,
    tokens: Int[Tensor, "b t"],
    count: int,
    *,
    sampling: Sampling | None = None,
    padding: Int[Tensor, "b"] | None = None,
    stop: int | None = None,
    vocab: int | None = None,
    program: Sequence[int] | None = None,
) -> Int[Tensor, "b t_and_new"]:
    """``tokens`` and up to ``count`` more for each sequence.

    ``padding`` counts the tokens on the left of each sequence that are no text. A sequence ends
    with the token ``stop``; what follows it is ``stop`` again, and when all have ended nothing more
    is computed. ``vocab`` leaves out the rows that only pad the head. ``program`` names the blocks
    that run. The same arguments give the same tokens on the same machine.

    Raises `DepthbenchError` for an empty prompt, counts and ids that are out of range, and programs
    that have no cache.
    """
    sampling = sampling or Sampling()
    _check(model, tokens, count, stop, vocab)
    check_padding(padding, *tokens.shape)
    generator = torch.Generator().manual_seed(sampling.seed)
    room = tokens.shape[1] + min(count, AHEAD)
    cache = model.cache(len(tokens), room, padding=padding, program=program)
    found, ended, step = [tokens], torch.zeros(len(tokens), dtype=torch.bool), tokens
    for _ in range(count):
        if cache.length + step.shape[1] > cache.room.capacity:
            model.grow(cache, 2 * cache.room.capacity)
        logits = model.step(step, cache, last=True)[:, -1, :vocab].cpu()
        chosen = choose(logits, sampling, generator)
        if stop is not None:
            chosen = torch.where(ended, stop, chosen)
            ended = ended | (chosen == stop)
        step = chosen[:, None].to(tokens.device)
        found.append(step)
        if ended.all():
            break
    return torch.cat(found, dim=1)


def choose(
    logits: Float[Tensor, "b v"], sampling: Sampling, generator: torch.Generator
) -> Int[Tensor, "b"]:
    """One token a row."""
    if sampling.temperature == 0:
        return logits.argmax(-1)
    return torch.multinomial(probabilities(logits, sampling), 1, generator=generator)[:, 0]


def probabilities(logits: Float[Tensor, "b v"], sampling: Sampling) -> Float[Tensor, "b v"]:
    """What `choose` draws from, in float32 or better; at a temperature above 0."""
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
    # the largest at 0: a low temperature then gives -inf and no overflow
    scaled = (exact - exact.amax(-1, keepdim=True)) / sampling.temperature
    order = scaled.argsort(dim=-1, descending=True, stable=True)
    ranked = scaled.gather(-1, order)
    if sampling.top_k is not None:
        ranked[:, sampling.top_k :] = float("-inf")
    chances = torch.softmax(ranked, dim=-1)
    if sampling.top_p is not None:
        before = chances.cumsum(-1) - chances
        kept = torch.where(before < sampling.top_p, chances, torch.zeros_like(chances))
        chances = kept / kept.sum(-1, keepdim=True)
    return torch.zeros_like(chances).scatter(-1, order, chances)


def _check(model: Model, tokens: Tensor, count: int, stop: int | None, vocab: int | None) -> None:
    rows = model.config.shape.vocab
    if tokens.ndim != 2 or len(tokens) == 0 or tokens.dtype.is_floating_point:
        raise DepthbenchError(
            f"tokens have shape {tuple(tokens.shape)} and dtype {tokens.dtype}. Give whole "
            "numbers of shape (batch, time), with at least one sequence"
        )
    if tokens.shape[1] == 0:
        raise DepthbenchError(
            "the prompt is empty: give at least one token, such as the one that starts a document"
        )
    if count < 0:
        raise DepthbenchError(f"count = {count}: the number of new tokens is 0 or more")
    for name, value, least, most in (("stop", stop, 0, rows - 1), ("vocab", vocab, 1, rows)):
        if value is not None and not least <= value <= most:
            raise DepthbenchError(
                f"{name} = {value}: the model has {rows} tokens. Use {least} to {most}"
            )
    if int(tokens.min()) < 0 or int(tokens.max()) >= rows:
        raise DepthbenchError(
            f"tokens hold ids from {int(tokens.min())} to {int(tokens.max())}, but the model knows "
            f"0 to {rows - 1}. Use the tokenizer that it was trained with"
        )
