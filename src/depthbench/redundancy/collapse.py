"""Neighbouring layers whose states are alike, in one model and over models of many sizes."""

from collections.abc import Sequence
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from depthbench.config import Frozen
from depthbench.errors import DepthbenchError
from depthbench.probes.cka import Alike, alike
from depthbench.probes.lab import Lab
from depthbench.probes.probe import Found, Probe
from depthbench.probes.result import Curve, Finding, Number, ProbeResult, curve, matrix, row, value


@final
class Collapse(Probe):
    """From where on states are alike, and how many blocks in a row are a collapse."""

    name: ClassVar[str] = "collapse"
    title: ClassVar[str] = "Collapse of neighbouring layers"
    definition: ClassVar[str] = (
        "linear CKA of the depth states of all tokens, by distance in depth (mean, least and "
        "largest over pairs) and of neighbours; longest run of blocks whose neighbours reach the "
        "threshold; effective directions (Σ λ)² / Σ λ² of the covariance's eigenvalues λ"
    )
    blind: ClassVar[str] = (
        "CKA sees the few directions and tokens of largest norm: states that one direction rules "
        "are alike whatever blocks do beside it, and a block can decide the loss without moving "
        "it. Deeper models take smaller steps, so their neighbours are more alike by that alone. "
        "High values do not say that blocks are dispensable: prune does."
    )
    reading: ClassVar[str] = (
        "A long run of neighbours above the threshold is a suspect: ask prune whether it can go. "
        "Compare models of other sizes by the depths a quarter of the model apart."
    )
    source: ClassVar[str] = "arXiv 1905.00414; arXiv 2010.15327"
    alike: float = Field(default=0.99, gt=0, le=1)
    """CKA from which on neighbours count as the same."""
    share: float = Field(default=0.5, gt=0, le=1)
    """Of all blocks: a run of alike neighbours so long is a collapse."""
    directions: float = Field(default=2.0, ge=1)
    """Effective directions of a state under which its CKA is called one-sided."""

    def look(self, lab: Lab) -> Found:
        found = alike(lab, self.name)
        neighbours = np.diagonal(found.cka, 1)
        start, length = longest(neighbours >= self.alike)
        words = [self._verdict(neighbours, start, length), self._reach(found.cka)]
        one_sided = np.nonzero(found.directions < self.directions)[0]
        if len(one_sided):
            least = int(np.argmin(found.directions))
            words.append(
                f"At {len(one_sided)} of {len(found.directions)} depths the state has fewer than "
                f"{self.directions:g} effective directions (depth {least}: "
                f"{found.directions[least]:.2f}): CKA there says little of what else it holds."
            )
        run = Number(
            name="run",
            title=f"Longest run of blocks with a CKA of neighbours of at least {self.alike:g}",
            unit=f"of {lab.layers} blocks",
            value=length,
        )
        mean = Number(name="mean", title="Mean CKA of neighbours", value=value(neighbours.mean()))
        return Found([*_curves(found), run, mean], words)

    def _verdict(self, neighbours: NDArray[np.float64], start: int, length: int) -> str:
        blocks = len(neighbours)
        if not length:
            return (
                f"Neighbouring layers have not collapsed: no block leaves a CKA of "
                f"{self.alike:g} or more; the largest is {np.nanmax(neighbours):.3f}."
                if np.isfinite(neighbours).any()
                else "The states do not vary over tokens: no CKA is defined."
            )
        span = f"block {start}" if length == 1 else f"blocks {start} to {start + length - 1}"
        least = neighbours[start : start + length].min()
        long = (
            f"the longest run of neighbours with a CKA of at least {self.alike:g} is {span}, "
            f"{length} of {blocks} (least {least:.3f})"
        )
        if length >= self.share * blocks:
            return f"Neighbouring layers have collapsed: {long}, {self.share:.0%} or more."
        return f"Neighbouring layers have not collapsed: {long}, under {self.share:.0%}."

    def _reach(self, cka: NDArray[np.float64]) -> str:
        means = by_distance(cka)[0]
        high = means >= self.alike
        reach = len(high) if high.all() else int(np.argmin(high))
        ends = f"first and last state have {cka[0, -1]:.3f}"
        if not reach:
            return f"At no distance in depth is the mean CKA {self.alike:g} or more; {ends}."
        return (
            f"States up to {reach} blocks apart have a mean CKA of at least {self.alike:g}; {ends}."
        )


def longest(true: NDArray[np.bool_]) -> tuple[int, int]:
    """Start and length of the longest run of true values, the first of equals."""
    best, start = (0, 0), 0
    for place, one in enumerate(true):
        if not one:
            start = place + 1
        elif place + 1 - start > best[1]:
            best = start, place + 1 - start
    return best


