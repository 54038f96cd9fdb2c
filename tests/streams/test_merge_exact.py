"""Streams that are one another's multiples are merged without loss, whatever the design."""

import pytest
import torch

from depthbench.designs.mhc import MHCConnection
from depthbench.errors import DepthbenchError
from depthbench.nn.model import Model
from depthbench.streams.merge.plan import (
    Alike,
    fewer_of,
    nearest_pairs,
    pairs_of,
    with_fewer,
)
from tests.streams.planted import SHAPE, lab_of, noisy, random_rows, tied

ROWS = random_rows(4, 12)
TOKENS = torch.tensor(ROWS)


def merged(model: Model, into: dict[int, int]) -> Model:
    return with_fewer(model, fewer_of(Alike.measured(lab_of(model, ROWS)), into))


def apart(one: Model, other: Model) -> float:
    with torch.no_grad():
        expected, found = one(TOKENS), other(TOKENS)
    return ((found - expected).abs().max() / expected.abs().max()).item()


@pytest.mark.parametrize("factor", [1.0, -1.0])
def test_tied_streams_of_hc_are_merged_without_loss(factor: float) -> None:
    model = tied(noisy("hc"), 1, 3, factor)
    small = merged(model, {3: 1})
    assert small.config.design.resolved()["streams"] == 3
    # eps of the streams' norm, 1e-6, is all that differs, and not at a factor of 1 or -1
    assert apart(model, small) < 1e-12
    assert small.design.depth_state(small.begin(TOKENS, None)[0]).shape[-1] == 3 * SHAPE.width


@pytest.mark.parametrize("factor", [2.5, -0.4])
def test_proportional_streams_of_static_hc_are_merged_without_loss(factor: float) -> None:
    model = tied(noisy({"name": "hc", "dynamic": False}), 0, 2, factor)
    assert apart(model, merged(model, {2: 0})) < 1e-12


@pytest.mark.parametrize("design", ["mhc", "mhc_lite"])
def test_tied_streams_of_mhc_are_merged_without_loss(design: str) -> None:
    model = noisy(design)
    with torch.no_grad():
        for _, _, connection in model.sites():
            # equal writes, and a mix that gives both the same: streams 1 and 3 stay equal
            connection.bias_write[3] = connection.bias_write[1]
            connection.projection[4 + 3] = connection.projection[4 + 1]
            if isinstance(connection, MHCConnection):
                mix = connection.bias_mix
                mix[:, 3] = mix[:, 1]
                rows = connection.projection[8:].unflatten(0, (4, 4))
                rows[:, 3] = rows[:, 1]
            else:
                tie_permutations(connection)
    alike = Alike.measured(lab_of(model, ROWS))
    assert alike.copies() == [(1, 3)]
    assert apart(model, merged(model, {3: 1})) < 1e-12


@torch.no_grad()
def tie_permutations(connection: torch.nn.Module) -> None:
    """Equal weights for permutations that differ by who of 1 and 3 comes where."""
    import itertools

    orders = list(itertools.permutations(range(4)))
    swap = {0: 0, 1: 3, 2: 2, 3: 1}
    for number, order in enumerate(orders):
        # old stream i goes to new stream order[i]: exchange the new streams 1 and 3
        other = orders.index(tuple(swap[to] for to in order))
        if other > number:
            connection.bias_mix[other] = connection.bias_mix[number]
            connection.projection[8 + other] = connection.projection[8 + number]


def test_merges_add_up_from_four_streams_to_one() -> None:
    model = noisy("hc")
    for other in (1, 2, 3):
        tied(model, 0, other)
    three = merged(model, {3: 0})
    two = merged(three, {2: 0})
    one = merged(two, {1: 0})
    assert [m.config.design.resolved()["streams"] for m in (three, two, one)] == [3, 2, 1]
    assert one.config.design.resolved()["merged_from"] == 4
    assert apart(model, one) < 1e-12
    assert apart(model, merged(model, {1: 0, 2: 0, 3: 0})) < 1e-12


