"""The measured wiring of designs whose wiring is known."""

import math
from typing import Any

import pytest
import torch

from depthbench.designs import REGISTRY, parse_design
from depthbench.designs.momentum import Momentum
from depthbench.docs.wiring import SHAPE, Wiring, drawn_config, over_largest, wiring
from depthbench.nn.model import Model, ModelConfig

SITES = 2 * SHAPE.layers
TARGETS = range(SITES + 1)
BIASED = 0.03
"""Relative error of a strength that is a mean over random directions."""


def at_start(name: str) -> Wiring:
    return wiring(drawn_config(name), learned=False)


def close(strengths: list[float], expected: list[float]) -> None:
    torch.testing.assert_close(strengths, expected, rtol=BIASED, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", REGISTRY)
def test_nothing_comes_from_above_and_something_from_below(name: str) -> None:
    found = at_start(name)
    for target in TARGETS:
        assert found.forward[target][target + 1 :] == (0.0,) * (SITES - target)
        assert found.backward[target][target + 1 :] == (False,) * (SITES - target)
        assert max(found.forward[target]) > 0


def test_prenorm_reads_every_earlier_output_alike() -> None:
    """``N`` of a sum of n parts of size 1 takes each by ``1 / sqrt(n)``."""
    found = at_start("prenorm")
    for target in TARGETS:
        below = list(found.forward[target][: target + 1])
        close(below, [(target + 1) ** -0.5] * (target + 1))
        assert all(found.backward[target][: target + 1])


def test_plain_reads_the_last_output_alone() -> None:
    found = at_start("plain")
    for target in TARGETS:
        close(list(found.forward[target]), [float(source == target) for source in range(SITES + 1)])


def test_postnorm_forgets_by_half_the_variance_a_site() -> None:
    found = at_start("postnorm")
    expected = [2 ** (-(SITES - site) / 2) for site in range(SITES)]
    torch.testing.assert_close(list(found.forward[-1][1:]), expected, rtol=0.1, atol=0)


def test_rezero_is_cut_off_at_the_start() -> None:
    for row in at_start("rezero").forward:
        assert row[0] > 0
        assert not any(row[1:])
    learned = wiring(parse_design("rezero"), learned=True)
    assert all(all(row[: target + 1]) for target, row in enumerate(learned.forward))


def test_layerscale_lets_a_tenth_in() -> None:
    relative = at_start("layerscale").relative(SITES)
    assert relative[0] == 1.0
    close(relative[1:], [0.1] * SITES)


def sums_of(**spec: Any) -> list[str]:
    found = wiring(parse_design(spec), learned=True)
    return [" ".join(names) for names in found.sums]


def test_runs_of_block_attnres_are_seen_as_sums() -> None:
    """Three runs of eight sites are 3 + 3 + 2; eight runs are eight sources."""
    assert drawn_config("block_attnres") == parse_design({"name": "block_attnres", "blocks": 3})
    runs = ["emb", "A0 F0 A1", "F1 A2 F2", "A3 F3"]
    assert sums_of(name="block_attnres", blocks=3) == runs
    apart = ["emb", "A0", "F0", "A1", "F1", "A2", "F2", "A3", "F3"]
    assert sums_of(name="block_attnres", blocks=8) == sums_of(name="attnres") == apart


def test_other_sums_at_the_readout() -> None:
    assert sums_of(name="prenorm") == ["emb A0 F0 A1 F1 A2 F2 A3 F3"]
    assert sums_of(name="plain") == ["F3"]
    blocks = ["emb", "A0 F0", "A1 F1", "A2 F2", "A3 F3"]
    assert sums_of(name="denseformer") == blocks


def test_stopped_gradient_is_no_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """`momentum` reads its history, but no gradient goes back through it."""
    monkeypatch.setitem(REGISTRY, "momentum", Momentum)
    found = wiring(parse_design("momentum"), learned=False)
    assert all(found.forward[-1])
    assert found.backward[-1] == (False,) * SITES + (True,)


def test_stored_entries_of_attention() -> None:
    moda, values = at_start("moda"), at_start("value_residual")
    for target in range(SITES):
        seen = target if target % 2 == 0 else 0
        assert [s > 0 for s in moda.stored[target]] == [site < seen for site in range(SITES)]
        first = target % 2 == 0 and target > 0
        assert [s > 0 for s in values.stored[target]] == [first, *[False] * (SITES - 1)]
    assert not any(map(any, at_start("hc").stored))


def test_input_that_is_the_state_is_no_stored_entry() -> None:
    """Under ``postnorm`` a site's input is the stream, which later sites read directly."""
    found = wiring(parse_design({"name": "moda", "postnorm": True}), learned=False)
    assert not any(map(any, found.stored))


def test_measured_twice_it_is_the_same() -> None:
    config = drawn_config("attnres")
    assert wiring(config, learned=True) == wiring(config, learned=True)


def test_relative_strengths() -> None:
    assert over_largest((1.0, 0.0, 4.0)) == [0.25, 0.0, 1.0]
    assert over_largest((0.0, 0.0)) == [0.0, 0.0]
    assert over_largest(()) == []


def test_it_is_the_derivative_of_a_real_model() -> None:
    """The mean square of many gradients is that of the changes; of `deepnorm`, another model."""
    config = ModelConfig(shape=SHAPE, design=parse_design("deepnorm"))
    model = Model.build(config, 0, dtype=torch.float64)
    generator = torch.Generator().manual_seed(5)
    outputs = torch.randn(SITES, 1, 32, 32, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        model.embed.weight.copy_(torch.randn(32, 32, generator=generator))
    outputs.requires_grad_()
    inputs = []

    def cut(site: int, x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        inputs.append(x)
        return outputs[site]

    model(torch.arange(32)[None], tap=cut)
    target = 5
    directions = torch.randn(64, *inputs[target].shape, generator=generator, dtype=torch.float64)
    norms = torch.zeros(SITES, dtype=torch.float64)
    for direction in directions:
        total = (inputs[target] * direction).sum()
        (gradient,) = torch.autograd.grad(total, outputs, retain_graph=True)
        norms += gradient.square().flatten(1).mean(1) / len(directions)
    found = at_start("deepnorm").forward[target][1 : target + 1]
    expected = [math.sqrt(square) for square in norms[:target].tolist()]
    torch.testing.assert_close(list(found), expected, rtol=0.1, atol=0)