def by_distance(cka: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean, least and largest over the pairs of depths ``1, 2, …`` apart: ``(3, depths - 1)``."""
    lines = [np.diagonal(cka, distance) for distance in range(1, len(cka))]
    return np.array([[line.mean(), line.min(), line.max()] for line in lines]).T


def _curves(found: Alike) -> list[Finding]:
    mean, least, largest = by_distance(found.cka)
    words = "depths {{}} apart: {} CKA"
    distances: list[Finding] = [
        curve(name, title, values, "distance", first=1, words=words.format(how))
        for name, title, how, values in (
            ("distance", "CKA by distance in depth, mean over pairs", "mean", mean),
            ("distance_least", "The least of them", "least", least),
            ("distance_largest", "The largest of them", "largest", largest),
        )
    ]
    return [
        *distances,
        curve(
            "neighbours",
            "CKA of neighbouring depths",
            np.diagonal(found.cka, 1),
            words="CKA of the states before and behind block {}",
        ),
        curve(
            "directions",
            "Effective directions of the state",
            found.directions,
            "depth",
            words="depth {}: effective directions",
        ),
        matrix(
            "cka",
            "Linear CKA between depths",
            found.cka,
            ("depth", "depth"),
            words="linear CKA of the states at depths {row} and {column}",
        ),
    ]


class BySize(Frozen):
    """When models of several sizes show a trend."""

    fewest: int = Field(default=4, ge=3)
    """Models of different size under which no trend is claimed: of three, one order in six has a
    rank correlation of 1 by chance."""
    correlation: float = Field(default=0.8, gt=0, le=1)
    """Rank correlation from which on there is one."""


def collapse_by_size(results: Sequence[ProbeResult], settings: BySize | None = None) -> Found:
    """CKA against the number of parameters, from results of `Collapse` for several models.

    Of neighbours, and of depths a quarter of the model apart: that one does not rise by itself
    with the number of blocks. Raises `DepthbenchError` for results of another probe.
    """
    settings = settings or BySize()
    others = [one.probe for one in results if one.probe != Collapse.name]
    if others or not results:
        raise DepthbenchError(
            f"collapse by size is read from results of collapse, not of "
            f"{', '.join(others) or 'nothing'}. Give results of that probe alone"
        )
    ordered = sorted(results, key=lambda one: one.subject.parameters)
    sizes = np.array([float(one.subject.parameters) for one in ordered])
    neighbours = np.array([_mean(one) for one in ordered])
    quarter = np.array([_at_quarter(one) for one in ordered])
    findings: list[Finding] = []
    words: list[str] = []
    texts = {one.text.hash for one in ordered}
    if len(texts) > 1:
        words.append(f"The models read {len(texts)} different texts or tokenizations of one.")
    for name, title, values in (
        ("neighbours", "Mean CKA of neighbouring depths", neighbours),
        ("quarter", "Mean CKA of depths a quarter of the model apart", quarter),
    ):
        rank = rank_correlation(sizes, values)
        findings += [
            Curve(
                name=name,
                title=f"{title} by model size",
                axis="parameters",
                places=tuple(sizes),
                values=row(values),
                words=f"{{}} parameters: {title[0].lower()}{title[1:]}",
            ),
            Number(
                name=f"{name}_rank",
                title=f"Rank correlation of that and the size, {len(sizes)} models",
                value=value(rank),
            ),
        ]
        words.append(_trend(title, rank, values, len(set(sizes)), settings))
    return Found(findings, words)


def _mean(result: ProbeResult) -> float:
    found = result.number("mean").value
    return np.nan if found is None else found


def _at_quarter(result: ProbeResult) -> float:
    """At the distance nearest to a quarter of the blocks."""
    found = result.curve("distance").values[max(1, round(result.subject.layers / 4)) - 1]
    return np.nan if found is None else found


def _trend(
    title: str, rank: float, values: NDArray[np.float64], models: int, settings: BySize
) -> str:
    seen = f"{values[0]:.3f} at the smallest, {values[-1]:.3f} at the largest of {models} sizes"
    if models < settings.fewest:
        return f"{title}: {seen}; under {settings.fewest} sizes no trend is claimed."
    if np.isnan(rank):
        return f"{title} is not defined for every model, or the same for all: no trend."
    if abs(rank) < settings.correlation:
        return (
            f"{title} does not go with size: rank correlation {rank:+.2f}, under "
            f"{settings.correlation:g} ({seen})."
        )
    way = "grows" if rank > 0 else "shrinks"
    return f"{title} {way} with size: rank correlation {rank:+.2f} ({seen})."


def rank_correlation(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Spearman's, equal values sharing their mean rank; NaN where one side does not vary."""
    if len(x) < 2 or np.isnan(x).any() or np.isnan(y).any():
        return np.nan
    a, b = (_ranks(one) for one in (x, y))
    spread = a.std() * b.std()
    return float((a - a.mean()) @ (b - b.mean()) / len(a) / spread) if spread else np.nan


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[group]
