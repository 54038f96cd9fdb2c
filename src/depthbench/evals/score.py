"""Losses of rows under programs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from depthbench.evals.windows import Window
from depthbench.nn.precision import at_least_float32
from depthbench.probes.batch import Batch
from depthbench.probes.loss import chunks
from depthbench.probes.program import Program
from depthbench.probes.subject import Session, Subject
from depthbench.probes.walk import Walker

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Scores:
    """Of every row under every program."""

    nats: NDArray[np.float64]
    """(programs, rows): ``Σ -ln p`` over the tokens of a row that are scored."""
    greedy: NDArray[np.bool_]
    """(programs, rows): whether each of them is the most likely one."""


@torch.no_grad()
def scores_of(
    subject: Subject,
    windows: Sequence[Window],
    programs: Sequence[Program],
    rows: int,
    *,
    left: bool = False,
    known: int | None = None,
    progress: Progress = lambda *_: None,
) -> Scores:
    """Scores of ``windows``, ``rows`` at a time, padded on the right or ``left``.

    Programs share the calls that they begin with. Rows of like length lie in one batch. Only the
    first ``known`` rows of the head are predicted; None = all.
    """
    shape = (len(programs), len(windows))
    nats, greedy = np.zeros(shape), np.zeros(shape, bool)
    order = sorted(range(len(windows)), key=lambda number: -len(windows[number].ids))
    for start in range(0, len(order), rows):
        chosen = order[start : start + rows]
        # the last token of a row is predicted and not read
        batch = Batch.of_rows([windows[number].ids[:-1] for number in chosen], left=left)
        session = subject.session(batch)
        aims = Batch.of_rows([windows[number].ids[1:] for number in chosen], left=left)
        where = _scored(session.batch, [windows[number].first for number in chosen])
        targets = aims.tokens.to(where.device)[where]
        for program, state in _ends(session, programs):
            found = _of_rows(session, session.readout(state), where, targets, known)
            nats[program, chosen], greedy[program, chosen] = found
        progress(min(start + rows, len(order)), len(order))
    return Scores(nats, greedy)


def _ends(session: Session[Any], programs: Sequence[Program]) -> Iterator[tuple[int, Any]]:
    if len(programs) > 1:
        yield from Walker(session).ends(programs)
        return
    yield 0, end_of(session, programs[0])


def end_of(session: Session[Any], program: Program) -> Any:
    """The last state of one program, which keeps no other."""
    state = session.open()
    for call in program:
        state = session.run(call, state, 1)
    return state


def _scored(batch: Batch, firsts: Sequence[int]) -> Bool[Tensor, "b t"]:
    """Positions whose next token is scored."""
    place = torch.arange(batch.tokens.shape[1], device=batch.tokens.device)
    begins = batch.valid.int().argmax(1) + torch.tensor(firsts, device=place.device) - 1
    return batch.valid & (place >= begins[:, None])


def _of_rows(
    session: Session[Any], hidden: Tensor, where: Tensor, targets: Tensor, known: int | None
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    losses, right = [], []
    for part, wanted in chunks(session, hidden[where], targets):
        logits = at_least_float32(session.logits(part)[..., :known])
        losses.append(functional.cross_entropy(logits, wanted, reduction="none"))
        right.append(logits.argmax(-1) == wanted)
    nats = torch.zeros(where.shape, dtype=torch.float64, device=where.device)
    wrong = torch.zeros_like(where)
    nats[where], wrong[where] = torch.cat(losses).double(), ~torch.cat(right)
    return nats.sum(1).cpu().numpy(), ~wrong.any(1).cpu().numpy()
