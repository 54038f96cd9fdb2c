"""Coordinate check: how far a few steps move activations, over depth and width.

A learning rate transfers between sizes only if a step moves activations equally far at all of them
(arXiv 2203.03466, appendix D.1, over width; arXiv 2505.01618, figure 7, over depth). What is
measured is the root mean square of ``a(t) - a(0)`` on tokens that are not trained on; a slope is
that of its logarithm over the logarithm of layers or width, 0 where it transfers.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from depthbench.config import Frozen
from depthbench.designs import parse_design
from depthbench.designs.base import DesignConfig
from depthbench.errors import DepthbenchError
from depthbench.nn.block import Trace
from depthbench.nn.model import Model, ModelConfig
from depthbench.nn.parametrization import Parametrization
from depthbench.shapes import Shape
from depthbench.train.config import TrainConfig, TrialConfig
from depthbench.train.optim import make_optimizer

Kind = Literal["standard", "depth_mup", "completep"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Direction = Literal["layers", "width"]
Quantity = Literal["state", "branch", "logits"]
QUANTITIES: dict[Quantity, str] = {
    "state": "last depth state z_L",
    "branch": "outputs of the branches, before their factor",
    "logits": "logits",
}


class Grid(Frozen):
    """Sizes and training of a coordinate check; the base is the least depth and width."""

    layers: tuple[int, ...] = (2, 4, 8, 16, 32)
    """Numbers of blocks, at the least width."""
    widths: tuple[int, ...] = (32, 64, 128, 256)
    """Widths, at the least number of blocks."""
    head_dim: int = Field(default=16, ge=2)
    """Width of a head at every size."""
    ffn_over_width: float = Field(default=2.0, gt=0)
    """Feed-forward over width."""
    vocab: int = Field(default=64, ge=2)
    """Tokens of embedding and head."""
    steps: int = Field(default=10, ge=1)
    """Optimizer steps before activations are compared."""
    learning_rate: float = Field(default=2e-3, gt=0)
    """Constant rate, of the base shape."""
    init_std: float = Field(default=0.02, gt=0)
    """At the base width."""
    sequences: int = Field(default=8, ge=1)
    """In a batch."""
    length: int = Field(default=16, ge=2)
    """Tokens in a sequence."""
    seeds: int = Field(default=2, ge=1)
    """Of weights and tokens; root mean squares are over all."""

    def shape(self, layers: int, width: int) -> Shape:
        """One of the grid's shapes: as wide, as many heads."""
        heads = width // self.head_dim
        sizes = {"layers": layers, "width": width, "heads": heads, "kv_heads": heads}
        ffn = round(self.ffn_over_width * width)
        return Shape.parse(sizes | {"ffn": ffn, "vocab": self.vocab}, "coordinate check")

    def check(self) -> None:
        """Raise `DepthbenchError` unless sizes rise and heads fit."""
        for name, sizes in (("layers", self.layers), ("widths", self.widths)):
            if not sizes or any(b <= a for a, b in pairwise(sizes)):
                raise DepthbenchError(f"{name} = {list(sizes)} must rise, as 2, 4, 8 does")
        for width in self.widths:
            if width % self.head_dim:
                raise DepthbenchError(
                    f"widths: {width} is no multiple of head_dim = {self.head_dim}. "
                    f"Use multiples of {self.head_dim}"
                )


class Coordinate(Frozen):
    """Changes at one size after the last step, root mean squares over seeds."""

    kind: Kind
    layers: int
    width: int
    state: float
    branch: float
    logits: float


class Slope(Frozen):
    """Growth of a change with size: of its logarithm over the size's; 0 where it transfers."""

    kind: Kind
    quantity: Quantity
    over: Direction
    slope: float
    sizes: tuple[int, ...]
    changes: tuple[float, ...]


class CoordinateCheck(Frozen):
    """All sizes and slopes of one design."""

    design: str
    grid: Grid
    base_layers: int
    base_width: int
    coordinates: tuple[Coordinate, ...]
    slopes: tuple[Slope, ...]


@dataclass(frozen=True)
class Seen:
    """Activations of one forward."""

    state: Float[Tensor, "b t width"]
    branch: Float[Tensor, "sites b t d"]
    logits: Float[Tensor, "b t v"]


def parametrization(kind: Kind, grid: Grid) -> Parametrization:
    """``kind`` over depth and width, relative to the grid's least shape."""
    if kind == "standard":
        return Parametrization()
    return Parametrization(
        kind=kind,
        scope="depth_width",
        base_layers=grid.layers[0],
        base_width=grid.widths[0],
        base_head_dim=grid.head_dim,
    )


