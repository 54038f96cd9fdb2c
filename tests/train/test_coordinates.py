"""The coordinate check: changes keep their size over depth and width, except in `standard`.

Tolerances: what transfers has slope 0 in the limit of large sizes, and a rule that is left out
moves one by 0.5 or 1 (a power of ``m_L`` or ``m_d``): 0.25 tells both apart. For `prenorm`, slopes
over depth were measured within 0.08 of 0, over width within 0.13. Two are below 0 by theory. A
branch of depth-µP changes by its own learning, which falls as ``L^-1/2``, and by its input's: -0.36
with `moda`. And logits fall with width by up to ``d^-1/2`` at first: beside the part that learns,
which keeps its size, they hold the random head times the change, which does not.
"""

import math

import pytest
import torch

from depthbench.designs import REGISTRY
from depthbench.errors import DepthbenchError
from depthbench.train.coordinates import (
    Coordinate,
    CoordinateCheck,
    Grid,
    coordinate_check,
    made_up_tokens,
    slopes_of,
)

FLAT = 0.25
SCALED = ("depth_mup", "completep")
DEEP = Grid(layers=(2, 8, 24), widths=(32,), seeds=1)
WIDE = Grid(layers=(2,), widths=(32, 64, 128), seeds=1)


def slopes(check: CoordinateCheck) -> dict[tuple[str, str], float]:
    return {(slope.kind, slope.quantity): slope.slope for slope in check.slopes}


@pytest.fixture(scope="module")
def deep() -> dict[tuple[str, str], float]:
    return slopes(coordinate_check("prenorm", DEEP))


@pytest.fixture(scope="module")
def wide() -> dict[tuple[str, str], float]:
    return slopes(coordinate_check("prenorm", WIDE))


@pytest.mark.parametrize("kind", SCALED)
def test_changes_keep_their_size_over_depth(deep: dict[tuple[str, str], float], kind: str) -> None:
    for quantity in ("state", "branch", "logits"):
        assert abs(deep[kind, quantity]) < FLAT, quantity


def test_standard_grows_with_depth(deep: dict[tuple[str, str], float]) -> None:
    """``L`` branches add up: the state's slope is about 1."""
    assert deep["standard", "state"] > 0.7
    assert deep["standard", "branch"] > FLAT


@pytest.mark.parametrize("kind", SCALED)
def test_changes_keep_their_size_over_width(wide: dict[tuple[str, str], float], kind: str) -> None:
    for quantity in ("state", "branch"):
        assert abs(wide[kind, quantity]) < FLAT, quantity
    assert -0.5 - FLAT < wide[kind, "logits"] < FLAT


def test_standard_grows_with_width(wide: dict[tuple[str, str], float]) -> None:
    """A step of every entry adds up over ``d``: a slope of 1 for each matrix."""
    assert wide["standard", "state"] > 0.7
    assert wide["standard", "branch"] > 0.7
    assert wide["standard", "logits"] > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, kind in REGISTRY.items() if kind.sums_branches])
def test_every_design_that_takes_the_factor_keeps_its_changes_over_depth(name: str) -> None:
    found = slopes(coordinate_check(name, Grid(layers=(2, 8, 32), widths=(32,), seeds=1)))
    for kind in SCALED:
        for quantity in ("state", "logits"):
            assert abs(found[kind, quantity]) < FLAT, (kind, quantity)
    assert abs(found["completep", "branch"]) < FLAT
    assert -0.5 - FLAT < found["depth_mup", "branch"] < FLAT
    assert found["standard", "state"] > 0.4


@pytest.mark.slow
def test_larger_sizes() -> None:
    grid = Grid(layers=(2, 8, 32, 64), widths=(64, 128, 256, 512))
    check = coordinate_check("prenorm", grid)
    for slope in check.slopes:
        if slope.kind == "standard" and slope.quantity == "state":
            assert slope.slope > 0.7
        elif slope.kind != "standard" and (slope.quantity, slope.over) != ("logits", "width"):
            assert abs(slope.slope) < FLAT, slope


def test_slopes_of_powers() -> None:
    """Over layers at the base's width and over width at the base's depth alone."""
    found = [
        Coordinate(
            kind="completep",
            layers=layers,
            width=width,
            state=3 * layers**0.5 / width,
            branch=2.0,
            logits=float(width),
        )
        for layers, width in ((2, 8), (4, 8), (16, 8), (2, 32))
    ]
    fitted = {(s.over, s.quantity): s.slope for s in slopes_of(found, 2, 8)}
    expected = {
        ("layers", "state"): 0.5,
        ("layers", "branch"): 0.0,
        ("layers", "logits"): 0.0,
        ("width", "state"): -1.0,
        ("width", "branch"): 0.0,
        ("width", "logits"): 1.0,
    }
    assert fitted == pytest.approx(expected, abs=1e-9)


def test_tokens_follow_their_rule_and_their_seed() -> None:
    grid = Grid()
    tokens = made_up_tokens(grid, seed=1, step=2)
    assert tokens.shape == (grid.sequences, grid.length + 1)
    step = (tokens[:, 1:] - 3 * tokens[:, :-1]) % grid.vocab
    assert set(step.unique().tolist()) == {1, 2}
    assert torch.equal(tokens, made_up_tokens(grid, seed=1, step=2))
    assert not torch.equal(tokens, made_up_tokens(grid, seed=1, step=3))


def test_changes_are_those_of_two_forwards() -> None:
    """The state of a model whose learning rate is tiny moves in proportion to it."""
    small, smaller = (
        coordinate_check("prenorm", Grid(layers=(2,), widths=(32, 64), seeds=1, learning_rate=rate))
        for rate in (1e-6, 1e-7)
    )
    for one, other in zip(small.coordinates, smaller.coordinates, strict=True):
        assert math.isclose(one.state / other.state, 10, rel_tol=0.05)


def test_refusals() -> None:
    with pytest.raises(DepthbenchError, match=r"layers = \[4, 2\] must rise"):
        coordinate_check("prenorm", Grid(layers=(4, 2)))
    with pytest.raises(DepthbenchError, match="40 is no multiple of head_dim = 16"):
        coordinate_check("prenorm", Grid(widths=(16, 40)))
    with pytest.raises(DepthbenchError, match="design 'sandwich' norms or weighs"):
        coordinate_check("sandwich", DEEP)
