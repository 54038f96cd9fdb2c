"""Linear CKA between depths."""

from typing import ClassVar, final

import numpy as np
import torch

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
    source: ClassVar[str] = "arXiv 1905.00414"

    def look(self, lab: Lab) -> Found:
        tokens = lab.tokens(lab.batches)
        if tokens < FEWEST:
            raise LackingError(
                f"cka of {tokens} tokens says nothing: give at least {FEWEST} with --tokens"
            )
        means = lab.summed(Means())["sums"] / tokens
        depths = lab.layers + 1
        squares = np.zeros((depths, depths))
        given = tuple(map(tuple, means.tolist()))
        pairs = [(i, j) for i in range(depths) for j in range(i, depths)]
        for group in in_groups(lab, pairs):
            crossed = lab.summed(Crossed(pairs=tuple(group), means=given))
            for i, j in group:
                squares[i, j] = squares[j, i] = (crossed[f"{i}.{j}"] ** 2).sum()
        own = np.sqrt(np.diagonal(squares))
        with np.errstate(invalid="ignore", divide="ignore"):
            found = squares / np.outer(own, own)
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
