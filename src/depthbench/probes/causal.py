"""What a block's absence does to the updates of those behind it."""

import itertools
from typing import ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from depthbench.nn.precision import at_least_float32
from depthbench.probes.bootstrap import estimated
from depthbench.probes.lab import Lab, Part, Task
from depthbench.probes.late import late_share
from depthbench.probes.probe import Found, Probe
from depthbench.probes.program import skip
from depthbench.probes.result import curve, matrix
from depthbench.probes.subject import Subject
from depthbench.probes.walk import Step, Walker


class Effects(Task):
    """By row: sums over tokens of the changes of updates, and of the updates as they are."""

    name: ClassVar[str] = "effects"

    @torch.no_grad()
    def measure(self, walker: Walker, subject: Subject) -> Part:
        session, layers = walker.session, walker.layers
        batch = session.batch
        states = [at_least_float32(session.depth_state(state)) for state in walker.states]
        updates = [after - before for before, after in itertools.pairwise(states)]
        rows = batch.rows
        changes = torch.zeros(layers, layers, rows, dtype=torch.float64)
        sizes = torch.stack([_sizes(batch.valid, update) for update in updates])

        def watch(step: Step) -> None:
            before, after = (
                at_least_float32(session.depth_state(one)) for one in (step.before, step.after)
            )
            moved = (after - before).unflatten(0, (len(step.programs), rows))
            for place, programs in enumerate(step.programs):
                change = _sizes(batch.valid, updates[step.call.block] - moved[place])
                for number in programs:
                    changes[number, step.call.block] = change

        for _ in walker.ends([skip(layers, block) for block in range(layers)], watch):
            pass
        return {"changes": changes.numpy(), "sizes": sizes.numpy()}


def _sizes(valid: torch.Tensor, update: torch.Tensor) -> torch.Tensor:
    """Sums over a row's tokens of the norm of ``update``."""
    return (update.norm(dim=-1).double() * valid).sum(-1).cpu()


@final
class Causal(Probe):
    """The published threshold is an option."""

    name: ClassVar[str] = "causal"
    title: ClassVar[str] = "Effect of a skipped block on later ones"
    definition: ClassVar[str] = (
        "C(s, l) = mean ‖(z_{l+1} - z_l) - (z̄_{l+1} - z̄_l)‖ / mean ‖z_{l+1} - z_l‖ for l > s, "
        "with z̄ the states when block s is left out"
    )
    blind: ClassVar[str] = (
        "A skip makes states that the model never met: a large effect can be a stumble rather "
        "than a use. What two blocks both do is missed when only one is left out."
    )
    reading: ClassVar[str] = (
        "A row is the skipped block, a column a later one. Values near 1: the later block's "
        "update is another one without it. A dark upper right corner: late blocks do not build on "
        "each other."
    )
    source: ClassVar[str] = "arXiv 2505.13898"
    threshold: float = Field(default=0.45, gt=0)
    """Effect above which a late pair counts."""

    def look(self, lab: Lab) -> Found:
        layers = lab.layers
        part = lab.joined(Effects(), lab.leading(layers))
        changes, sizes = part["changes"], part["sizes"]
        found = effects(changes, sizes)
        words = "block {row} left out: relative change of what block {column} adds"
        return Found(
            [
                matrix("effect", self.title, found, ("skipped block", "later block"), words=words),
                curve(
                    "largest",
                    "Largest effect on any later block",
                    [_largest(one) for one in found],
                    words="block {} left out: largest relative change of a later block's update",
                ),
                estimated(
                    lambda weights: late_share(effects(changes, sizes, weights), self.threshold),
                    late_share(found, self.threshold),
                    sizes.shape[-1],
                    self.seed,
                    name="late_share",
                    title=f"Late pairs with an effect above {self.threshold:g}",
                    unit="share",
                ),
            ]
        )


def _largest(scores: NDArray[np.float64]) -> float:
    """NaN where none is defined."""
    known = scores[~np.isnan(scores)]
    return float(known.max()) if len(known) else float("nan")


def effects(
    changes: np.ndarray, sizes: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray:
    """``C(s, l)``, NaN unless ``l > s``; rows count as often as ``weights`` say."""
    counts = np.ones(sizes.shape[-1]) if weights is None else weights
    with np.errstate(invalid="ignore", divide="ignore"):
        found = (changes * counts).sum(-1) / (sizes * counts).sum(-1)
    layers = len(found)
    return np.where(np.triu(np.ones((layers, layers), dtype=bool), 1), found, np.nan)
