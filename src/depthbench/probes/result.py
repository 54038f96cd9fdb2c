"""What a probe found, as data that says what it is of."""

from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from pydantic import model_validator

from depthbench.config import Frozen
from depthbench.probes.subject import SubjectFacts
from depthbench.probes.text import TextFacts
from depthbench.study.store import Machine

Value = float | None
"""None where there is none: a pair that is not defined, or a number that is not finite."""


class Number(Frozen):
    """One number, with an interval if it has one."""

    kind: Literal["number"] = "number"
    name: str
    title: str
    unit: str = ""
    value: Value
    low: Value = None
    """Lower end of the 95 % bootstrap interval over documents, or of what ``span`` says."""
    high: Value = None
    span: str = ""
    """What lies between ``low`` and ``high``, where it is no such interval."""

    @property
    def shown(self) -> str:
        """Its value, rounded to what can be read; a dash where there is none."""
        return "–" if self.value is None else _read(self.value, 4)

    @property
    def shown_span(self) -> str:
        """``1.78 to 1.89``, and what that is where it is no 95 % interval; empty without."""
        if self.low is None or self.high is None:
            return ""
        low, high = (_read(one, 3) for one in (self.low, self.high))
        return f"{low} to {high}" + f", {self.span}" * bool(self.span)


class Curve(Frozen):
    """Values by depth, block or rank."""

    kind: Literal["curve"] = "curve"
    name: str
    title: str
    unit: str = ""
    axis: str
    """What ``places`` counts."""
    places: tuple[float, ...]
    values: tuple[Value, ...]
    low: tuple[Value, ...] = ()
    """Lower ends of intervals; empty without."""
    high: tuple[Value, ...] = ()
    words: str = ""
    """What a hover says of a place, with ``{}`` for it: the intervention."""
    group: str = ""
    """Title of the figure that it shares with all curves of that group; empty = one of its own."""

    @model_validator(mode="after")
    def _as_long(self) -> Self:
        wanted = {len(self.places), len(self.values)}
        if len(wanted) > 1 or not {len(self.low), len(self.high)} <= wanted | {0}:
            raise ValueError(f"curve '{self.name}' does not have one value for each place")
        return self


class Matrix(Frozen):
    """Values by two of them."""

    kind: Literal["matrix"] = "matrix"
    name: str
    title: str
    unit: str = ""
    row_axis: str
    column_axis: str
    rows: tuple[float, ...]
    columns: tuple[float, ...]
    values: tuple[tuple[Value, ...], ...]
    centre: Value = None
    """Value that means nothing happened; None where the scale has no middle."""
    words: str = ""
    """What a hover says of a cell, with ``{row}`` and ``{column}``: the intervention."""

    @model_validator(mode="after")
    def _full(self) -> Self:
        widths = [len(self.columns)] * len(self.rows)
        if not sum(widths) or [len(line) for line in self.values] != widths:
            raise ValueError(f"matrix '{self.name}' does not have one value for each pair")
        return self


Finding = Number | Curve | Matrix


class ProbeResult(Frozen):
    """All of one probe on one subject and text."""

    format: Literal[1] = 1
    probe: str
    title: str
    definition: str
    blind: str
    """What it cannot see."""
    source: str
    options: dict[str, Any]
    findings: tuple[Finding, ...]
    words: tuple[str, ...] = ()
    """What the numbers say."""
    subject: SubjectFacts
    text: TextFacts
    seed: int
    machine: Machine
    at: str
    seconds: float

    def number(self, name: str) -> Number:
        """The number called ``name``; raises `KeyError` if there is none."""
        return self._one(name, Number)

    def curve(self, name: str) -> Curve:
        """The curve called ``name``; raises `KeyError` if there is none."""
        return self._one(name, Curve)

    def matrix(self, name: str) -> Matrix:
        """The matrix called ``name``; raises `KeyError` if there is none."""
        return self._one(name, Matrix)

    def _one(self, name: str, kind: type[Any]) -> Any:
        for one in self.findings:
            if isinstance(one, kind) and one.name == name:
                return one
        raise KeyError(name)


def value(one: float | np.floating[Any]) -> Value:
    """As JSON holds it: None for what is not finite."""
    return float(one) if np.isfinite(one) else None


def _read(one: float, digits: int) -> str:
    """To so many digits; a count of thousands in full."""
    whole = 1e3 <= abs(one) < 1e12
    return f"{one:,.0f}" if whole else without_sign_of_zero(f"{one:.{digits}g}")


def without_sign_of_zero(shown: str) -> str:
    """``-0.00 %`` as ``0.00 %``; every other number as it is."""
    return shown.lstrip("+-") if not any(one in "123456789" for one in shown) else shown


def row(values: ArrayLike) -> tuple[Value, ...]:
    """A row of `value`s."""
    return tuple(value(one) for one in np.asarray(values, dtype=np.float64))


def table(values: ArrayLike) -> tuple[tuple[Value, ...], ...]:
    """Rows of `value`s."""
    return tuple(row(one) for one in np.asarray(values, dtype=np.float64))


def counted_from(first: int, count: int) -> tuple[float, ...]:
    """``first, first + 1, …``."""
    return tuple(float(first + one) for one in range(count))


def curve(name: str, title: str, values: ArrayLike, axis: str = "block", **more: Any) -> Curve:
    """By block, or depth, from 0 on unless ``first`` says otherwise."""
    first = more.pop("first", 0)
    found = row(values)
    places = counted_from(first, len(found))
    return Curve(name=name, title=title, axis=axis, places=places, values=found, **more)


def matrix(
    name: str, title: str, values: ArrayLike, axes: Sequence[str] = ("block", "block"), **more: Any
) -> Matrix:
    """By block or depth on both axes."""
    found = table(values)
    rows, columns = counted_from(0, len(found)), counted_from(0, len(found[0]))
    axis = {"row_axis": axes[0], "column_axis": axes[1]}
    return Matrix(name=name, title=title, rows=rows, columns=columns, values=found, **axis, **more)
