"""The two other definitions of Block AttnRes: mixes at run boundaries alone, and a recency bias."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from depthbench.cost.flops import count_flops
from depthbench.designs.block_attnres import BlockAttnRes
from depthbench.designs.sources import SourceRoute
from depthbench.nn.block import Trace
from depthbench.nn.model import Model
from tests.designs.test_attnres import softmax_mix
from tests.oracles import (
    GQA,
    Oracle,
    assert_equal,
    assert_equation,
    config_of,
    random_model,
    rms,
    tokens_of,
)

FOUR = GQA.model_copy(update={"layers": 4})
CASES = [(4, 8), (4, 4), (4, 3), (3, 4), (3, 5), (4, 2), (4, 1), (3, 100), (1, 1)]
"""Layers and blocks: runs of 1, of 2, of 3 (the last one shorter), of the whole depth."""


def table_of(definition: str, blocks: int) -> dict[str, Any]:
    return {"name": "block_attnres", "definition": definition, "blocks": blocks}


def boundary(
    blocks: int, program: Sequence[int], places: Sequence[int]
) -> Callable[[Oracle, Tensor], Tensor]:
    """``x = N(mix_n(b_0 … b_n) + p)``, the mix made when a run begins."""

    def run(o: Oracle, h: Tensor) -> Tensor:
        size = math.ceil(2 * o.shape.layers / blocks)
        last = math.ceil(2 * o.shape.layers / size) - 1
        sums: dict[int, Tensor] = {}
        base, end = h, 0
        for block, place in zip(program, places, strict=True):
            for inner in (0, 1):
                site, number = 2 * block + inner, (2 * place + inner) // size
                if number not in sums:
                    complete = [h, *sums.values()]
                    base = softmax_mix(o, complete, min(number - 1, last)) if number else h
                x = base + sums[number] if number in sums else base
                y = o.branch(site, o.norm(site, x))
                sums[number] = sums[number] + y if number in sums else y
                end = 2 * place + inner + 1
        if not sums:
            return h
        return softmax_mix(o, [h, *sums.values()], min(math.ceil(end / size) - 1, last))

    return run


def recency(
    blocks: int, program: Sequence[int], places: Sequence[int]
) -> Callable[[Oracle, Tensor], Tensor]:
    """``x = N(mix_k(c_0 … c_n, c))``, a bias on the logit of ``c``."""

    def mixed(o: Oracle, ends: list[Tensor], stream: Tensor, mix: int) -> Tensor:
        query, gain = o["design.query"][mix], o["design.gain"][mix]
        scores = [rms(v, gain) @ query for v in ends] + [rms(stream, gain) @ query]
        scores[-1] = scores[-1] + o["design.bias"][mix]
        weights = torch.softmax(torch.stack(scores), dim=0)
        terms = [w[:, None] * v for w, v in zip(weights, [*ends, stream], strict=True)]
        return torch.stack(terms).sum(0)

    def run(o: Oracle, h: Tensor) -> Tensor:
        size = math.ceil(2 * o.shape.layers / blocks)
        ends, stream, mix, number = [h], h, None, 0
        for block, place in zip(program, places, strict=True):
            for inner in (0, 1):
                site = 2 * block + inner
                if (2 * place + inner) // size != number:
                    number = (2 * place + inner) // size
                    if mix is not None:
                        ends.append(stream)
                x = h if mix is None else mixed(o, ends, stream, mix)
                stream = stream + o.branch(site, o.norm(site, x))
                mix = site
        if mix is None:
            return h
        if (2 * places[-1] + 2) % size == 0:
            ends.append(stream)
        return mixed(o, ends, stream, mix)

    return run


EQUATIONS = {"boundary": boundary, "recency": recency}


@pytest.mark.parametrize(("layers", "blocks"), CASES)
@pytest.mark.parametrize("definition", EQUATIONS)
def test_logits_and_gradients(definition: str, layers: int, blocks: int) -> None:
    shape = GQA.model_copy(update={"layers": layers})
    equation = EQUATIONS[definition](blocks, range(layers), range(layers))
    assert_equation(config_of(table_of(definition, blocks), shape), equation)


@pytest.mark.parametrize("blocks", [3, 4])
@pytest.mark.parametrize("skipped", range(4))
@pytest.mark.parametrize("definition", EQUATIONS)
def test_runs_keep_their_boundaries_under_a_skip(
    definition: str, skipped: int, blocks: int
) -> None:
    program = [block for block in range(4) if block != skipped]
    equation = EQUATIONS[definition](blocks, program, program)
    assert_equation(config_of(table_of(definition, blocks), FOUR), equation, program)


@pytest.mark.parametrize("program", [[0, 2, 1, 3], [0, 1, 1, 2, 3], [0, 1, 2, 3, 2, 3]], ids=str)
@pytest.mark.parametrize("definition", EQUATIONS)
def test_other_programs_group_by_position(definition: str, program: list[int]) -> None:
    equation = EQUATIONS[definition](3, program, range(len(program)))
    assert_equation(config_of(table_of(definition, 3), FOUR), equation, program)


def test_boundary_runs_of_one_site_are_attnres_bit_for_bit() -> None:
    full, single = (
        random_model(config_of(design, FOUR)) for design in ("attnres", table_of("boundary", 8))
    )
    assert torch.equal(full(tokens_of(FOUR)), single(tokens_of(FOUR)))


def test_a_large_recency_bias_is_prenorm() -> None:
    """The softmax then reads the residual stream alone."""
    ours = Model.build(config_of(table_of("recency", 2) | {"recency": 60.0}), 0).double()
    plain = Model.build(config_of("prenorm"), 0).double()
    assert_equal(ours(tokens_of(GQA)), plain(tokens_of(GQA)), "logits")


def test_bias_starts_where_the_public_code_has_it() -> None:
    design = Model.build(config_of(table_of("recency", 2), FOUR), seed=0).design
    assert isinstance(design, BlockAttnRes)
    assert torch.equal(design.bias, torch.full((8,), 3.0))
    trace = Trace()
    Model.build(config_of(table_of("recency", 2), FOUR), seed=0)(tokens_of(FOUR), trace=trace)
    route = trace.routes[3][1]
    assert isinstance(route, SourceRoute)
    assert route.weights is not None
    share = math.exp(3) / (math.exp(3) + 1)
    torch.testing.assert_close(route.weights[-1], torch.full((2, 6), share))


@pytest.mark.parametrize(
    ("definition", "blocks", "sources"),
    [
        ("boundary", 8, [1, 2, 3, 4, 5, 6, 7, 8]),
        ("boundary", 4, [1, 2, 2, 3, 3, 4, 4, 5]),
        ("boundary", 3, [1, 2, 2, 2, 3, 3, 3, 4]),
        ("recency", 4, [1, 2, 3, 3, 4, 4, 5, 5]),
        ("recency", 3, [1, 2, 2, 3, 3, 3, 4, 4]),
    ],
)
def test_number_of_sources(definition: str, blocks: int, sources: list[int]) -> None:
    model, trace = random_model(config_of(table_of(definition, blocks), FOUR)), Trace()
    model(tokens_of(FOUR), trace=trace)
    counts = []
    for _, route in trace.routes:
        assert isinstance(route, SourceRoute)
        assert route.weights is not None
        counts.append(len(route.weights))
    assert counts == sources


def test_inside_a_run_the_running_sum_has_weight_one() -> None:
    model, trace = random_model(config_of(table_of("boundary", 2), FOUR)), Trace()
    model(tokens_of(FOUR), trace=trace)
    weights = [route.weights for _, route in trace.routes if isinstance(route, SourceRoute)]
    for site in (5, 6, 7):
        inside, opened = weights[site], weights[4]
        assert inside is not None
        assert opened is not None
        assert torch.equal(inside[:-1], opened)
        assert (inside[-1] == 1).all()


@pytest.mark.parametrize(
    ("definition", "own", "products", "sums"),
    [
        # 1 + 4 sources times 8 queries, and 4 running sums met by one
        ("paper", 2 * 8 * 32, 5 * 8 + 4, 2 + 2 + 3 + 3 + 4 + 4 + 5 + 5),
        # 1 + 4 sources times 4 queries; mixes of 2, 3, 4 and, for the readout, 5 sources
        ("boundary", 2 * 4 * 32, 5 * 4, 2 + 3 + 4 + 5),
        # 1 + 4 sources times 8 queries, and 8 running sums met by one
        ("recency", 2 * 8 * 32 + 8, 5 * 8 + 8, 2 + 3 + 3 + 4 + 4 + 5 + 5 + 6),
    ],
)
def test_size_and_work(definition: str, own: int, products: int, sums: int) -> None:
    config = config_of(table_of(definition, 4), FOUR)
    sizes = [
        sum(p.numel() for p in Model.on_meta(c).parameters())
        for c in (config, config_of("prenorm", FOUR))
    ]
    assert sizes[0] - sizes[1] == own
    flops = count_flops(config, 16)
    assert flops.own_products == 2 * 16 * 32 * products
    assert flops.own_sums == 2 * 16 * 32 * sums
