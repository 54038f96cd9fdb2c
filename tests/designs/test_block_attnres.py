"""Block AttnRes: depth attention over sums of runs of ``S = ceil(2L / blocks)`` outputs."""

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from depthbench.designs.sources import SourceRoute
from depthbench.nn.block import Trace
from tests.designs.test_attnres import softmax_mix
from tests.oracles import GQA, Oracle, assert_equation, config_of, random_model, tokens_of

FOUR = GQA.model_copy(update={"layers": 4})


def programmed(
    blocks: int, program: Sequence[int], places: Sequence[int]
) -> Callable[[Oracle, Tensor], Tensor]:
    """The equation for blocks that run at these places; a run's sum holds what ran inside it."""

    def run(o: Oracle, h: Tensor) -> Tensor:
        size = math.ceil(2 * o.shape.layers / blocks)
        runs: dict[int, list[Tensor]] = {}
        mix, readout = None, h
        for block, place in zip(program, places, strict=True):
            for inner in (0, 1):
                site = 2 * block + inner
                x = h if mix is None else softmax_mix(o, sources_of(h, runs), mix)
                runs.setdefault((2 * place + inner) // size, []).append(
                    o.branch(site, o.norm(site, x))
                )
                mix = site
        return readout if mix is None else softmax_mix(o, sources_of(h, runs), mix)

    return run


def sources_of(h: Tensor, runs: dict[int, list[Tensor]]) -> list[Tensor]:
    """The embedding and the sum of every run so far, in order."""
    return [h] + [torch.stack(runs[number]).sum(0) for number in sorted(runs)]


def equation_of(blocks: int, layers: int) -> Callable[[Oracle, Tensor], Tensor]:
    return programmed(blocks, range(layers), range(layers))


@pytest.mark.parametrize(
    ("layers", "blocks"),
    [(4, 8), (4, 4), (4, 3), (3, 4), (3, 5), (4, 2), (4, 1), (3, 100)],
)
def test_logits_and_gradients(layers: int, blocks: int) -> None:
    """Runs of 1, of 2, of 3 (the last one shorter), of the whole depth; more blocks than sites."""
    shape = GQA.model_copy(update={"layers": layers})
    table = {"name": "block_attnres", "blocks": blocks}
    assert_equation(config_of(table, shape), equation_of(blocks, layers))


@pytest.mark.parametrize("blocks", [3, 4, 8])
@pytest.mark.parametrize("skipped", range(4))
def test_runs_keep_their_boundaries_under_a_skip(blocks: int, skipped: int) -> None:
    program = [block for block in range(4) if block != skipped]
    table = {"name": "block_attnres", "blocks": blocks}
    assert_equation(config_of(table, FOUR), programmed(blocks, program, program), program)


@pytest.mark.parametrize("program", [[0, 2, 1, 3], [0, 1, 1, 2, 3]], ids=str)
def test_other_programs_group_by_position(program: list[int]) -> None:
    table = {"name": "block_attnres", "blocks": 3}
    places = range(len(program))
    assert_equation(config_of(table, FOUR), programmed(3, program, places), program)


def test_runs_of_one_site_are_attnres_bit_for_bit() -> None:
    full, single = (
        random_model(config_of(design, FOUR))
        for design in ("attnres", {"name": "block_attnres", "blocks": 8})
    )
    tokens = tokens_of(FOUR)
    assert torch.equal(full(tokens), single(tokens))


@pytest.mark.parametrize(
    ("layers", "blocks", "sources"),
    [
        (4, 8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (4, 4, [1, 2, 2, 3, 3, 4, 4, 5]),
        (4, 3, [1, 2, 2, 2, 3, 3, 3, 4]),
        (3, 1, [1, 2, 2, 2, 2, 2]),
    ],
)
def test_number_of_sources(layers: int, blocks: int, sources: list[int]) -> None:
    shape = GQA.model_copy(update={"layers": layers})
    model = random_model(config_of({"name": "block_attnres", "blocks": blocks}, shape))
    trace = Trace()
    model(tokens_of(shape), trace=trace)
    counts = []
    for _, route in trace.routes:
        assert isinstance(route, SourceRoute)
        assert route.weights is not None
        counts.append(len(route.weights))
    assert counts == sources