def test_all_gradients_of_a_merged_model_are_those_of_the_whole_one() -> None:
    model = tied(noisy("hc"), 1, 3)
    small = merged(model, {3: 1})
    for one in (model, small):
        one.zero_grad()
        one(TOKENS).square().mean().backward()
    mine = dict(small.named_parameters())
    compared = 0
    for name, parameter in model.named_parameters():
        if "connection" in name and "norm.gain" not in name:
            continue
        assert parameter.grad is not None
        grad = mine[name].grad
        assert grad is not None
        torch.testing.assert_close(grad, parameter.grad, rtol=1e-9, atol=1e-12)
        compared += 1
    assert compared > 20


def test_a_plain_hc_of_fewer_static_streams_does_the_same() -> None:
    # a group of three and one of one: the plain readout is a mean of two, so sizes must change
    model = noisy({"name": "hc", "dynamic": False})
    for other in (1, 3):
        tied(model, 0, other)
    alike = Alike.measured(lab_of(model, ROWS))
    for means in (False, True):
        fewer = fewer_of(alike, {1: 0, 3: 0}, means=means, exact=False)
        small = with_fewer(model, fewer)
        assert small.config.design.resolved() == {
            **model.config.design.resolved(),
            "streams": 2,
        }
        assert apart(model, small) < 1e-12


def test_a_plain_hc_of_fewer_dynamic_streams_comes_near() -> None:
    model = Model.build(noisy("hc").config, seed=0, dtype=torch.float64)
    fewer = fewer_of(Alike.measured(lab_of(model, ROWS)), {3: 1, 2: 0}, exact=False)
    # at the start all streams are equal and the dynamic part is nothing
    assert apart(model, with_fewer(model, fewer)) < 1e-12


def test_an_idle_stream_of_cascade_goes_without_loss() -> None:
    model = noisy("cascade")
    with torch.no_grad():
        model.design.get_parameter("readout_gates")[2] = 0
        for _, _, connection in model.sites():
            connection.get_parameter("read_gates")[2] = 0
    alike = Alike.measured(lab_of(model, ROWS))
    small = with_fewer(model, fewer_of(alike, {2: 0}, dropped=True))
    assert small.config.design.resolved()["streams"] == ["token", "chunk", "task"]
    assert apart(model, small) < 1e-12


def test_resi_dual_without_its_second_stream_is_postnorm() -> None:
    model = noisy("resi_dual")
    small = merged(model, {1: 0})
    assert small.config.design.name == "postnorm"
    with torch.no_grad():
        # without q the readout is p
        model.design.get_parameter("norm.gain").zero_()
    assert apart(model, small) < 1e-12
    with pytest.raises(DepthbenchError, match="Merge stream 1 into 0"):
        merged(model, {0: 1})


def test_least_squares_say_what_is_left() -> None:
    model = noisy("hc")
    lab = lab_of(model, ROWS)
    alike = Alike.measured(lab)
    with torch.no_grad():
        z = model.begin(TOKENS, None)[0].flatten(0, 1)
    expected = torch.einsum("nid,njd->ij", z, z).numpy()
    assert abs(alike.products[0] - expected).max() < 1e-9
    fewer = fewer_of(alike, {3: 1})
    scale = alike.products[2, 3, 1] / alike.products[2, 1, 1]
    assert fewer.sites[2][3].tolist() == [0.0, pytest.approx(scale), 0.0]
    assert fewer.collect.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]]
    means = fewer_of(alike, {3: 1}, means=True)
    assert means.collect.tolist() == [[1, 0, 0], [0, 0.5, 0], [0, 0, 1], [0, 0.5, 0]]
    assert fewer_of(alike, {3: 1}, dropped=True).sites[2][3].tolist() == [0.0, 0.0, 0.0]


def test_pairs_are_read_and_chosen() -> None:
    assert pairs_of("3:1,2:0", 4) == {3: 1, 2: 0}
    for wrong in ("3", "3:3", "3:4", "3:1,1:0", "3:1,3:0", "a:b"):
        with pytest.raises(DepthbenchError, match="pairs = "):
            pairs_of(wrong, 4)
    alike = Alike.measured(lab_of(tied(tied(noisy("hc"), 1, 3), 0, 2), ROWS))
    assert nearest_pairs(alike, 2) == {3: 1, 2: 0}
    with pytest.raises(DepthbenchError, match="must be 1 to 3"):
        nearest_pairs(alike, 4)
