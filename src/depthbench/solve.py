"""Shapes that meet one parameter budget, counted on the model itself."""

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from depthbench.config import Frozen
from depthbench.designs import label_of, parse_design
from depthbench.designs.base import DesignConfig
from depthbench.errors import DepthbenchError
from depthbench.nn.backbones import parse_backbone
from depthbench.nn.branch import Backbone
from depthbench.nn.count import Parameters, count_parameters, ends_of
from depthbench.nn.model import Model, ModelConfig
from depthbench.shapes import Shape, parse_count, rule_ffn

DEFAULT_VOCAB = 257
"""All byte values and the document token: the vocabulary of the byte tokenizer."""
FFN_BAND = 0.2
"""The feed-forward may leave ``ffn_ratio · width`` by this share, up or down."""
MAX_LAYERS = 1024
MAX_PARAMS = 10**12
RATIO_REACH = 1.5
"""Largest factor between the aspect ratio asked for and the one that whole layers give."""
TRIES = 6
"""Widths that are tried for each raster of widths."""

Layers = Annotated[int, Field(ge=1, le=MAX_LAYERS)]
Ratio = Annotated[float, Field(ge=0.01, le=1e6)]
Heads = Annotated[int, Field(ge=1, le=4096)]


class Solved(Frozen):
    """A shape that meets the budget."""

    shape: Shape
    parameters: Parameters
    error: float
    """Signed relative deviation of the counted parameters from the budget."""


class Request(Frozen):
    """What is asked of `solve_shapes`, checked."""

    params: int = Field(ge=1, le=MAX_PARAMS)
    on: Literal["total", "backbone"]
    depths: tuple[Layers, ...] | None
    aspect_ratios: tuple[Ratio, ...] | None
    heads: Heads | None
    head_dim: Annotated[int, Field(ge=2, le=4096)] | None
    kv_heads: Heads | None
    vocab: int = Field(ge=2, le=10**9)
    ffn_ratio: float = Field(gt=0, le=64)
    tolerance: float = Field(gt=0, lt=1)

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if (self.depths is None) == (self.aspect_ratios is None):
            given = "both are" if self.depths is not None else "neither is"
            raise ValueError(
                f"give either depths or aspect_ratios: {given} given. "
                "Write depths 2,4,8,16 or aspect_ratios 76,28,9"
            )
        wanted = self.depths if self.depths is not None else self.aspect_ratios
        if not wanted or len(set(wanted)) < len(wanted):
            name = "aspect_ratios" if self.depths is None else "depths"
            raise ValueError(f"{name} = {list(wanted or ())}: name at least one, and each once")
        if self.heads is not None and self.head_dim is not None:
            raise ValueError(
                f"heads = {self.heads} and head_dim = {self.head_dim} are both given: "
                "give one, the width decides the other"
            )
        return self

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.head_dim is not None and self.head_dim % 2:
            raise ValueError(
                f"head_dim = {self.head_dim} is odd and RoPE needs pairs. Use {self.head_dim + 1}"
            )
        if self.heads is not None and self.kv_heads is not None and self.heads % self.kv_heads:
            raise ValueError(
                f"heads = {self.heads} is not divisible by kv_heads = {self.kv_heads}. "
                "Use a divisor of heads"
            )
        return self


def solve_shapes(
    params: int | str,
    *,
    depths: Sequence[int] | None = None,
    aspect_ratios: Sequence[float] | None = None,
    on: Literal["total", "backbone"] = "total",
    heads: int | None = None,
    head_dim: int | None = None,
    kv_heads: int | None = None,
    vocab: int = DEFAULT_VOCAB,
    design: str | dict[str, Any] | DesignConfig = "prenorm",
    backbone: str | dict[str, Any] | Backbone = "dense",
    ffn_ratio: float = 8 / 3,
    tolerance: float = 0.01,
) -> tuple[Solved, ...]:
    """One shape of ``params`` parameters for each depth, or for each aspect ratio.

    ``on = "backbone"`` leaves embedding and head out; the design's own parameters always count.
    The feed-forward is ``ffn_ratio · width``, rounded up to a multiple of 16, where half the
    tolerance allows it; otherwise the coarsest multiple of 16, 8, 4, 2 or 1 that does, within
    `FFN_BAND`. Widths are multiples of 8 where possible. Without ``heads`` and ``head_dim`` a head
    is about a quarter of the width wide, but at least 16 and at most 64. An aspect ratio is met as
    nearly as whole layers allow.

    Raises `DepthbenchError` for wrong arguments, and for a budget that no shape meets: it names
    the nearest count that can be reached.
    """
    request = Request.parse(
        {
            "params": parse_count(params) if isinstance(params, str) else params,
            "on": on,
            "depths": None if depths is None else tuple(depths),
            "aspect_ratios": None if aspect_ratios is None else tuple(aspect_ratios),
            "heads": heads,
            "head_dim": head_dim,
            "kv_heads": kv_heads,
            "vocab": vocab,
            "ffn_ratio": ffn_ratio,
            "tolerance": tolerance,
        }
    )
    search = _Search(request, parse_design(design), parse_backbone(backbone))
    if request.depths is not None:
        return tuple(search.at_depth(layers) for layers in request.depths)
    solved = tuple(search.at_ratio(ratio) for ratio in request.aspect_ratios or ())
    _refuse_twins(solved, request.aspect_ratios or ())
    return solved


