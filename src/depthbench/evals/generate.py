"""Text under any program.

The whole text runs again for every token: a cache holds one memory for each block, which a block
that runs twice, or at another place, does not have.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

import torch
from jaxtyping import Int
from torch import Tensor

from depthbench.evals.score import end_of
from depthbench.nn.generate import Sampling, choose
from depthbench.probes.batch import Batch
from depthbench.probes.program import Program
from depthbench.probes.subject import Subject


def generate_under(
    subject: Subject,
    program: Program,
    tokens: Sequence[int],
    count: int,
    *,
    sampling: Sampling | None = None,
    stop: int | None = None,
    vocab: int | None = None,
) -> Int[Tensor, "t_and_new"]:
    """``tokens`` and up to ``count`` more, until ``stop``; see `depthbench.nn.generate.generate`.

    Raises `DepthbenchError` for a text that the model cannot read.
    """
    found = list(tokens)
    for chosen in islice(stream(subject, program, tokens, sampling, vocab), count):
        found.append(chosen)
        if chosen == stop:
            break
    return torch.tensor(found)


@torch.no_grad()
def stream(
    subject: Subject,
    program: Program,
    tokens: Sequence[int],
    sampling: Sampling | None = None,
    vocab: int | None = None,
) -> Iterator[int]:
    """One token after another behind ``tokens``, without end."""
    sampling = sampling or Sampling()
    generator = torch.Generator().manual_seed(sampling.seed)
    found = list(tokens)
    while True:
        session = subject.session(Batch.of_rows([found]))
        hidden = session.readout(end_of(session, program))[:, -1]
        chosen = int(choose(session.logits(hidden)[:, :vocab].cpu(), sampling, generator))
        found.append(chosen)
        yield chosen
