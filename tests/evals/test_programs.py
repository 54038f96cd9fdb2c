"""What the options for interventions mean, and text under them."""

from typing import Any

import pytest
import torch

from depthbench.errors import DepthbenchError
from depthbench.evals.generate import generate_under
from depthbench.evals.programs import Asked, edits_of
from depthbench.nn.generate import Sampling, generate
from depthbench.probes.own import OwnSubject
from depthbench.probes.program import plain, repeat, skip
from tests.evals.small import bytes_model


@pytest.mark.parametrize(
    ("asked", "blocks"),
    [
        ({}, (0, 1, 2, 3, 4, 5)),
        ({"skip": "2"}, (0, 1, 3, 4, 5)),
        ({"skip": "0,3-4"}, (1, 2, 5)),
        ({"swap": "1,4"}, (0, 4, 2, 3, 1, 5)),
        ({"repeat": "5"}, (0, 1, 2, 3, 4, 5, 5)),
        ({"program": "0-2,1,5"}, (0, 1, 2, 1, 5)),
    ],
)
def test_blocks_that_run(asked: dict[str, Any], blocks: tuple[int, ...]) -> None:
    [edit] = edits_of(Asked(**asked), 6)
    assert edit.blocks == blocks


def test_sweeps() -> None:
    assert [e.blocks for e in edits_of(Asked(sweep="swap"), 3)] == [(0, 1, 2), (1, 0, 2), (0, 2, 1)]
    assert [e.blocks for e in edits_of(Asked(sweep="repeat"), 2)] == [(0, 1), (0, 0, 1), (0, 1, 1)]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"skip": "6"}, "block 6 is not there: the model has blocks 0 to 5"),
        ({"skip": "x"}, "skip = 'x': 'x' is no block"),
        ({"skip": ""}, "is no block"),
        ({"program": "4-2"}, "4-2 runs backwards"),
        ({"swap": "3"}, "names 1 blocks. Name two blocks"),
        ({"swap": "3,3"}, "changes nothing"),
        ({"skip": "1", "repeat": "2"}, "--skip and --repeat are given together"),
    ],
)
def test_bad_edits(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(DepthbenchError, match=words):
        edits_of(Asked(**asked), 6)


@pytest.mark.parametrize("design", ["prenorm", "hc", "attnres", "cascade"])
def test_plain_text_is_that_of_the_cache(design: str) -> None:
    """Every token from the whole text, and from a cache: the same text, greedy and drawn."""
    model = bytes_model(design)
    subject = OwnSubject(model, "test")
    start = [256, 100, 101]
    for sampling in (Sampling(), Sampling(temperature=1.0, top_k=20, seed=5)):
        whole = generate_under(subject, plain(4), start, 9, sampling=sampling)
        cached = generate(model, torch.tensor([start]), 9, sampling=sampling)[0]
        assert whole.tolist() == cached.tolist()


@pytest.mark.parametrize("program", [skip(4, 1), repeat(4, 2)])
def test_text_under_a_program_is_that_of_its_forward(program: Any) -> None:
    model = bytes_model()
    order = [call.block for call in program]
    found = generate_under(OwnSubject(model, "test"), program, [256, 7], 6).tolist()
    hand = [256, 7]
    with torch.no_grad():
        for _ in range(6):
            hand.append(int(model(torch.tensor([hand]), program=order)[0, -1].argmax()))
    assert found == hand
    assert found != generate_under(OwnSubject(model, "test"), plain(4), [256, 7], 6).tolist()
