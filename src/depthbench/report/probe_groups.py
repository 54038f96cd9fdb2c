"""Results of probes of several models, put together probe by probe and finding by finding."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from depthbench.probes.result import Curve, Finding, Matrix, Number, ProbeResult
from depthbench.report.style import Mark, varied

F = TypeVar("F", bound=Finding, covariant=True)
FAR = 3.0
"""Times the span of the middle 96 % of values, beyond which a map's colours end before the last."""
MIDDLE = (0.02, 0.98)
MISSING = "–"


@dataclass(frozen=True)
class Probed:
    """A model with its results."""

    name: str
    """Of its own on the page."""
    label: str
    """Whose mark it has."""
    results: Sequence[ProbeResult]

    def of(self, probe: str) -> ProbeResult | None:
        """Its result of ``probe``."""
        return next((one for one in self.results if one.probe == probe), None)


@dataclass(frozen=True)
class Together(Generic[F]):
    """One finding of every model that has it."""

    title: str
    unit: str
    sides: tuple[tuple[Probed, F], ...]

    @property
    def first(self) -> F:
        """What axes and words are taken from."""
        return self.sides[0][1]

    @property
    def measure(self) -> str:
        """What its values are, for an axis."""
        return self.unit or self.title


class Cell(NamedTuple):
    """A number of one model in words."""

    text: str
    interval: str
    """Empty without."""


class Scale(NamedTuple):
    """Colours of all maps of a finding."""

    low: float
    high: float
    diverging: bool
    beyond: int
    """Values that lie outside."""

    @property
    def words(self) -> str:
        """What a caption must say of it; nothing where all values are inside."""
        if not self.beyond:
            return ""
        lie = "1 value lies" if self.beyond == 1 else f"{self.beyond} values lie"
        return f"Colours end at {self.low:.3g} and {self.high:.3g}; {lie} beyond."


def lines_of(
    together: Together[Curve], style: dict[str, Mark]
) -> Iterator[tuple[Probed, Curve, str, Mark]]:
    """Every curve of a figure with what it is called there and its mark.

    Curves of one model share its colour and differ by dash and marker.
    """
    several = len({model.name for model, _ in together.sides}) > 1
    seen: dict[str, int] = {}
    for model, one in together.sides:
        place = seen[model.name] = seen.get(model.name, -1) + 1
        name = model.name
        if one.group:
            name = f"{model.name}: {one.title}" if several else one.title
        yield model, one, name, varied(style[model.label], place)


def probed(groups: Iterable[Sequence[ProbeResult]]) -> list[Probed]:
    """One a group that has results; models of one label are told apart by source, or number."""
    found = [group for group in groups if group]
    names = [group[0].subject.label for group in found]
    if len(set(names)) < len(names):
        names = [f"{group[0].subject.label} ({group[0].subject.source})" for group in found]
    taken: dict[str, int] = {}
    result: list[Probed] = []
    for name, group in zip(names, found, strict=True):
        taken[name] = taken.get(name, 0) + 1
        own = name if taken[name] == 1 else f"{name}, {taken[name]}"
        result.append(Probed(own, own, group))
    return result


def probes_of(models: Sequence[Probed]) -> list[str]:
    """Every probe that a model has, in order of appearance."""
    return list(dict.fromkeys(one.probe for model in models for one in model.results))


def numbers(models: Sequence[Probed], probe: str) -> list[Together[Number]]:
    """All single numbers of a probe."""
    return list(_together(models, probe, Number))


def curves(models: Sequence[Probed], probe: str) -> list[Together[Curve]]:
    """All curves of a probe."""
    return list(_together(models, probe, Curve))


def matrices(models: Sequence[Probed], probe: str) -> list[Together[Matrix]]:
    """All matrices of a probe."""
    return list(_together(models, probe, Matrix))


def cells(models: Sequence[Probed], number: Together[Number]) -> list[Cell]:
    """A number of every model, in their order."""
    own = {model.name: one for model, one in number.sides}
    return [shown(own.get(model.name)) for model in models]


def shown(number: Number | None) -> Cell:
    """Rounded to what can be read; a dash where there is none."""
    if number is None or number.value is None:
        return Cell(MISSING, "")
    return Cell(number.shown, number.shown_span)


def scale_of(together: Together[Matrix]) -> Scale:
    """One scale for all models; a few values far from all others do not darken the rest."""
    every = [
        cell
        for _, one in together.sides
        for line in one.values
        for cell in line
        if cell is not None
    ]
    if not every:
        return Scale(0.0, 1.0, False, 0)
    values, centre = np.array(every), together.first.centre
    if centre is not None:
        away = np.abs(values - centre)
        reach = float(np.quantile(away, MIDDLE[1]))
        if away.max() <= FAR * reach or reach == 0:
            reach = float(away.max()) or 1.0
        low, high = centre - reach, centre + reach
    else:
        low, high = (float(one) for one in np.quantile(values, MIDDLE))
        if np.ptp(values) <= FAR * (high - low) or low == high:
            low, high = float(values.min()), float(values.max())
        if low == high:
            low, high = low - 0.5, high + 0.5
    beyond = int(((values < low) | (values > high)).sum())
    return Scale(low, high, centre is not None, beyond)


def ticks(places: Iterable[float], most: int = 16) -> int | None:
    """Whole steps between the ticks of places that are counted; None for others."""
    known = list(places)
    if not known or any(place != int(place) for place in known):
        return None
    return max(1, -int(-(max(known) - min(known) + 1) // most))


def _together(models: Sequence[Probed], probe: str, kind: type[Any]) -> Iterator[Together[Any]]:
    found: dict[str, list[tuple[Probed, Any]]] = {}
    for model in models:
        result = model.of(probe)
        for one in () if result is None else result.findings:
            if isinstance(one, kind):
                found.setdefault(_key(one), []).append((model, one))
    for sides in found.values():
        # a unit may name the model's size: "of 12 blocks"
        units = dict.fromkeys(one.unit for _, one in sides)
        titles = dict.fromkeys(_group(one) or one.title for _, one in sides)
        yield Together(" / ".join(titles), " / ".join(units), tuple(sides))


def _group(one: Finding) -> str:
    return one.group if isinstance(one, Curve) else ""


def _key(one: Finding) -> str:
    return _group(one) or one.name