def coordinate_check(
    design: str | dict[str, Any] | DesignConfig,
    grid: Grid,
    kinds: Sequence[Kind] = KINDS,
) -> CoordinateCheck:
    """Train at every depth (least width) and every width (least depth), and fit the slopes.

    Raises `DepthbenchError` for sizes that do not fit, and for designs whose branch outputs take
    no factor.
    """
    grid.check()
    config = parse_design(design)
    base = grid.layers[0], grid.widths[0]
    sizes = [(layers, base[1]) for layers in grid.layers]
    sizes += [(base[0], width) for width in grid.widths[1:]]
    found = [changes_at(kind, config, grid, *size) for kind in kinds for size in sizes]
    return CoordinateCheck(
        design=config.name,
        grid=grid,
        base_layers=base[0],
        base_width=base[1],
        coordinates=tuple(found),
        slopes=tuple(slopes_of(found, *base)),
    )


def changes_at(kind: Kind, design: DesignConfig, grid: Grid, layers: int, width: int) -> Coordinate:
    """The changes at one size."""
    model = ModelConfig.parse(
        {
            "shape": grid.shape(layers, width),
            "design": design,
            "backbone": {"init_std": grid.init_std},
            "parametrization": parametrization(kind, grid),
        }
    )
    squares = dict.fromkeys(QUANTITIES, 0.0)
    for seed in range(grid.seeds):
        before, after = _trained(model, grid, seed)
        for quantity in QUANTITIES:
            change = vars(after)[quantity] - vars(before)[quantity]
            squares[quantity] += change.double().square().mean().item() / grid.seeds
    changes = {quantity: math.sqrt(square) for quantity, square in squares.items()}
    return Coordinate(kind=kind, layers=layers, width=width, **changes)


def _trained(config: ModelConfig, grid: Grid, seed: int) -> tuple[Seen, Seen]:
    train = TrainConfig(tokens=1, evaluations=1, weight_decay=0.0)
    trial = TrialConfig(
        model=config,
        train=train,
        data_hash="made up",
        learning_rate=grid.learning_rate,
        seed=seed,
    )
    model = Model.build(config, seed)
    optimizer = make_optimizer(model, trial)
    probe = made_up_tokens(grid, seed, step=grid.steps)
    before = _seen(model, probe)
    for step in range(grid.steps):
        tokens = made_up_tokens(grid, seed, step)
        logits = model(tokens[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    return before, _seen(model, probe)


@torch.no_grad()
def _seen(model: Model, tokens: Int[Tensor, "b t"]) -> Seen:
    outputs: list[Tensor] = []

    def note(_: int, __: Tensor, y: Tensor) -> Tensor:
        outputs.append(y / model.scaling.branch)
        return y

    trace = Trace()
    logits = model(tokens, tap=note, trace=trace)
    return Seen(trace.depth_states[-1], torch.stack(outputs), logits)


def made_up_tokens(grid: Grid, seed: int, step: int) -> Int[Tensor, "b t"]:
    """Sequences to learn: after a random start, a token is the last one times 3, plus 1 or 2."""
    generator = torch.Generator().manual_seed(1_000_003 * seed + step)
    drawn = torch.randint(grid.vocab, (grid.sequences, 1), generator=generator)
    noise = torch.randint(1, 3, (grid.sequences, grid.length), generator=generator)
    tokens = [drawn[:, 0]]
    for place in range(grid.length):
        tokens.append((3 * tokens[-1] + noise[:, place]) % grid.vocab)
    return torch.stack(tokens, dim=1)


def slopes_of(found: Iterable[Coordinate], base_layers: int, base_width: int) -> list[Slope]:
    """Of every kind and quantity, over layers at the least width and over width at the least depth.

    A direction with one size has no slope.
    """
    found = list(found)
    slopes: list[Slope] = []
    kinds: list[Kind] = list(dict.fromkeys(one.kind for one in found))
    for kind in kinds:
        own = [one for one in found if one.kind == kind]
        deep = [(one.layers, one) for one in own if one.width == base_width]
        wide = [(one.width, one) for one in own if one.layers == base_layers]
        lines: dict[Direction, list[tuple[int, Coordinate]]] = {"layers": deep, "width": wide}
        for over, line in lines.items():
            if len(line) < 2:
                continue
            for quantity in QUANTITIES:
                sizes = tuple(size for size, _ in line)
                changes = tuple(float(vars(one)[quantity]) for _, one in line)
                slope = float(np.polyfit(np.log(sizes), np.log(changes), 1)[0])
                slopes.append(
                    Slope(
                        kind=kind,
                        quantity=quantity,
                        over=over,
                        slope=slope,
                        sizes=sizes,
                        changes=changes,
                    )
                )
    return slopes
