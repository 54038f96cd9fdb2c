"""Amounts of memory and time, as they are typed and as they are shown."""

import re
from decimal import Decimal

from pydantic import ByteSize, TypeAdapter, ValidationError

from depthbench.errors import DepthbenchError

NUMBER = r"(?P<digits>\d[\d_]*(\.\d+)?|\.\d+) ?"
SIZE = re.compile(NUMBER + r"(?P<unit>([kmgtpe]i?)?b)", re.IGNORECASE)
DURATION = re.compile(NUMBER + r"(?P<unit>[a-zµ]+)")
SECONDS = {"us": Decimal("1e-6"), "µs": Decimal("1e-6"), "ms": Decimal("1e-3")} | {
    unit: Decimal(seconds) for unit, seconds in (("s", 1), ("min", 60), ("h", 3600))
}
_BYTES: TypeAdapter[ByteSize] = TypeAdapter(ByteSize)


def parse_bytes(text: str, field: str) -> int:
    """Bytes of ``2GiB`` (2³¹), ``80GB`` (8·10¹⁰) or ``4096B``; the unit must be there.

    Raises `DepthbenchError` naming ``field`` for anything else, and for less than one byte.
    """
    given = text.strip()
    if SIZE.fullmatch(given):
        try:
            size = int(_BYTES.validate_python(given))
        except ValidationError:  # a number beyond what a float holds
            size = 0
        if size >= 1:
            return size
    raise DepthbenchError(
        f"{field} = '{text}' is no amount of memory. Allowed: a number above 0 with B, kB, MB, GB, "
        "TB (powers of 1000) or KiB, MiB, GiB, TiB (of 1024). Write it like 2GiB or 500MB"
    )


def parse_seconds(text: str, field: str) -> float:
    """Seconds of ``20ms``, ``1.5s``, ``300us``, ``2min`` or ``1h``; the unit must be there.

    Raises `DepthbenchError` naming ``field`` for anything else, and for zero.
    """
    match = DURATION.fullmatch(text.strip())
    if match and match["unit"] in SECONDS:
        seconds = float(Decimal(match["digits"].replace("_", "")) * SECONDS[match["unit"]])
        if 0 < seconds < float("inf"):
            return seconds
    raise DepthbenchError(
        f"{field} = '{text}' is no time. Allowed: a number above 0 with us, ms, s, min or h. "
        "Write it like 20ms or 1.5s"
    )


def bytes_text(size: float) -> str:
    """``2 GiB``, ``1.5 MiB``, ``300 B``: three digits, powers of 1024."""
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    for unit in units[:-1]:
        # 1023.6 would read as 1.02e+03
        if abs(size) < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.4g} {units[-1]}"


def seconds_text(seconds: float) -> str:
    """``20 ms``, ``1.5 s``, ``300 µs``, ``12 min``, ``3.2 h``: three digits."""
    for unit, size, most in (("µs", 1e-6, 1e-3), ("ms", 1e-3, 1.0), ("s", 1.0, 120.0)):
        if seconds < most * 0.9995:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.4g} h"


def count_text(count: float) -> str:
    """``400M``, ``1.5B``, ``12.3T``, ``960``: three digits, decimal units as in `parse_count`."""
    for unit, size in (("E", 1e18), ("P", 1e15), ("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size * 0.9995:
            return f"{count / size:.3g}{unit}"
    return f"{count:.3g}"
