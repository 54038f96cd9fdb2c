"""Text under any program: over a cache where there is one for it, else anew for every token."""

from collections.abc import Iterator, Sequence
from itertools import islice

import torch
from jaxtyping import Float, Int
from torch import Tensor

from depthbench.evals.score import end_of
from depthbench.nn.generate import Sampling, choose
from depthbench.probes.batch import Batch
from depthbench.probes.program import Program
from depthbench.probes.subject import Decoder, Subject


def generate_under(
    subject: Subject,
    program: Program,
    tokens: Sequence[int],
    count: int,
    *,
    sampling: Sampling | None = None,
    stop: int | None = None,
    vocab: int | None = None,
    anew: bool = False,
) -> Int[Tensor, "t_and_new"]:
    """``tokens`` and up to ``count`` more, until ``stop``; see `depthbench.nn.generate.generate`.

    ``anew`` computes the whole text for every token though there is a cache. Raises
    `DepthbenchError` for a text that the model cannot read.
    """
    found = list(tokens)
    for chosen in islice(stream(subject, program, tokens, sampling, vocab, anew=anew), count):
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
    *,
    anew: bool = False,
) -> Iterator[int]:
    """One token after another behind ``tokens``, without end."""
    sampling = sampling or Sampling()
    generator = torch.Generator().manual_seed(sampling.seed)
    decoder = None if anew else subject.decoder(program)
    if not isinstance(decoder, Decoder):
        decoder = _Anew(subject, program)
    read = list(tokens)
    while True:
        logits = decoder.read(read)[None, :vocab].cpu()
        chosen = int(choose(logits, sampling, generator))
        read = [chosen]
        yield chosen


class _Anew(Decoder):
    """The whole row for every token."""

    def __init__(self, subject: Subject, program: Program) -> None:
        self.subject, self.program = subject, program
        self.row: list[int] = []

    def read(self, tokens: Sequence[int]) -> Float[Tensor, "v"]:
        self.row += tokens
        session = self.subject.session(Batch.of_rows([self.row]))
        hidden = session.readout(end_of(session, self.program))[:, -1]
        return session.logits(hidden)[0]
