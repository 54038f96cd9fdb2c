"""Descriptions of devices: what a machine can do, by its data sheet or as measured."""

import itertools
import json
import math
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from depthbench.config import Frozen
from depthbench.data.dataset import default_cache
from depthbench.errors import DepthbenchError, unknown

GIB = 2**30
THIS = "this"
"""Name of the machine that the program runs on."""

Point = tuple[float, float]


class Curve(Frozen):
    """A rate, or a time, that depends on size: straight between points on logarithmic axes."""

    points: tuple[Point, ...] = Field(min_length=1)
    """``(size, value)`` by rising size; outside them the nearest one holds."""

    @model_validator(mode="after")
    def _rising(self) -> Self:
        sizes = [size for size, _ in self.points]
        if sizes[0] <= 0 or any(b <= a for a, b in itertools.pairwise(sizes)):
            raise ValueError(f"points = {sizes}: sizes must be above 0 and rise. Sort them")
        if min(value for _, value in self.points) < 0:
            raise ValueError("points: a value is below 0. Mend it, or measure the device again")
        return self

    def at(self, size: float) -> float:
        """The rate at ``size``."""
        points = self.points
        if size <= points[0][0]:
            return points[0][1]
        for (low, first), (high, last) in itertools.pairwise(points):
            if size <= high:
                share = math.log(size / low) / math.log(high / low)
                return first * (last / first) ** share
        return points[-1][1]

    @property
    def best(self) -> float:
        """The largest rate."""
        return max(rate for _, rate in self.points)


def constant(rate: float) -> Curve:
    """The same at every size; for times as well as for rates."""
    return Curve(points=((1.0, rate),))


class Tile(Frozen):
    """A piece of a product's result that one unit of a GPU works out."""

    rows: int = Field(ge=1)
    """Of the result."""
    columns: int = Field(ge=1)
    """Of the result."""
    share: float = Field(gt=0, le=1)
    """Of the peak that a unit reaches with it: small tiles read more for what they do."""


TILES = (
    Tile(rows=128, columns=256, share=1.0),
    Tile(rows=128, columns=128, share=0.9),
    Tile(rows=64, columns=128, share=0.75),
    Tile(rows=64, columns=64, share=0.55),
    Tile(rows=16, columns=64, share=0.2),
)
"""Shares as the matrix libraries' own kernels show them, roughly."""
INNER = 64
"""Step of a tile along the inner axis."""
SPLITS = (1, 2, 4, 8)
"""Parts that the inner axis may be cut into, so that few tiles fill more units."""


class Skinny(Frozen):
    """Products of so many rows with matrices that are in no cache."""

    rows: int = Field(ge=1)
    """Of the product's left side."""
    reading: Curve
    """Bytes/s of the matrix, over its bytes."""


class DeviceSpec(Frozen):
    """One device; rates are what is reached, not what a data sheet promises, unless it says so."""

    name: str
    """Shown in tables."""
    kind: Literal["cpu", "gpu"]
    """How its time adds up: docs/cost.md."""
    memory: int = Field(gt=0)
    """Bytes."""
    products: dict[str, Curve]
    """FLOP/s of matrix products by dtype, over their FLOPs."""
    skinny: dict[str, tuple[Skinny, ...]] = Field(default_factory=dict)
    """Products of few rows, by dtype and by rising number of rows, where they were measured."""
    attention: Curve
    """FLOP/s of fused attention, over the FLOPs of a call."""
    cached: Curve | None = None
    """Bytes/s at which one query reads its keys and values, over their bytes; where it is not
    given, `bandwidth`."""
    bandwidth: Curve
    """Bytes/s of sums and copies, over the bytes that they read and write."""
    call: Curve
    """Seconds that the program takes for one operation, views included, beside its work; over the
    bytes that a pass reads and writes for each. Behind large ones its own code is in no cache."""
    kernel: float = Field(default=0.0, ge=0)
    """Least seconds from one kernel to the next."""
    overlaps: bool
    """Whether the program goes on while the device works."""
    step: float = Field(default=0.0, ge=0)
    """Seconds for one step of decoding beside its kernels: sampling, and waiting for the device."""
    units: int = Field(default=1, ge=1)
    """That work on tiles side by side; 1 where tiles play no part."""
    tiles: tuple[Tile, ...] = ()
    """Pieces that a product may be cut into; none where `units` is 1."""
    link: float | None = Field(default=None, gt=0)
    """Bytes/s to another such device, one way; None where there is none."""
    latency: float = Field(default=0.0, ge=0)
    """Seconds of a message to another such device."""
    watts: float | None = None
    """Of the whole device at work."""
    price_per_hour: float | None = Field(default=None, ge=0)
    """In whatever money the user counts; prices change, so none is built in."""
    source: str
    """Where the numbers are from."""

    @model_validator(mode="after")
    def _rates(self) -> Self:
        if "float32" not in self.products:
            raise ValueError(
                f"products = {sorted(self.products)}: float32 is missing, in which models train"
            )
        rates = [*self.products.values(), self.attention, self.bandwidth]
        rates += [one.reading for several in self.skinny.values() for one in several]
        rates += [self.cached] if self.cached is not None else []
        if any(rate == 0 for one in rates for _, rate in one.points):
            raise ValueError("a rate is 0: nothing would ever be done. Measure the device again")
        return self

    def graphed(self) -> "DeviceSpec":
        """With all kernels launched as one graph: the program's own time is spent once."""
        return self.model_copy(update={"call": constant(0.0), "name": f"{self.name}, graphs"})

    def few_rows(self, dtype: str, rows: int, size: float) -> float | None:
        """Seconds of a product of few rows with a matrix of ``size`` bytes, between those measured.

        None where none was, or for more rows.
        """
        known = self.skinny.get(dtype, ())
        if not known or rows > known[-1].rows:
            return None
        seconds = [size / one.reading.at(size) for one in known]
        points = zip((float(one.rows) for one in known), seconds, strict=True)
        return Curve(points=tuple(points)).at(rows)

    def check_dtype(self, dtype: str) -> None:
        """Raise `DepthbenchError` for numbers that nothing is known of."""
        if dtype not in self.products:
            raise unknown(f"dtype for device '{self.name}':", dtype, self.products)

    def fill(self, count: int, rows: int, inner: int, columns: int) -> float:
        """Share of the units' time that a product uses, by the best way to cut it into tiles.

        A tile costs the same however little of it is filled, and the last round of tiles takes as
        long as a full one.
        """
        if not self.tiles:
            return 1.0
        best = 0.0
        wanted = count * rows * inner * columns
        for tile in self.tiles:
            across = math.ceil(rows / tile.rows) * math.ceil(columns / tile.columns) * count
            for parts in SPLITS:
                steps = math.ceil(inner / parts / INNER) * INNER
                rounds = math.ceil(across * parts / self.units)
                spent = rounds * self.units * tile.rows * tile.columns * steps / tile.share
                best = max(best, wanted / spent)
        return min(best, 1.0)


