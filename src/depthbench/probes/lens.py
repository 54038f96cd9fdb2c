"""What the head reads at every depth."""

from typing import Any, ClassVar, final

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from depthbench.nn.precision import at_least_float32
from depthbench.probes.bootstrap import estimated
from depthbench.probes.lab import Lab, Part, Task
from depthbench.probes.loss import by_row, chunks
from depthbench.probes.probe import Found, Probe
from depthbench.probes.result import curve
from depthbench.probes.subject import Session, Subject
from depthbench.probes.walk import Walker


class Decoded(Task):
    """By depth and row: sums of cross entropy, KL(final ‖ here), and overlap of the best tokens."""

    name: ClassVar[str] = "decoded"
    best: int

    @torch.no_grad()
    def measure(self, walker: Walker, subject: Subject) -> Part:
        session = walker.session
        batch = session.batch
        hidden = [session.readout(state)[:, :-1][batch.predicted] for state in walker.states]
        targets = batch.tokens[:, 1:][batch.predicted]
        each = torch.cat(
            [
                self._chunk(session, part, wanted)
                for part, wanted in chunks(session, torch.stack(hidden, 1), targets)
            ],
            dim=-1,
        )
        sums = torch.stack([torch.stack([by_row(batch, one) for one in kind]) for kind in each])
        return {
            "sums": sums.cpu().numpy(),
            "tokens": batch.predicted.sum(1).double().cpu().numpy(),
        }

    def _chunk(self, session: Session[Any], hidden: Tensor, targets: Tensor) -> Tensor:
        """``(3, L + 1, n)`` of ``hidden`` ``(n, L + 1, d)``."""
        final = _log_chances(session, hidden[:, -1])
        chances, best = final.exp(), final.topk(self.best, dim=-1).indices
        rows: list[list[Tensor]] = [[], [], []]
        for depth in range(hidden.shape[1]):
            here = _log_chances(session, hidden[:, depth])
            rows[0].append(-here.gather(1, targets[:, None])[:, 0])
            # Σ p (ln p - ln q) of each token: no difference of two large sums
            rows[1].append((chances * (final - here)).sum(-1).clamp(min=0))
            own = here.topk(self.best, dim=-1).indices
            rows[2].append((own[:, :, None] == best[:, None, :]).any(-1).double().mean(-1))
        return torch.stack([torch.stack([one.double() for one in kind]) for kind in rows])


def _log_chances(session: Session[Any], hidden: Tensor) -> Tensor:
    return functional.log_softmax(at_least_float32(session.logits(hidden)), dim=-1)


@final
class Lens(Probe):
    """LogitLens at every depth, with the final norm as it scales each depth's own state."""

    name: ClassVar[str] = "lens"
    title: ClassVar[str] = "What the head reads at every depth"
    definition: ClassVar[str] = (
        "logits of final norm and head on the readout at depth l: next-token cross entropy, "
        "KL(final ‖ here), share of the 5 most likely tokens that are also the final 5"
    )
    blind: ClassVar[str] = (
        "Head and final norm are made for the last depth: what an early state holds in other "
        "directions is not read. It need not fall steadily."
    )
    reading: ClassVar[str] = (
        "KL falling early: the answer stands early and later blocks refine it. KL falling in the "
        "last blocks alone: the answer is formed late, or in a form that the head reads only "
        "there."
    )
    source: ClassVar[str] = "nostalgebraist 2020; arXiv 2303.08112"
    best: int = Field(default=5, ge=1)
    """Most likely tokens that are compared."""

    def look(self, lab: Lab) -> Found:
        part = lab.joined(Decoded(best=self.best))
        sums, tokens = part["sums"], part["tokens"]
        loss, divergence, overlap = sums.sum(-1) / tokens.sum()

        def half(weights: np.ndarray) -> float:
            return half_depth((sums[1] * weights).sum(-1))

        return Found(
            [
                curve(
                    "loss",
                    "Next-token loss of the lens",
                    loss,
                    "depth",
                    unit="nats/token",
                    words="read at depth {}: loss",
                ),
                curve(
                    "divergence",
                    "KL(final ‖ lens)",
                    divergence,
                    "depth",
                    unit="nats/token",
                    words="read at depth {}: divergence from the final prediction",
                ),
                curve(
                    "overlap",
                    f"Overlap of the {self.best} most likely tokens",
                    overlap,
                    "depth",
                    unit="share",
                    words="read at depth {}: share of the final best tokens",
                ),
                estimated(
                    half,
                    half_depth(divergence),
                    len(tokens),
                    self.seed,
                    name="half_depth",
                    title="Depth at which the lens reaches half of its divergence at depth 0",
                    unit="blocks",
                ),
            ]
        )


def half_depth(divergence: np.ndarray) -> float:
    """First depth from which on the divergence stays at or below half of that at depth 0.

    Between two depths on the straight line through both.
    """
    half = divergence[0] / 2
    above = np.nonzero(divergence > half)[0]
    if not len(above):
        return 0.0
    last = int(above[-1])
    if last == len(divergence) - 1:
        return float(last)
    return last + float((divergence[last] - half) / (divergence[last] - divergence[last + 1]))