def _refuse_twins(solved: Sequence[Solved], ratios: Sequence[float]) -> None:
    for (one, ratio), (other, close) in itertools.combinations(zip(solved, ratios, strict=True), 2):
        if one.shape.layers == other.shape.layers:
            raise DepthbenchError(
                f"aspect_ratios {ratio:g} and {close:g} both come to {one.shape.layers} layers. "
                "Leave one out, or raise params"
            )


class _Width(NamedTuple):
    width: int
    heads: int
    kv_heads: int
    strain: float
    """How far the head width is from the one aimed at, as a logarithm."""


class _Search:
    def __init__(self, request: Request, design: DesignConfig, backbone: Backbone) -> None:
        self.request = request
        self.design = design
        self.backbone = backbone
        self.ratio = Fraction(request.ffn_ratio).limit_denominator(1000)
        self.known: dict[Shape, int] = {}

    def at_depth(self, layers: int) -> Solved:
        """The best shape with ``layers`` blocks."""
        failed: list[tuple[int, Shape, int]] = []
        for step in self.steps:
            for place in self.near(layers, self.widths(layers, step)):
                shape = self.tuned(layers, place)
                counted = self.counted(shape)
                off = counted - self.request.params
                if abs(off) <= self.request.tolerance * self.request.params:
                    config = ModelConfig(shape=shape, design=self.design, backbone=self.backbone)
                    return Solved(
                        shape=shape,
                        parameters=count_parameters(config),
                        error=off / self.request.params,
                    )
                failed.append((abs(off), shape, counted))
        raise self.impossible(layers, failed)

    def at_ratio(self, ratio: float) -> Solved:
        """The best shape whose ``width / layers`` is nearest to ``ratio``."""
        params = self.request.params
        # q and o of every block alone hold 2 ratio² layers³ parameters
        most = min(MAX_LAYERS, math.ceil((params / (2 * ratio**2)) ** (1 / 3)) + 1)
        widths = [w for step in self.steps for w in self.widths(1, step)]

        def size(layers: int) -> int:
            place = min(widths, key=lambda w: abs(w.width - ratio * layers))
            return self.counted(self.ruled(layers, place))

        depths = range(1, most + 1)
        above = bisect_left(depths, params, key=size)
        around = depths[max(above - 1, 0) : above + 1]
        tried = [self.attempt(layers) for layers in around]
        solved = [result for result in tried if isinstance(result, Solved)]
        if not solved:
            raise next(result for result in tried if isinstance(result, DepthbenchError))
        best = min(solved, key=lambda one: abs(math.log(one.shape.aspect_ratio / ratio)))
        reached = best.shape.aspect_ratio
        if abs(math.log(reached / ratio)) > math.log(RATIO_REACH):
            raise DepthbenchError(
                f"aspect_ratios = {ratio:g}: with {params:,} parameters the nearest is "
                f"{reached:.3g} (layers {best.shape.layers}, width {best.shape.width}). "
                "Ask for that one, or change params"
            )
        return best

    def attempt(self, layers: int) -> Solved | DepthbenchError:
        """`at_depth`, or why it failed."""
        try:
            return self.at_depth(layers)
        except DepthbenchError as error:
            return error

    @cached_property
    def steps(self) -> tuple[int, int]:
        """Rasters of widths: multiples of 8 where that is possible, then the finest."""
        finest = self.request.head_dim or 2 * (self.request.heads or 1)
        return math.lcm(finest, 8), finest

    def widths(self, layers: int, step: int) -> list[_Width]:
        """Every width on the raster that the budget could pay for, and the smallest one."""
        # q and o of every block alone hold 2 layers width² parameters
        most = max(step, math.isqrt(self.request.params // (2 * layers)))
        found = (self.place(width) for width in range(step, most + 1, step))
        return [place for place in found if place is not None]

    def place(self, width: int) -> _Width | None:
        """``width`` with its heads; None where no head count fits."""
        request = self.request
        if request.heads is not None or request.head_dim is not None:
            heads = request.heads or width // (request.head_dim or width)
            strain = 0.0
        else:
            aim = min(64.0, max(float(min(16, width)), width / 4))
            fitting = [
                dim
                for dim in range(min(16, width), 130, 2)
                if width % dim == 0 and width // dim % (request.kv_heads or 1) == 0
            ]
            if not fitting:
                return None
            best = min(fitting, key=lambda dim: abs(math.log(dim / aim)))
            heads, strain = width // best, abs(math.log(best / aim))
        kv_heads = request.kv_heads or heads
        return None if heads % kv_heads else _Width(width, heads, kv_heads, strain)

    def near(self, layers: int, widths: list[_Width]) -> Iterator[_Width]:
        """The widths to try, best first: near the budget at the ruled FFN, with good heads."""
        if not widths:
            return

        def size(place: _Width) -> int:
            return self.counted(self.ruled(layers, place))

        above = bisect_left(widths, self.request.params, key=size)
        around = widths[max(above - 1, 0) : above + 1]
        ends = [(size(place), place.width) for place in around]
        target = float(ends[0][1])
        if len(ends) == 2:
            (low, narrow), (high, wide) = ends
            share = (self.request.params - low) / max(high - low, 1)
            target = narrow + share * (wide - narrow)

        def cost(place: _Width) -> float:
            return 2 * abs(math.log(place.width / target)) + place.strain / 4

        yield from sorted(widths, key=cost)[:TRIES]

    def tuned(self, layers: int, place: _Width) -> Shape:
        """The shape of this width whose FFN brings the count nearest to the budget."""
        least, most = self.band(place.width)
        low = self.counted(self.shape(layers, place, least))
        high = self.counted(self.shape(layers, place, most))
        slope = (high - low) / max(most - least, 1)
        params = self.request.params
        exact = least + (params - low) / slope if slope else float(least)

        def error(ffn: int) -> float:
            return abs(low + slope * (ffn - least) - params) / params

        rounded = [round(exact / multiple) * multiple for multiple in (16, 8, 4, 2, 1)]
        choices = [
            ffn
            for ffn in (rule_ffn(place.width, self.ratio), *rounded, least, most)
            if least <= ffn <= most
        ]
        close = (ffn for ffn in choices if error(ffn) <= self.request.tolerance / 2)
        return self.shape(layers, place, next(close, min(choices, key=error)))

    def band(self, width: int) -> tuple[int, int]:
        """Least and greatest FFN allowed for ``width``."""
        middle = float(self.ratio * width)
        least = max(1, math.ceil(middle * (1 - FFN_BAND)))
        return least, max(least, math.floor(middle * (1 + FFN_BAND)))

    def ruled(self, layers: int, place: _Width) -> Shape:
        return self.shape(layers, place, max(1, round(self.ratio * place.width)))

    def shape(self, layers: int, place: _Width, ffn: int) -> Shape:
        return Shape(
            layers=layers,
            width=place.width,
            heads=place.heads,
            kv_heads=place.kv_heads,
            ffn=ffn,
            vocab=self.request.vocab,
        )

    def counted(self, shape: Shape) -> int:
        """What the budget counts, from one model on the meta device."""
        if shape not in self.known:
            model = Model.on_meta(
                ModelConfig(shape=shape, design=self.design, backbone=self.backbone)
            )
            total = sum(parameter.numel() for parameter in model.parameters())
            self.known[shape] = total if self.request.on == "total" else total - ends_of(model)
        return self.known[shape]

    def impossible(self, layers: int, failed: list[tuple[int, Shape, int]]) -> DepthbenchError:
        request = self.request
        asked = f"params = {request.params:,} ({request.on}, {label_of(self.design)})"
        if not failed:
            return DepthbenchError(
                f"{asked}: no width has heads that fit kv_heads = {request.kv_heads} with "
                f"{layers} layers. Use fewer kv_heads, or raise params"
            )
        off, shape, counted = min(failed, key=lambda failure: failure[0])
        matrices = 1 if self.backbone.tied_head else 2
        ends = f", {matrices * shape.vocab * shape.width:,} of them embedding and head"
        free = "heads" if request.heads else "head_dim" if request.head_dim else ""
        change = f"leave {free} free, " if free else ""
        return DepthbenchError(
            f"{asked}: no shape of {layers} layers is within {100 * request.tolerance:.3g} %. "
            f"The nearest has {counted:,} (width {shape.width}, ffn {shape.ffn}"
            f"{ends if request.on == 'total' else ''}), {100 * off / request.params:.3g} % off. "
            f"Ask for {counted}, {change}change the depth or vocab, or raise the tolerance"
        )
