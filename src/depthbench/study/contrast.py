"""What a comparison of two runs shows, as frozen data: the content of ``comparison.json``."""

from typing import Any, Literal

from pydantic import Field

from depthbench.config import Frozen
from depthbench.study.budget import Budget
from depthbench.study.paired import Exact, Interval
from depthbench.study.shared import SharedStart

Verdict = Literal["a_lower", "b_lower", "no_difference", "too_few_seeds"]


class SideResult(Frozen):
    """One side over its seeds."""

    label: str
    budget: Budget
    learning_rate: float
    """The peak."""
    ids: dict[int, str]
    """Trial of each seed that is over."""
    bits_per_byte: dict[int, float]
    """Validation loss of each finished seed."""
    nats_per_token: dict[int, float]
    standard_deviation: float | None
    """Of bits per byte between seeds (``n - 1``); None under two."""
    diverged: tuple[int, ...]
    """Seeds."""
    failed: tuple[int, ...]
    seconds_per_step: float | None
    """Median over seeds of the mean wall time of a training step."""


class Lead(Frozen):
    """Difference of the final validation losses, A minus B, over the seeds both finished."""

    by_seed: dict[int, float]
    """In bits per byte."""
    bits_per_byte: Interval
    nats_per_token: Interval
    noise: float | None
    """What a lead must exceed: two standard errors of the difference if runs were not paired,
    ``2 sqrt(s_A²/n + s_B²/n)``, in bits per byte; None under two seeds."""
    exact: Exact


class Curve(Frozen):
    """Difference of the training losses on the same batches, A minus B, in nats per token."""

    window: int
    """Steps that each point is the mean of; 1 = every step by itself."""
    logged_every: int
    """Steps between two records: only these have a difference."""
    pairs: int
    confidence: float
    steps: tuple[int, ...]
    """The last step of each window."""
    a: tuple[float, ...]
    """Training loss itself, mean over window and seeds."""
    b: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float | None, ...]
    """Bounds of Student's interval over seeds, point by point."""
    high: tuple[float | None, ...]


class ByDepth(Frozen):
    """One signal at one step, bottom first, mean over seeds; None where no seed has a value."""

    step: int
    a: tuple[float | None, ...]
    b: tuple[float | None, ...]


class LossSlope(Frozen):
    """Least squares of the training loss on the first steps, in nats per token for 100 steps.

    Over as many steps as ``train.health.slope_steps`` says.
    """

    steps: int
    a: dict[int, float]
    """By seed."""
    b: dict[int, float]
    difference: Interval | None
    """A minus B; None without a pair."""


class Observations(Frozen):
    """The four that show how a design trains."""

    slope: LossSlope
    gradient_norm: tuple[ByDepth, ...]
    """By block."""
    state_variance: tuple[ByDepth, ...]
    """Of the depth states ``z_0 … z_L``."""
    neighbour_cosine: tuple[ByDepth, ...]
    """Between ``z_i`` and ``z_{i+1}``."""

    def signals(self) -> dict[str, tuple[ByDepth, ...]]:
        """Those by depth, by name."""
        return {
            "gradient_norm": self.gradient_norm,
            "state_variance": self.state_variance,
            "neighbour_cosine": self.neighbour_cosine,
        }


class Contrast(Frozen):
    """The whole result."""

    schema_version: Literal[1] = 1
    name: str
    seeds: tuple[int, ...]
    a: SideResult
    b: SideResult
    data_hash: str
    shared: SharedStart
    lead: Lead | None
    """None when no seed finished with both sides."""
    training: Curve | None
    observations: Observations
    verdict: Verdict
    machines: tuple[str, ...]
    """Where the trials ran, in words."""
    config: dict[str, Any]
    """Resolved config of the comparison."""
    finished: str
    """ISO 8601 time of the last trial, UTC; empty before the first."""
    sentence: str = ""
    """The verdict in words."""
    warnings: tuple[str, ...] = Field(default=())
    """What weakens it: unequal operations or time, lost trials, what was changed."""
    facts: tuple[str, ...] = Field(default=())
    """What both sides share, and what the numbers are."""

    @property
    def labels(self) -> tuple[str, str]:
        """Of A and B."""
        return self.a.label, self.b.label


class Compared(Contrast):
    """What ``compare --json`` prints."""

    report: str
    """Path of the page."""
