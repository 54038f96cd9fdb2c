"""One look for each design, the same in every figure."""

from collections.abc import Iterable
from typing import NamedTuple


class Mark(NamedTuple):
    """Colour, marker and dash of a design; together they are unique, so colour is never alone."""

    light: str
    """Colour on a light ground, contrast at least 3."""
    dark: str
    """Colour on a dark ground, contrast at least 3."""
    symbol: str
    """Plotly's marker."""
    marker: str
    """Matplotlib's marker."""
    dash: str
    """Plotly's dash."""
    line: str
    """Matplotlib's line style."""


BASELINE = ("#2b2d33", "#eceae4")
# after Okabe and Ito, told apart by people with any common colour-blindness; darkened or lightened
# to keep contrast with the ground
COLOURS = (
    ("#0072b2", "#56b4e9"),
    ("#d55e00", "#ff8f45"),
    ("#008566", "#35c79a"),
    ("#b8478c", "#ee9ccb"),
    ("#9a7400", "#f0c94a"),
    ("#5b3fa8", "#b7a3ff"),
    ("#2691bf", "#9fe4f7"),
    ("#8a1f2b", "#ff7f86"),
    ("#5f6b6d", "#aeb8ba"),
)
SYMBOLS = (
    ("circle", "o"),
    ("square", "s"),
    ("diamond", "D"),
    ("triangle-up", "^"),
    ("triangle-down", "v"),
    ("pentagon", "p"),
    ("hexagon", "h"),
    ("star", "*"),
)
DASHES = (("solid", "-"), ("dash", "--"), ("dot", ":"))


def marks(labels: Iterable[str]) -> dict[str, Mark]:
    """A mark for every label, in order; the baseline `prenorm` takes the colour of the text."""
    names = list(dict.fromkeys(labels))
    others = [name for name in names if name != "prenorm"]
    result = {name: _mark(index, COLOURS[index % 9]) for index, name in enumerate(others)}
    if "prenorm" in names:
        result["prenorm"] = _mark(0, BASELINE)
    return {name: result[name] for name in names}


def varied(mark: Mark, place: int) -> Mark:
    """The same colour with other markers and dashes, for the further lines of one design."""
    symbols, dashes = dict(SYMBOLS), dict(DASHES)
    symbol = _behind(list(symbols), mark.symbol, place)
    dash = _behind(list(dashes), mark.dash, place)
    return Mark(mark.light, mark.dark, symbol, symbols[symbol], dash, dashes[dash])


def _behind(every: list[str], one: str, steps: int) -> str:
    return every[(every.index(one) + steps) % len(every)]


def _mark(index: int, colour: tuple[str, str]) -> Mark:
    symbol, marker = SYMBOLS[index % len(SYMBOLS)]
    # the second and third round of colours, and neighbours of similar hue, differ by dash too
    dash, line = DASHES[(index // 4) % len(DASHES)]
    return Mark(*colour, symbol, marker, dash, line)
