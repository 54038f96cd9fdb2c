"""Why one model is slower than another, in words."""

from depthbench.config import Frozen
from depthbench.cost.predict import Bound, Times
from depthbench.quantities import seconds_text

WORDS: dict[Bound, str] = {
    "launches": "the program's own calls",
    "products": "matrix products",
    "attention": "attention",
    "weights": "reading parameters",
    "cache": "reading keys and values",
    "traffic": "sums and copies",
    "link": "messages between devices",
}
NOTABLE = 0.05
"""Share of a difference that is worth a word."""


class Side(Frozen):
    """One of two that are compared."""

    name: str
    times: Times
    measured: float | None = None
    """Seconds, where it was."""


def dominant(times: Times) -> Bound:
    """What most of the time goes to."""
    return max(times.by_bound, key=lambda name: times.by_bound[name])


def difference(slow: Side, fast: Side, unit: str) -> str:
    """Where the difference of two times comes from, largest part first."""
    more = slow.times.seconds - fast.times.seconds
    bounds: set[Bound] = {*slow.times.by_bound, *fast.times.by_bound}
    names = sorted(
        bounds,
        key=lambda name: -abs(_change(name, slow, fast)),
    )
    parts = [
        f"{_change(name, slow, fast) / more:+.0%} {WORDS[name]} "
        f"({seconds_text(fast.times.by_bound.get(name, 0.0))} → "
        f"{seconds_text(slow.times.by_bound.get(name, 0.0))})"
        for name in names
        if more and abs(_change(name, slow, fast)) > NOTABLE * abs(more)
    ]
    fill = ""
    if abs(slow.times.fill - fast.times.fill) > NOTABLE:
        fill = (
            f"; its products fill {slow.times.fill:.0%} of the matrix units, "
            f"the other's {fast.times.fill:.0%}"
        )
    seen = ""
    if slow.measured is not None and fast.measured is not None:
        seen = f" ({slow.measured / fast.measured:.2f}x measured)"
    return (
        f"{slow.name} takes {slow.times.seconds / fast.times.seconds:.2f}x the time of "
        f"{fast.name} per {unit}{seen}: of the difference {', '.join(parts)}; "
        f"{slow.times.kernels} kernels one after another instead of {fast.times.kernels}{fill}."
    )


def _change(name: Bound, slow: Side, fast: Side) -> float:
    return slow.times.by_bound.get(name, 0.0) - fast.times.by_bound.get(name, 0.0)


def flops(number: float) -> str:
    """FLOPs in the unit that suits."""
    for unit, size in (("PFLOP", 1e15), ("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f} FLOP"
