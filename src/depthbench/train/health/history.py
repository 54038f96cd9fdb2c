"""A trial's metric records as the rules read them."""

from dataclasses import dataclass, field
from typing import Any, Literal

from depthbench.config import Frozen
from depthbench.train.config import TrainConfig
from depthbench.train.health.spikes import Signal, Spike

Kind = Literal[
    "divergence",
    "late_divergence",
    "loss_lost",
    "no_learning",
    "loss_spike",
    "gradient_spike",
    "update_spike",
    "not_finite",
    "gradient_ratio",
    "second_moment_low",
    "update_small",
    "update_large",
    "similarity_rising",
    "state_growth",
    "mixing_error",
    "low_precision_drift",
    "expert_dead",
    "expert_collapse",
]
Severity = Literal["note", "warning", "problem"]
Where = Literal["block", "site", "state", "router"]


class Finding(Frozen):
    """Something worth a word, with the numbers that it stands on."""

    kind: Kind
    severity: Severity
    """``problem``: the trial is lost, or its numbers are wrong; ``warning``: look at it."""
    step: int
    """At which it began, in finished steps."""
    until: int | None = None
    """First step at which it was over; None while it lasts."""
    where: Where | None = None
    places: tuple[int, ...] = ()
    """Numbers of the blocks, sites, depth states or routers, from 0; sites are two a block."""
    numbers: dict[str, float]
    words: str


@dataclass
class History:
    """What the records say, in order of steps."""

    train: TrainConfig
    losses: list[tuple[int, float | None]] = field(default_factory=list)
    """Finished steps and training loss; None where it is not finite."""
    measures: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    """`Health` as recorded."""
    spikes: dict[tuple[Signal, int | None, int], Spike] = field(default_factory=dict)
    """By signal, block and first step: the last word on each."""
    diverged: tuple[int, str] | None = None
    """Step and reason, once the trial is over."""

    def add(self, record: dict[str, Any]) -> None:
        """The next record of ``metrics.jsonl``."""
        step = record["step"]
        self.losses.append((step, record["train_loss"]))
        if "health" in record:
            self.measures.append((step, record["health"]))
        for one in record.get("spikes", ()):
            spike = Spike.parse(one)
            self.spikes[spike.signal, spike.block, spike.step] = spike

    @property
    def step(self) -> int:
        """Finished steps."""
        return self.losses[-1][0] if self.losses else 0
