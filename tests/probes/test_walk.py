"""Programs: every result equals that of the model's own forward under the same program."""

import itertools

import pytest
import torch

from depthbench.designs import REGISTRY
from depthbench.errors import DepthbenchError
from depthbench.probes import program
from depthbench.probes.batch import Batch
from depthbench.probes.own import OwnSubject
from depthbench.probes.program import Program, leave, only, plain, program_of, skip, swap
from depthbench.probes.subject import Call
from depthbench.probes.walk import Limits, Walker
from tests.probes.small import random_own, rows

LAYERS = 5
BATCH = Batch.of_rows(rows((12, 12, 7)))


def programs() -> list[Program]:
    pairs = list(itertools.combinations(range(LAYERS), 2))
    return [
        *(skip(LAYERS, block) for block in range(LAYERS)),
        *(swap(LAYERS, *pair) for pair in pairs),
        *(leave(LAYERS, depth) for depth in range(LAYERS + 1)),
        skip(LAYERS, 1, 3),
        program.repeat(LAYERS, 2),
        program.span_again(LAYERS, 1, 4),
        program.move(LAYERS, 0, 3),
        program.reverse(LAYERS, 1, 5),
    ]


@pytest.mark.parametrize("name", REGISTRY)
@torch.no_grad()
def test_programs_side_by_side_equal_the_models_own(name: str) -> None:
    model = random_own(name, LAYERS)
    session = OwnSubject(model, "test").session(BATCH)
    walker = Walker(session, Limits(tokens=150, megabytes=0.3))
    assert torch.equal(session.logits(session.readout(walker.states[-1])), session.own_logits())
    found = dict(walker.ends(programs()))
    assert sorted(found) == list(range(len(programs())))
    for number, one in enumerate(programs()):
        expected = model(BATCH.tokens, program=[call.block for call in one])
        # other batch sizes may sum in another order
        torch.testing.assert_close(
            session.logits(session.readout(found[number]))[BATCH.valid],
            expected[BATCH.valid],
            rtol=1e-10,
            atol=1e-10,
        )


@torch.no_grad()
def test_each_prefix_is_computed_once_and_few_states_are_alive() -> None:
    """At 32 blocks: 10 944 block calls for all swaps, 528 for all skips, the plain 32 included."""
    layers = 32
    model = random_own("prenorm", layers, width=8)
    batch = Batch.of_rows(rows((3,)))
    for edits, calls in (
        ([swap(layers, *pair) for pair in itertools.combinations(range(layers), 2)], 10944),
        ([skip(layers, block) for block in range(layers)], 528),
    ):
        walker = Walker(OwnSubject(model, "test").session(batch))
        assert len(list(walker.ends(edits))) == len(edits)
        assert walker.calls == calls


@torch.no_grad()
def test_programs_that_share_a_prefix_off_the_plain_one_share_it() -> None:
    model = random_own("hc", 6)
    walker = Walker(OwnSubject(model, "test").session(BATCH))
    first = program_of([1, 0, 2, 3, 4, 5], 6)
    second = program_of([1, 0, 2, 3, 5, 4], 6)
    list(walker.ends([first, second]))
    assert walker.calls == 6 + 4 + 2 * 2


@torch.no_grad()
def test_one_branch_alone() -> None:
    """Attention alone and then the feed-forward alone are the block."""
    model = random_own("mhc")
    session = OwnSubject(model, "test").session(BATCH)
    walker = Walker(session)
    half = session.run(Call(2, 2, "attention"), walker.states[2], 1)
    whole = session.run(Call(2, 2, "feedforward"), half, 1)
    assert torch.equal(whole, walker.states[3])
    ends = dict(walker.ends([only(6, 2, "attention"), only(6, 2, "feedforward")]))
    expected = half
    for block in range(3, 6):
        expected = session.run(Call(block, block), expected, 1)
    torch.testing.assert_close(ends[0], expected, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(ends[1], expected)


@pytest.mark.parametrize("left", [False, True])
@torch.no_grad()
def test_padding_changes_nothing(left: bool) -> None:
    texts = rows((12, 9, 5))
    model = random_own("attnres")
    padded = Batch.of_rows(texts, left=left)
    session = OwnSubject(model, "test").session(padded)
    [(_, state)] = Walker(session).ends([skip(6, 3)])
    hidden = session.readout(state)
    for number, text in enumerate(texts):
        alone = OwnSubject(model, "test").session(Batch.of_rows([text]))
        [(_, own)] = Walker(alone).ends([skip(6, 3)])
        torch.testing.assert_close(
            hidden[number][padded.valid[number]], alone.readout(own)[0], rtol=1e-10, atol=1e-10
        )


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda: swap(6, 2, 2), "swap of block 2 with itself changes nothing"),
        (lambda: program.repeat(6, 2, 1), "once changes nothing"),
        (lambda: program.move(6, 1, 1), "own place changes nothing"),
        (lambda: program.reverse(6, 2, 3), "no span of at least 2"),
        (lambda: skip(6, 6), "block 6 is not there: the model has blocks 0 to 5"),
        (lambda: leave(6, 7), "depths 0 to 6"),
        (lambda: only(6, 1, "block"), "changes nothing"),
        (lambda: program_of([0, 9], 6), "block 9"),
    ],
)
def test_edits_that_are_none(edit: object, words: str) -> None:
    assert callable(edit)
    with pytest.raises(DepthbenchError, match=words):
        edit()


def test_orders() -> None:
    def order(one: Program) -> list[int]:
        return [call.block for call in one]

    assert order(program.move(5, 1, 3)) == [0, 2, 3, 1, 4]
    assert order(program.move(5, 3, 0)) == [3, 0, 1, 2, 4]
    assert order(program.reverse(5, 1, 4)) == [0, 3, 2, 1, 4]
    assert order(program.span_again(5, 1, 3)) == [0, 1, 2, 1, 2, 3, 4]
    assert order(program.repeat(4, 3, 3)) == [0, 1, 2, 3, 3, 3]
    assert order(leave(4, 0)) == []
    assert plain(3) == program_of(range(3), 3)
    # a program that only leaves out keeps every block's place
    assert [call.place for call in skip(4, 1)] == [0, 2, 3]
    assert [call.place for call in swap(4, 0, 1)] == [0, 1, 2, 3]
