"""What a study concludes, as frozen data: the content of ``verdict.json``."""

from typing import Literal

from pydantic import Field

from depthbench.config import Frozen

DepthTrend = Literal["falls", "levels", "flat", "turns_back", "diverged", "unknown"]
Edge = Literal["lowest", "highest"]


class Spread(Frozen):
    """Spread of bits per byte over seeds; only where at least two seeds finished."""

    standard_deviation: float
    """Sample standard deviation (``n - 1``)."""
    least: float
    greatest: float


class Candidate(Frozen):
    """One learning rate of the search at the middle shape."""

    learning_rate: float
    finished: int
    diverged: int
    failed: int
    bits_per_byte: float | None
    """Mean over the finished seeds; None when none finished."""
    nats_per_token: float | None


class Search(Frozen):
    """The learning-rate search of one design."""

    layers: int | None
    """The middle shape; None without a search."""
    width: int | None
    grid: tuple[Candidate, ...]
    chosen: float | None
    """Least mean loss, a diverged trial counting as worst; None when no candidate finished."""
    used: float | None
    """The learning rate of the curve."""
    edge_of_grid: Edge | None
    """Set when ``chosen`` is the end of a grid of two or more: the optimum may lie outside."""


class Point(Frozen):
    """One shape of a design's curve, over its seeds."""

    layers: int
    width: int
    aspect_ratio: float
    finished: int
    diverged: int
    failed: int
    bits_per_byte: float | None
    """Mean over the finished seeds: it misses ``diverged + failed`` of them."""
    nats_per_token: float | None
    spread: Spread | None
    by_seed: dict[int, float]
    """Bits per byte of each finished seed."""

    @property
    def trials(self) -> int:
        """Finished, diverged and failed together."""
        return self.finished + self.diverged + self.failed

    @property
    def lost(self) -> str:
        """What became of a shape without any finished trial: ``1 diverged, 2 failed``."""
        parts = [
            (number, word)
            for number, word in ((self.diverged, "diverged"), (self.failed, "failed"))
            if number
        ]
        if len(parts) == 1:
            return parts[0][1]
        return ", ".join(f"{number} {word}" for number, word in parts)


def best_of(curve: tuple[Point, ...]) -> Point | None:
    """The point with the least mean loss; None when no trial of the curve finished."""
    measured = [(loss, point) for point in curve if (loss := point.bits_per_byte) is not None]
    return min(measured, key=lambda pair: pair[0])[1] if measured else None


class Slope(Frozen):
    """Least squares of mean bits per byte on ``log2(layers)``; below 0 means that depth helps."""

    bits_per_byte_per_doubling: float
    standard_error: float | None
    """Standard deviation of the seeds' own slopes over ``sqrt(seeds)``; None under two seeds."""
    seeds: int
    """Seeds that finished every shape of the fit."""


class TurnsBack(Frozen):
    """Loss at the deepest shape minus the least loss of the curve; 0 if the deepest is best."""

    bits_per_byte: float
    pooled_deviation: float | None
    """Standard deviation between seeds, pooled over the shapes; None when no shape has two."""
    standard_error: float | None
    """Of the difference of the two means, from the pooled deviation."""


class DesignFinding(Frozen):
    """All that is concluded about one design."""

    label: str
    search: Search
    curve: tuple[Point, ...]
    """From the shallowest shape to the deepest."""
    best_layers: int | None
    slope: Slope | None
    turns_back: TurnsBack | None
    trend: DepthTrend
    sentence: str = ""

    @property
    def best(self) -> Point | None:
        """The shape with the least mean loss."""
        return best_of(self.curve)


class Entry(Frozen):
    """One design in a comparison."""

    label: str
    layers: int
    bits_per_byte: float
    standard_deviation: float | None
    finished: int
    trials: int


class Comparison(Frozen):
    """Designs side by side, the least loss first."""

    at: Literal["deepest", "best"]
    layers: int | None
    """The depth compared at; None at each design's best."""
    entries: tuple[Entry, ...]
    left_out: tuple[str, ...]
    """Designs without a finished trial there."""
    difference: float | None
    """Second minus first, in bits per byte."""
    standard_error: float | None
    """Of that difference: ``sqrt(s1²/n1 + s2²/n2)``; None under two seeds."""
    winner: str | None
    """Only with at least three seeds each and a difference beyond two standard errors."""
    sentence: str = ""


class Verdict(Frozen):
    """The whole conclusion of a study."""

    schema_version: Literal[1] = 1
    study: str
    finished: int
    diverged: int
    failed: int
    unfinished: int = 0
    """Trials of the study's plan without a result yet."""
    designs: tuple[DesignFinding, ...]
    comparisons: tuple[Comparison, ...]
    headline: str = ""
    depth: str = ""
    """Does depth pay? One sentence."""
    cautions: tuple[str, ...] = Field(default=())
    """What weakens the conclusion: grid edges, lost trials, mixed data."""

    def sentences(self) -> tuple[str, ...]:
        """The verdict in words, in reading order."""
        designs = tuple(design.sentence for design in self.designs)
        comparisons = tuple(comparison.sentence for comparison in self.comparisons)
        return (self.depth, *designs, *comparisons, *self.cautions)


class Concluded(Frozen):
    """What ``run --json`` prints at the end of a study."""

    schema_version: Literal[1] = 1
    verdict: Verdict
    report: str
    """Path of the page."""
