"""Linear CKA between depths."""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray

from depthbench.probes.lab import Lab, Part, Task
from depthbench.probes.measures import depth_states, in_groups
from depthbench.probes.probe import Found, LackingError, Probe
from depthbench.probes.result import curve, matrix
from depthbench.probes.subject import Subject
from depthbench.probes.walk import Walker

FEWEST = 4
"""Tokens: with fewer, any two states are similar."""


class Means(Task):
    """Sums of ``z`` at every depth."""

    name: ClassVar[str] = "means"

    @torch.no_grad()
    def measure(self, walker: Walker, subject: Subject) -> Part:
        states = torch.stack(depth_states(walker)).double()
        return {"sums": states.sum(1).cpu().numpy()}


class Crossed(Task):
    """Sums over tokens of ``(x - x̄)(y - ȳ)ᵀ`` for pairs of depths."""

    name: ClassVar[str] = "crossed"
    pairs: tuple[tuple[int, int], ...]
    means: tuple[tuple[float, ...], ...]

    @torch.no_grad()
    def measure(self, walker: Walker, subject: Subject) -> Part:
        states = depth_states(walker)
        means = torch.tensor(self.means, dtype=torch.float64, device=states[0].device)
        centred = [state.double() - mean for state, mean in zip(states, means, strict=True)]
        return {f"{i}.{j}": (centred[i].T @ centred[j]).cpu().numpy() for i, j in self.pairs}


@dataclass(frozen=True)
class Alike:
    """All pairs of depths of one model."""

    cka: NDArray[np.float64]
    """``(depths, depths)``; NaN where a state does not vary."""
    directions: NDArray[np.float64]
    """Effective number by depth, ``(Σ λ)² / Σ λ²`` of the covariance's eigenvalues ``λ``."""


def alike(lab: Lab, probe: str) -> Alike:
    """Linear CKA of all pairs of depths, from sums over batches.

    Raises `LackingError`, in the name of ``probe``, for a text that is too short.
    """
    tokens = lab.tokens(lab.batches)
    if tokens < FEWEST:
        raise LackingError(
            f"{probe} of {tokens} tokens says nothing: give at least {FEWEST} with --tokens"
        )
    means = lab.summed(Means())["sums"] / tokens
    depths = lab.layers + 1
    squares, traces = np.zeros((depths, depths)), np.zeros(depths)
    given = tuple(map(tuple, means.tolist()))
    pairs = [(i, j) for i in range(depths) for j in range(i, depths)]
    for group in in_groups(lab, pairs):
        crossed = lab.summed(Crossed(pairs=tuple(group), means=given))
        for i, j in group:
            squares[i, j] = squares[j, i] = (crossed[f"{i}.{j}"] ** 2).sum()
            if i == j:
                traces[i] = np.trace(crossed[f"{i}.{j}"])
    own = np.sqrt(np.diagonal(squares))
    with np.errstate(invalid="ignore", divide="ignore"):
        return Alike(squares / np.outer(own, own), traces**2 / np.diagonal(squares))


@final
class CKA(Probe):
    """No options."""

    name: ClassVar[str] = "cka"
    title: ClassVar[str] = "Linear CKA between depths"
    definition: ClassVar[str] = (
        "‖X̃ᵀỸ‖_F² / (‖X̃ᵀX̃‖_F ‖ỸᵀỸ‖_F) of the centred states of all tokens, from sums over batches"
    )
    blind: ClassVar[str] = (
        "It sees mostly the few directions of largest variance, and no rotation. High values "
        "do not say that blocks are dispensable."
    )
    reading: ClassVar[str] = (
        "Large light squares along the diagonal: runs of depths that hold the same up to a "
        "rotation. Compare models of one depth only."
    )
    source: ClassVar[str] = "arXiv 1905.00414"

    def look(self, lab: Lab) -> Found:
        found = alike(lab, self.name).cka
        return Found(
            [
                matrix(
                    "cka",
                    self.title,
                    found,
                    ("depth", "depth"),
                    words="linear CKA of the states at depths {row} and {column}",
                ),
                curve(
                    "neighbours",
                    "CKA of neighbouring depths",
                    np.diagonal(found, 1),
                    words="CKA of the states before and behind block {}",
                ),
            ]
        )
