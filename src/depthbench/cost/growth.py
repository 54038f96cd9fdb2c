"""How costs grow with layers, width and context, and where attention passes the projections."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from depthbench.config import Frozen
from depthbench.cost.flops import Flops, count_flops
from depthbench.nn.model import Model, ModelConfig
from depthbench.shapes import Shape, rule_ffn

FACTORS = (0.5, 1.0, 2.0)
"""Of the shape in the middle, along each axis."""
AXES = ("layers", "width", "context")


class Growth(Frozen):
    """``cost ≈ c · L^layers · d^width · T^context``, least squares on logarithms."""

    what: str
    layers: float
    width: float
    context: float
    deviation: float
    """Largest of the fit, as a factor above 1: 1 where the law is exact."""


class Crossover(Frozen):
    """Where the quadratic part of a causal forward is as large as the linear one."""

    tokens: float
    """Context at which attention costs as much as all projections of the blocks."""


def crossover(config: ModelConfig) -> Crossover:
    """``T`` at which ``2 T² L·heads·head_dim`` is ``2 T`` times the matrices of the blocks."""
    one = count_flops(config, 2)
    # attention goes with T², projections with T
    return Crossover(tokens=2 * one.projections / one.attention)


def growth(config: ModelConfig, context: int) -> list[Growth]:
    """Of a forward's FLOPs, the design's own part, and keys and values, around one shape."""
    points = [
        (layers, width, length)
        for layers in _around(config.shape.layers)
        for width in _widths(config.shape)
        for length in _around(context)
    ]
    found: dict[str, list[float]] = {}
    for layers, width, length in points:
        at = config.model_copy(update={"shape": _resized(config.shape, layers, width)})
        flops = count_flops(at, length)
        for name, count in COUNTS.items():
            found.setdefault(name, []).append(count(flops))
        found.setdefault("keys and values, bytes", []).append(_kv(at, length))
    return [fit(name, points, values) for name, values in found.items() if min(values) > 0]


COUNTS: dict[str, Callable[[Flops], float]] = {
    "forward, FLOPs": lambda flops: flops.forward,
    "attention, FLOPs": lambda flops: flops.attention,
    "design's own, FLOPs": lambda flops: flops.own,
}


def fit(what: str, points: Sequence[tuple[int, int, int]], values: Sequence[float]) -> Growth:
    """The exponents of ``values`` at ``points`` of layers, width and context."""
    logs = np.log(np.array(points, dtype=float))
    design = np.column_stack([logs, np.ones(len(points))])
    wanted = np.log(np.array(values))
    found, *_ = np.linalg.lstsq(design, wanted, rcond=None)
    off = float(np.abs(design @ found - wanted).max())
    layers, width, context = (float(one) for one in found[:3])
    return Growth(what=what, layers=layers, width=width, context=context, deviation=math.exp(off))


def _around(middle: int) -> list[int]:
    return sorted({max(1, round(middle * factor)) for factor in FACTORS})


def _widths(shape: Shape) -> list[int]:
    step = 2 * shape.heads
    return sorted({max(step, round(shape.width * factor / step) * step) for factor in FACTORS})


def _resized(shape: Shape, layers: int, width: int) -> Shape:
    ffn = rule_ffn(width) if shape.ffn != 3 * shape.width else 3 * width
    return shape.model_copy(update={"layers": layers, "width": width, "ffn": ffn})


def _kv(config: ModelConfig, length: int) -> int:
    return Model.on_meta(config).cache(1, length).bytes
