"""AttnRes: ``x = N(Σ_i a_i v_i)``, ``a = softmax_i(w · RMSNorm(v_i))``; ``y`` joins the sources."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from depthbench.designs.attnres import AttnRes
from depthbench.designs.sources import SourceRoute
from depthbench.nn.block import Trace
from depthbench.nn.model import Model
from tests.oracles import GQA, Oracle, assert_equation, config_of, random_model, rms, tokens_of

FOUR = GQA.model_copy(update={"layers": 4})


def softmax_mix(o: Oracle, sources: Sequence[Tensor], mix: int) -> Tensor:
    """``Σ_i a_i v_i`` of mix ``k``: before site ``k + 1``, the last one before the readout."""
    query, gain = o["design.query"][mix], o["design.gain"][mix]
    scores = torch.stack([rms(v, gain) @ query for v in sources])
    weights = torch.exp(scores)
    weights = weights / weights.sum(0)
    mixed = torch.zeros_like(sources[0])
    for weight, source in zip(weights, sources, strict=True):
        mixed = mixed + weight[:, None] * source
    return mixed


def equation(o: Oracle, h: Tensor) -> Tensor:
    sources = [h]
    for site in range(o.shape.sites):
        mixed = h if site == 0 else softmax_mix(o, sources, site - 1)
        sources.append(o.branch(site, o.norm(site, mixed)))
    return softmax_mix(o, sources, o.shape.sites - 1)


def programmed(program: Sequence[int]) -> Callable[[Oracle, Tensor], Tensor]:
    """The equation under a program: the mixes inside and behind a block belong to the block."""

    def run(o: Oracle, h: Tensor) -> Tensor:
        sources, mix = [h], None
        for block in program:
            for site in (2 * block, 2 * block + 1):
                mixed = h if mix is None else softmax_mix(o, sources, mix)
                sources.append(o.branch(site, o.norm(site, mixed)))
                mix = site
        return h if mix is None else softmax_mix(o, sources, mix)

    return run


@pytest.mark.parametrize("layers", [1, 3, 4])
def test_logits_and_gradients(layers: int) -> None:
    shape = GQA.model_copy(update={"layers": layers})
    assert_equation(config_of("attnres", shape), equation)


@pytest.mark.parametrize(
    "program",
    [[0, 2, 3], [1, 2, 3], [0, 1, 2], [0, 2, 1, 3], [3, 1, 2, 0], [0, 1, 1, 2, 3], [0]],
    ids=str,
)
def test_programs(program: list[int]) -> None:
    """Skip: the next block reads what the skipped one would have. Swap: right mixes go along."""
    assert_equation(config_of("attnres", FOUR), programmed(program), program)


def test_site_has_exactly_one_source_more_than_its_number() -> None:
    model = random_model(config_of("attnres", FOUR))
    trace = Trace()
    model(tokens_of(FOUR), trace=trace)
    assert [site for site, _ in trace.routes] == list(range(8))
    for site, route in trace.routes:
        assert isinstance(route, SourceRoute)
        assert route.weights is not None
        assert route.weights.shape == (site + 1, 2, 6)
        torch.testing.assert_close(route.weights.sum(0), torch.ones(2, 6, dtype=torch.float64))


def test_start_weighs_all_sources_alike() -> None:
    model = Model.build(config_of("attnres", FOUR), seed=0)
    assert isinstance(model.design, AttnRes)
    assert not model.design.query.any()
    assert torch.equal(model.design.gain, torch.ones(8, 32))
    trace = Trace()
    model(tokens_of(FOUR), trace=trace)
    for site, route in trace.routes:
        assert isinstance(route, SourceRoute)
        assert route.weights is not None
        torch.testing.assert_close(
            route.weights, torch.full_like(route.weights, 1 / (site + 1)), rtol=1e-6, atol=0
        )
