"""What the parts of hybrid branches give, and how they go together."""

from collections.abc import Iterator
from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from depthbench.probes.lab import Part, Task
from depthbench.probes.measures import call_of
from depthbench.probes.subject import Subject
from depthbench.probes.walk import Walker

SHORTEST = 3
"""Tokens behind the beginning: a correlation of two is always one."""


def low_pass(
    x: Float[Tensor, "t d"], window: int, average: Literal["causal", "centred"]
) -> Float[Tensor, "t d"]:
    """Mean of the last ``window`` tokens, or of those nearest on both sides, as far as there are.

    An even centred window has one token more in the past.
    """
    before = window - 1 if average == "causal" else window // 2
    sums = functional.pad(x.double().cumsum(0), (0, 0, 1, 0))
    place = torch.arange(len(x), device=x.device)
    start = (place - before).clamp(min=0)
    stop = (place - before + window).clamp(max=len(x))
    return (sums[stop] - sums[start]) / (stop - start).unsqueeze(-1)


class Pairs(Task):
    """What both parts of a block give on each document."""

    windows: tuple[int, ...]
    average: Literal["causal", "centred"]
    beginning: int

    def documents(self, walker: Walker, block: int) -> Iterator[tuple[Tensor, Tensor]]:
        """State-space part and attention on the text of each row, ``(t, d)`` in float64."""
        session = walker.session
        _, parts = session.parts(call_of(block), walker.states[block])
        [one] = [found for found in parts if "states" in found]
        for states, attention, valid in zip(
            one["states"], one["attention"], session.batch.valid, strict=True
        ):
            yield states[valid].double(), attention[valid].double()

    def signals(self, states: Tensor, attention: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """By window: state-space part, averaged attention, and that turned by half of the text."""
        for window in self.windows:
            low = low_pass(attention, window, self.average)[self.beginning :]
            yield states[self.beginning :], low, low.roll(len(low) // 2, 0)


class Correlations(Pairs):
    """By window, block and row: correlation over tokens, mean over channels, and its control."""

    name: ClassVar[str] = "overlap_correlations"

    @torch.no_grad()
    def measure(self, walker: Walker, subject: Subject) -> Part:
        rows = walker.session.batch.rows
        found = np.full((2, len(self.windows), walker.layers, rows), np.nan)
        sizes = np.zeros((2, walker.layers, rows))
        lengths = walker.session.batch.valid.sum(1).double().cpu().numpy() - self.beginning
        for block in range(walker.layers):
            for row, (states, attention) in enumerate(self.documents(walker, block)):
                sizes[0, block, row] = states.square().sum()
                sizes[1, block, row] = attention.square().sum()
                if lengths[row] < SHORTEST:
                    continue
                for number, (s, low, turned) in enumerate(self.signals(states, attention)):
                    found[0, number, block, row] = correlation(s, low)
                    found[1, number, block, row] = correlation(s, turned)
        return {
            "correlation": found[0],
            "control": found[1],
            "states": sizes[0],
            "attention": sizes[1],
            "tokens": np.where(lengths < SHORTEST, 0.0, lengths),
        }


def correlation(x: Float[Tensor, "t d"], y: Float[Tensor, "t d"]) -> float:
    """Pearson's over tokens, mean over the channels where both vary; NaN where none does."""
    a, b = x - x.mean(0), y - y.mean(0)
    spread = a.norm(dim=0) * b.norm(dim=0)
    # what is left of a constant by rounding is no signal
    least = 1e-10 * x.norm(dim=0) * y.norm(dim=0)
    known = spread > least
    return float(((a * b).sum(0)[known] / spread[known]).mean())


class Alignments(Pairs):
    """Sums over tokens of products of the signals and of the signals, for linear CKA."""

    name: ClassVar[str] = "overlap_alignments"
    blocks: tuple[int, ...]

    @torch.no_grad()
    def measure(self, walker: Walker, subject: Subject) -> Part:
        found: dict[str, Tensor] = {"tokens": torch.zeros((), dtype=torch.float64)}

        def add(name: str, values: Tensor) -> None:
            found[name] = found[name] + values.cpu() if name in found else values.cpu()

        for block in self.blocks:
            for states, attention in self.documents(walker, block):
                if block == self.blocks[0]:
                    add("tokens", torch.tensor(float(max(0, len(states) - self.beginning))))
                s = states[self.beginning :]
                add(f"states.{block}", s.sum(0))
                add(f"own.{block}", s.T @ s)
                for window, (_, low, turned) in zip(
                    self.windows, self.signals(states, attention), strict=True
                ):
                    add(f"low.{block}.{window}", low.sum(0))
                    add(f"square.{block}.{window}", low.T @ low)
                    add(f"cross.{block}.{window}", s.T @ low)
                    add(f"turned.{block}.{window}", s.T @ turned)
        return {name: values.numpy() for name, values in found.items()}


def alignment(sums: Part, block: int, window: int, crossed: str) -> float:
    """``‖S̃ᵀÃ‖_F² / (‖S̃ᵀS̃‖_F ‖ÃᵀÃ‖_F)`` from `Alignments`; NaN where one does not vary."""
    tokens = sums["tokens"]
    s, low = sums[f"states.{block}"], sums[f"low.{block}.{window}"]
    cross = sums[f"{crossed}.{block}.{window}"] - np.outer(s, low) / tokens
    own = sums[f"own.{block}"] - np.outer(s, s) / tokens
    square = sums[f"square.{block}.{window}"] - np.outer(low, low) / tokens
    sizes = np.linalg.norm(own) * np.linalg.norm(square)
    return float((cross**2).sum() / sizes) if sizes > 0 else np.nan
