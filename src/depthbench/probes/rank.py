"""How many directions the tokens' states fill."""

from typing import ClassVar, final

import numpy as np
import torch

from depthbench.probes.lab import Lab, Part, Task
from depthbench.probes.measures import depth_states, in_groups
from depthbench.probes.probe import Found, Probe
from depthbench.probes.result import curve
from depthbench.probes.subject import Subject
from depthbench.probes.walk import Walker

TITLES = {
    "stable": "Stable rank",
    "entropy": "Entropy rank",
    "stable_centred": "Stable rank less the mean state",
    "entropy_centred": "Entropy rank less the mean state",
}


class Second(Task):
    """Sums of ``z zᵀ`` and ``z`` at some depths."""

    name: ClassVar[str] = "second"
    depths: tuple[int, ...]

    @torch.no_grad()
    def measure(self, walker: Walker, subject: Subject) -> Part:
        states = depth_states(walker)
        found: Part = {}
        for depth in self.depths:
            z = states[depth].double()
            found[f"zz.{depth}"], found[f"z.{depth}"] = (
                (z.T @ z).cpu().numpy(),
                z.sum(0).cpu().numpy(),
            )
        return found


@final
class Rank(Probe):
    """No options."""

    name: ClassVar[str] = "rank"
    title: ClassVar[str] = "Directions that the states fill"
    definition: ClassVar[str] = (
        "with the singular values σ of the matrix of all tokens' depth states: stable rank "
        "Σσ² / max σ², entropy rank exp(-Σ p ln p) with p = σ / Σσ; the same less the mean state"
    )
    blind: ClassVar[str] = (
        "A few huge coordinates that all tokens share press the rank to 1 whatever else is there; "
        "the rank less the mean is less blind to that. It says nothing of use."
    )
    reading: ClassVar[str] = (
        "Stable rank near 1 with a high rank less the mean: one common direction rules the state. "
        "A fall with depth: tokens become alike."
    )
    source: ClassVar[str] = "Roy and Vetterli 2007"

    def look(self, lab: Lab) -> Found:
        found: dict[str, list[float]] = {name: [] for name in TITLES}
        tokens = lab.tokens(lab.batches)
        for depths in in_groups(lab, list(range(lab.layers + 1))):
            sums = lab.summed(Second(depths=tuple(depths)))
            for depth in depths:
                mean, whole = sums[f"z.{depth}"] / tokens, sums[f"zz.{depth}"]
                centred = whole - tokens * np.outer(mean, mean)
                for kind, moments in (("", whole), ("_centred", centred)):
                    stable, entropy = ranks(moments)
                    found[f"stable{kind}"].append(stable)
                    found[f"entropy{kind}"].append(entropy)
        return Found(
            [
                curve(name, title, found[name], "depth", unit="directions", words="depth {}: rank")
                for name, title in TITLES.items()
            ]
        )


def ranks(moments: np.ndarray) -> tuple[float, float]:
    """Stable and entropy rank of a matrix from its ``zᵀ z``; NaN for a matrix of zeros."""
    squares = np.clip(np.linalg.eigvalsh(moments), 0, None)
    # what rounding leaves of a direction that is not there
    squares[squares < squares.max() * len(squares) * np.finfo(np.float64).eps] = 0
    if not squares.max() > 0:
        return float("nan"), float("nan")
    shares = np.sqrt(squares) / np.sqrt(squares).sum()
    shares = shares[shares > 0]
    return float(squares.sum() / squares.max()), float(np.exp(-(shares * np.log(shares)).sum()))