def _gpu(
    name: str,
    memory: float,
    bfloat16: float,
    float32: float,
    bandwidth: float,
    units: int,
    link: float,
    watts: float,
) -> DeviceSpec:
    """From a data sheet (TFLOP/s, TB/s, GB, GB/s one way), with what is usually reached of it."""
    half = constant(0.75 * bfloat16 * 1e12)
    return DeviceSpec(
        name=name,
        kind="gpu",
        memory=int(memory * GIB),
        products={"bfloat16": half, "float16": half, "float32": constant(0.85 * float32 * 1e12)},
        attention=constant(0.5 * bfloat16 * 1e12),
        bandwidth=constant(0.85 * bandwidth * 1e12),
        call=constant(2e-6),
        kernel=2.5e-6,
        overlaps=True,
        step=20e-6,
        units=units,
        tiles=TILES,
        link=link * 1e9,
        latency=10e-6,
        watts=watts,
        source="data sheet (dense products, float32 sums); 75 % of products, 50 % in attention, "
        "85 % of bandwidth, 2 µs a call: what eager torch usually reaches, not measured here",
    )


BUILT_IN = {
    one.name: one
    for one in (
        _gpu("a100", 80, 312, 19.5, 2.039, 108, 300, 400),
        _gpu("h100", 80, 989, 67, 3.35, 132, 450, 700),
        _gpu("h200", 141, 989, 67, 4.8, 132, 450, 700),
        _gpu("b200", 180, 2250, 80, 8.0, 148, 900, 1000),
        _gpu("l40s", 48, 362, 91.6, 0.864, 142, 32, 350),
        _gpu("rtx3090", 24, 71, 35.6, 0.936, 82, 32, 350),
        _gpu("rtx4090", 24, 165, 82.6, 1.008, 128, 32, 450),
        _gpu("rtx5090", 32, 210, 104.8, 1.792, 170, 64, 575),
    )
}


def stored_path() -> Path:
    """Where the description of this machine is kept."""
    return default_cache() / "device.json"


def find_device(name: str) -> DeviceSpec:
    """A built-in device, a description in a file, or this machine as it was measured.

    Raises `DepthbenchError` with the nearest name, or the command that measures this machine.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    path = stored_path() if name == THIS else Path(name)
    if name == THIS and not path.is_file():
        raise DepthbenchError(
            "device 'this' is not measured yet. Run: depthbench bench device (half a minute)"
        )
    if path.suffix != ".json" and not path.is_file():
        raise unknown("device", name, [*BUILT_IN, THIS, "a file.json of depthbench bench device"])
    return read_device(path)


def read_device(path: Path) -> DeviceSpec:
    """The description in a file. Raises `DepthbenchError` if there is none."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DepthbenchError(
            f"device {path} cannot be read: {error}. Name one of {', '.join(BUILT_IN)}, or make a "
            "file with depthbench bench device --out FILE"
        ) from None
    return DeviceSpec.parse(data, str(path))
