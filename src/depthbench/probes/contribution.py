"""What each block adds: how much, and along or against the state."""

from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor

from depthbench.probes.lab import Lab, Part, Task
from depthbench.probes.probe import Found, Probe
from depthbench.probes.result import curve
from depthbench.probes.subject import Call, Subject
from depthbench.probes.walk import Walker

PARTS = ("block", "attention", "feedforward")
WRITES, ERASES = 0.1, -0.1
"""Cosines between which an update neither repeats the state nor takes it back."""


class Updates(Task):
    """Sums over tokens of ``‖u‖ / ‖z‖`` and ``cos(u, z)`` by part and block."""

    name: ClassVar[str] = "updates"

    @torch.no_grad()
    def measure(self, walker: Walker, subject: Subject) -> Part:
        session = walker.session
        found = torch.zeros(2, len(PARTS), walker.layers, dtype=torch.float64)
        for block in range(walker.layers):
            state = walker.states[block]
            between = session.run(Call(block, block, "attention"), state, 1)
            z, half, end = (
                session.batch.text(session.depth_state(one)).double()
                for one in (state, between, walker.states[block + 1])
            )
            for number, (after, before) in enumerate(((end, z), (half, z), (end, half))):
                found[:, number, block] = torch.stack(_of(after - before, before)).cpu()
        return {"sums": found.numpy(), "tokens": np.array(float(session.batch.valid.sum()))}


def _of(u: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    sizes, least = z.norm(dim=-1), torch.finfo(z.dtype).tiny
    along = (u * z).sum(-1) / (u.norm(dim=-1) * sizes).clamp(min=least)
    return (u.norm(dim=-1) / sizes.clamp(min=least)).sum(), along.sum()


@final
class Contribution(Probe):
    """No options."""

    name: ClassVar[str] = "contribution"
    title: ClassVar[str] = "What each block adds"
    definition: ClassVar[str] = (
        "with u_l = z_{l+1} - z_l: mean ‖u_l‖ / ‖z_l‖ and mean cos(u_l, z_l); for attention, the "
        "state behind it takes the place of z_{l+1}, and for the feed-forward that of z_l"
    )
    blind: ClassVar[str] = (
        "A large update may be undone by the next block, and a small one may decide. Norms and "
        "cosines are of all coordinates alike, those that the head reads or not."
    )
    reading: ClassVar[str] = (
        "Cosine above 0: the block strengthens what is there; below 0: it erases; near 0: it "
        "writes beside it. The ratio falls with depth wherever the state grows."
    )
    source: ClassVar[str] = "arXiv 2505.13898"

    def refusal(self, subject: Subject) -> str | None:
        return subject.whole

    def look(self, lab: Lab) -> Found:
        part = lab.summed(Updates())
        size, along = part["sums"] / part["tokens"]
        findings = []
        for number, name in enumerate(PARTS):
            word = {"feedforward": "feed-forward"}.get(name, name)
            findings += [
                curve(
                    f"size_{name}",
                    f"Relative size of the update, {word}",
                    size[number],
                    unit="‖u‖ / ‖z‖",
                    words="block {}: size of the update over the state's",
                ),
                curve(
                    f"along_{name}",
                    f"Direction of the update, {word}",
                    along[number],
                    unit="cos(u, z)",
                    words="block {}: cosine of the update and the state",
                ),
            ]
        return Found(findings, [_says(along[0])])


def _says(along: np.ndarray) -> str:
    """Of the blocks' updates, in one sentence."""
    adds, erases = int((along > WRITES).sum()), int((along < ERASES).sum())
    rest = len(along) - adds - erases
    return (
        f"Of {len(along)} blocks, {adds} strengthen what is in the state (cosine above "
        f"{WRITES:g}), {erases} erase it (below {ERASES:g}), and {rest} write beside it."
    )
