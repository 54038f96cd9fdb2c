"""Tasks that several probes share."""

from collections.abc import Sequence
from typing import ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor

from depthbench.probes.lab import Lab, Part, Task
from depthbench.probes.loss import by_row, token_losses
from depthbench.probes.program import Program, plain
from depthbench.probes.subject import Call, Subject
from depthbench.probes.walk import Walker

T = TypeVar("T")
TOGETHER = 32
"""Programs of one task: workers share tasks, also where the text is one batch."""
GROUP_BYTES = 2**28
"""Of the sums of products that are held at a time."""


class Losses(Task):
    """Next-token loss of every program, by row."""

    name: ClassVar[str] = "losses"
    programs: tuple[Program, ...]

    def measure(self, walker: Walker, subject: Subject) -> Part:
        session = walker.session
        batch = session.batch
        nats = torch.zeros(len(self.programs), batch.rows, dtype=torch.float64)
        for number, state in walker.ends(self.programs):
            with torch.no_grad():
                nats[number] = by_row(batch, token_losses(session, state)).cpu()
        counts = batch.predicted.sum(1).double()
        sizes = (batch.sizes[:, 1:] * batch.predicted).sum(1).double()
        return {"nats": nats.numpy(), "tokens": counts.cpu().numpy(), "bytes": sizes.cpu().numpy()}


class Loss:
    """Losses of programs by row."""

    def __init__(
        self, lab: Lab, programs: Sequence[Program], batches: Sequence[int] | None = None
    ) -> None:
        """On ``batches``; unless given, as many as the number of programs allows."""
        self.batches = lab.leading(len(programs)) if batches is None else batches
        every = (plain(lab.layers), *programs)
        starts = range(0, len(every), TOGETHER)
        tasks = [Losses(programs=every[start : start + TOGETHER]) for start in starts]
        parts = lab.joined_each(tasks, self.batches)
        self.nats = np.concatenate([part["nats"] for part in parts])
        self.tokens, self.bytes = parts[0]["tokens"], parts[0]["bytes"]

    @property
    def plain(self) -> float:
        """Of the model as it is, in nats per token."""
        return self.average()

    def average(self, weights: np.ndarray | None = None) -> float:
        """The same; rows count as often as ``weights`` say."""
        counts = np.ones_like(self.tokens) if weights is None else weights
        return float((self.nats[0] * counts).sum() / (self.tokens * counts).sum())

    @property
    def bits_per_byte(self) -> float | None:
        """The same in bits per byte; None where the bytes are not known."""
        total = self.bytes.sum()
        return float(self.nats[0].sum() / np.log(2) / total) if total else None

    @property
    def each(self) -> np.ndarray:
        """Of every program, in nats per token."""
        return self.nats[1:].sum(1) / self.tokens.sum()

    def changes(self, weights: np.ndarray | None = None) -> np.ndarray:
        """``loss(program) - loss`` in nats per token; rows count as often as ``weights`` say."""
        counts = np.ones_like(self.tokens) if weights is None else weights
        return ((self.nats[1:] - self.nats[0]) * counts).sum(1) / (self.tokens * counts).sum()


def unit(z: Tensor) -> Tensor:
    """Rows of length 1 in float64; a row of zeros stays."""
    z = z.double()
    return z / z.norm(dim=-1, keepdim=True).clamp(min=torch.finfo(z.dtype).tiny)


def depth_states(walker: Walker) -> list[Tensor]:
    """``z_0 … z_L`` of the text's tokens alone, ``(n, w)``, in the model's precision."""
    session = walker.session
    with torch.no_grad():
        return [session.batch.text(session.depth_state(state)) for state in walker.states]


def call_of(block: int) -> Call:
    """A block at its own place."""
    return Call(block, block)


def in_groups(lab: Lab, items: list[T], matrices: int = 1) -> list[list[T]]:
    """Items whose ``matrices`` of depth states' products are summed together."""
    facts = lab.subject.facts
    size = 8 * matrices * (facts.width * facts.streams) ** 2
    most = max(1, GROUP_BYTES // size)
    return [items[start : start + most] for start in range(0, len(items), most)]
