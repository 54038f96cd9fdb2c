"""What a law is, and what checking it finds."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from depthbench.check.subject import Subject
from depthbench.config import Frozen

Status = Literal["held", "broken", "none"]
"""``none``: the design claims nothing that this law could hold it to."""


class Finding(Frozen):
    """What one law found about one design."""

    law: str
    status: Status
    measured: float | None = None
    """The number that decided; None where it is no number, or not finite."""
    limit: float | None = None
    """The largest that is allowed."""
    detail: str = ""
    """What was compared, or what is wrong, in words."""


@dataclass(frozen=True)
class Law:
    """A rule that every design must keep."""

    name: str
    says: str
    """The rule in one sentence."""
    check: Callable[[Subject], "Outcome"]


@dataclass(frozen=True)
class Outcome:
    """What a law's check returns."""

    status: Status
    measured: float | None = None
    limit: float | None = None
    detail: str = ""


def within(measured: float, limit: float, detail: str = "") -> Outcome:
    """Held if ``measured`` is a number and at most ``limit``."""
    if not math.isfinite(measured):
        return Outcome("broken", None, limit, f"{detail}: not finite")
    return Outcome("held" if measured <= limit else "broken", measured, limit, detail)


def held(detail: str = "") -> Outcome:
    """Held, without a number."""
    return Outcome("held", detail=detail)


def broken(detail: str) -> Outcome:
    """Broken, for a reason in words."""
    return Outcome("broken", detail=detail)


def none(detail: str) -> Outcome:
    """Nothing to hold the design to."""
    return Outcome("none", detail=detail)
