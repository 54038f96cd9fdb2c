"""How much of its depth a model uses, in a few numbers and a sentence."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from depthbench.probes.bootstrap import estimated
from depthbench.probes.causal import Causal
from depthbench.probes.lab import Lab
from depthbench.probes.lens import Lens
from depthbench.probes.measures import Loss
from depthbench.probes.permutation import Permutation
from depthbench.probes.probe import Found, Probe
from depthbench.probes.program import skip
from depthbench.probes.result import Finding, Number, curve


@dataclass(frozen=True)
class Removal:
    """Blocks in the order in which they were left out."""

    order: tuple[int, ...]
    nats: NDArray[np.float64]
    """``(steps + 1, rows)``: sums of losses, before any is left out and behind each."""
    tokens: NDArray[np.float64]

    def kept(self, layers: int, tolerance: float, weights: NDArray[np.float64]) -> int:
        """Blocks that are left when the next removal would cost more than ``tolerance``."""
        losses = (self.nats * weights).sum(1)
        over = np.nonzero(losses > (1 + tolerance) * losses[0])[0]
        return layers - (int(over[0]) - 1 if len(over) else len(self.order))


@final
class Depth(Probe):
    """Tolerance and effort of the search."""

    name: ClassVar[str] = "depth"
    title: ClassVar[str] = "Depth that is used"
    definition: ClassVar[str] = (
        "shares of late pairs with a causal effect above 0.45 and a swap above 15 %; depth at "
        "which the lens halves its KL; fewest blocks that keep the loss within 2 %, by leaving "
        "out the cheapest block again and again, of those that were cheapest when last tried; "
        "95 % bootstrap intervals over documents"
    )
    blind: ClassVar[str] = (
        "A skip makes states that the model never met, an angle can be noise, a swap breaks what "
        "is bound to a place: they can disagree, and none of them says what training with fewer "
        "blocks would have given."
    )
    reading: ClassVar[str] = (
        "Fewest blocks near the number of blocks: each is needed where it stands. Far fewer: the "
        "rest is nearly free to leave out on this text. Late pairs near 0: late blocks hardly "
        "build on each other."
    )
    source: ClassVar[str] = "arXiv 2505.13898; arXiv 2403.17887"
    tolerance: float = Field(default=0.02, gt=0)
    """Growth of the loss that is allowed to the pruned model."""
    candidates: int = Field(default=8, ge=1)
    """Blocks that are tried at each step behind the first: the cheapest when last tried."""

    def look(self, lab: Lab) -> Found:
        layers = lab.layers
        removal = cheapest_out(lab, self.candidates, 2 * self.tolerance)
        rows = len(removal.tokens)
        every = np.ones(rows)
        kept = removal.kept(layers, self.tolerance, every)
        numbers: list[Finding] = [
            estimated(
                lambda weights: removal.kept(layers, self.tolerance, weights),
                kept,
                rows,
                self.seed,
                name="kept",
                title=f"Fewest blocks that keep the loss within {self.tolerance:.0%}",
                unit="of 1 block" if layers == 1 else f"of {layers} blocks",
            )
        ]
        causal = _numbers(Causal(seed=self.seed).look(lab).findings)["late_share"]
        swaps = _numbers(Permutation(seed=self.seed).look(lab).findings)["late_share"]
        lens = _numbers(Lens(seed=self.seed).look(lab).findings)["half_depth"]
        numbers += [
            causal.model_copy(update={"name": "causal_share"}),
            swaps.model_copy(update={"name": "permutation_share"}),
            lens,
        ]
        losses = removal.nats.sum(1) / removal.tokens.sum()
        line = curve(
            "removal",
            "Loss as the cheapest blocks are left out",
            losses,
            "blocks left out",
            unit="nats/token",
            words="{} blocks left out: loss",
        )
        named = ", ".join(map(str, removal.order[: layers - kept]))
        words = [verdict(layers, kept, causal, swaps, lens)]
        if named:
            words.append(f"Left out within {self.tolerance:.0%}, in this order: {named}.")
        return Found([*numbers, line], words)


def cheapest_out(
    lab: Lab, candidates: int, tolerance: float | None = None, most: int | None = None
) -> Removal:
    """Leave out the block that costs least, again and again.

    The first step tries all blocks, each other one the ``candidates`` that cost least when they
    were last tried. It ends behind the first step whose loss is more than ``tolerance`` above the
    model's own (so that resampled rows can end there), or with ``most`` blocks out.
    """
    layers = lab.layers
    batches = lab.leading(layers)
    out: list[int] = []
    costs = dict.fromkeys(range(layers), 0.0)
    """Of the blocks that are left: nats that the text lost when they were last tried."""
    rows: list[NDArray[np.float64]] = []
    tokens = np.zeros(0)
    while costs and (most is None or len(out) < most):
        tried = sorted(costs, key=costs.__getitem__)[: candidates if out else layers]
        loss = Loss(lab, [skip(layers, *out, block) for block in tried], batches)
        if not rows:
            rows, tokens = [loss.nats[0]], loss.tokens
        costs |= zip(tried, (loss.nats[1:].sum(1) - rows[-1].sum()).tolist(), strict=True)
        best = int(np.argmin(loss.each))
        out.append(tried[best])
        del costs[tried[best]]
        rows.append(loss.nats[1 + best])
        if tolerance is not None and rows[-1].sum() > (1 + tolerance) * rows[0].sum():
            break
    return Removal(tuple(out), np.stack(rows), tokens)


def _numbers(findings: Sequence[Finding]) -> dict[str, Number]:
    return {one.name: one for one in findings if isinstance(one, Number)}


def verdict(layers: int, kept: int, causal: Number, swaps: Number, lens: Number) -> str:
    """The numbers in one sentence, and whether they agree."""
    parts = [_kept_in_words(layers, kept)]
    if causal.value is not None:
        parts.append(f"{causal.value:.0%} of late pairs depend on each other")
    if swaps.value is not None:
        parts.append(f"the order matters for {swaps.value:.0%} of them")
    if lens.value is not None:
        parts.append(f"the lens has lost half of its divergence by depth {lens.value:.1f}")
    text = "; ".join(parts)
    return text[0].upper() + text[1:] + "."


def _kept_in_words(layers: int, kept: int) -> str:
    if layers == 1:
        return f"the only block {'cannot' if kept else 'can'} go without loss"
    if kept == layers:
        return f"none of the {layers} blocks can go without loss"
    if kept == 0:
        return f"the loss is kept without any of the {layers} blocks"
    return f"{kept} of {layers} blocks {'keeps' if kept == 1 else 'keep'} the loss"
