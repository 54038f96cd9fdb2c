"""Angles between depths: how far the state turns."""

from typing import ClassVar, final

import numpy as np
import torch

from depthbench.probes.lab import Lab, Part, Task
from depthbench.probes.measures import depth_states, unit
from depthbench.probes.probe import Found, Probe
from depthbench.probes.result import curve, matrix
from depthbench.probes.subject import Subject
from depthbench.probes.walk import Walker

AT_A_TIME = 2**18
"""Entries of two states that are compared at a time, to stay in the cache."""


class Angles(Task):
    """Sums over tokens of the angles between all pairs of depths, in half turns."""

    name: ClassVar[str] = "angles"

    @torch.no_grad()
    def measure(self, walker: Walker, subject: Subject) -> Part:
        states = depth_states(walker)
        count, (tokens, width) = len(states), states[0].shape
        sums = torch.zeros(count, count, dtype=torch.float64)
        step = max(1, AT_A_TIME // width)
        for start in range(0, tokens, step):
            units = torch.stack([unit(state[start : start + step]) for state in states])
            for i in range(count - 1):
                between = angles(units[i], units[i + 1 :]).sum(-1).cpu()
                sums[i, i + 1 :] += between
                sums[i + 1 :, i] += between
        return {"sums": sums.numpy(), "tokens": np.array(float(tokens))}


def angles(one: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """``arccos(cos) / π`` of unit vectors, as ``2 atan2(|a - b|, |a + b|) / π``.

    The arccos would lose half of the digits of a small angle, and be NaN beyond 1.
    """
    apart, together = (others - one).norm(dim=-1), (others + one).norm(dim=-1)
    return 2 / torch.pi * torch.atan2(apart, together)


@final
class Angular(Probe):
    """No options."""

    name: ClassVar[str] = "angular"
    title: ClassVar[str] = "Angle between depths"
    definition: ClassVar[str] = "arccos(cos(z_i, z_j)) / π, mean over tokens, all pairs of depths"
    blind: ClassVar[str] = (
        "An angle can be noise: a state that turns without use turns too. Depths that share a "
        "large common direction look alike, whatever else they hold."
    )
    reading: ClassVar[str] = (
        "Near 0 for distant depths: the blocks between them hardly turn the state. A block of "
        "small angles at the end is the usual sign of idle late depth; check it with prune."
    )
    source: ClassVar[str] = "arXiv 2403.17887"

    def look(self, lab: Lab) -> Found:
        part = lab.summed(Angles())
        found = part["sums"] / part["tokens"]
        words = "angle between the states at depths {row} and {column}"
        pairs = matrix(
            "angle", self.title, found, ("depth", "depth"), unit="half turns", words=words
        )
        steps = curve(
            "step",
            "Turn of each block",
            np.diagonal(found, 1),
            unit="half turns",
            words="angle between the states before and behind block {}",
        )
        return Found([pairs, steps])
