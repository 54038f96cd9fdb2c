"""Streams taken away, against loops by hand."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from depthbench.nn.model import Model
from depthbench.probes.result import Matrix
from depthbench.streams.ablation import Ablation, row_losses
from depthbench.streams.sites import Fading, Removal, Removing, put, streams_in, travel
from tests.streams.planted import blocks_of, lab_of, noisy, random_rows

ROWS = random_rows(4, 12)
TOKENS = torch.tensor(ROWS)
DESIGNS = ["hc", "mhc", "cascade", "resi_dual"]


@torch.no_grad()
def by_hand(model: Model, removal: Removal, means: torch.Tensor | None = None) -> list[float]:
    """Loss of every row, summed over its tokens, one site after another."""
    design, streams = model.design, len(model.design.stream_names) or 4
    state, context = model.begin(TOKENS, None)

    def cut(state: object, block: float, place: int) -> object:
        last = block == len(model.blocks)
        inside = removal.start <= block < removal.stop or (last and removal.stop == block)
        if not inside:
            return state
        z = design.depth_state(state).unflatten(2, (streams, -1)).clone()
        for stream in removal.streams:
            z[:, :, stream] = 0 if means is None else means[place, stream]
        return design.with_depth_state(state, z.flatten(2))

    for number, block in enumerate(blocks_of(model)):
        for side in (0, 1):
            state = block.site(side, cut(state, number, 2 * number + side), context)
    state = cut(state, len(model.blocks), 2 * len(model.blocks))
    logits = model.end(design.readout(state))[:, :-1]
    each = functional.cross_entropy(logits.mT, TOKENS[:, 1:], reduction="none")
    return each.sum(1).tolist()


@pytest.mark.parametrize("design", DESIGNS)
def test_removals_equal_a_loop_by_hand(design: str) -> None:
    model = noisy(design)
    lab = lab_of(model, ROWS)
    every = [
        Removal(streams=(1,), stop=3),
        Removal(streams=(0,), start=1, stop=2),
        Removal(streams=(1,), start=2, stop=3),
        Removal(streams=(0, 1), start=0, stop=1),
    ]
    losses = row_losses(lab, every, lab.batches)
    for number, one in enumerate(every):
        np.testing.assert_allclose(losses.nats[1 + number], by_hand(model, one), rtol=1e-9)
    whole = functional.cross_entropy(model(TOKENS)[:, :-1].mT, TOKENS[:, 1:], reduction="none")
    np.testing.assert_allclose(losses.nats[0], whole.sum(1).tolist(), rtol=1e-9)
    total = losses.nats.sum(1)
    np.testing.assert_allclose(losses.changes(), total[1:] / total[0] - 1)
    first = losses.nats[:, [0, 2]].sum(1)
    np.testing.assert_allclose(losses.by_domain()[0], first[1:] / first[0] - 1)


def test_means_stand_in_for_a_stream_at_every_site() -> None:
    model = noisy("hc")
    lab = lab_of(model, ROWS)
    with torch.no_grad():
        state, context = model.begin(TOKENS, None)
        means = [state.mean((0, 1))]
        for block in blocks_of(model):
            for side in (0, 1):
                state = block.site(side, state, context)
                means.append(state.mean((0, 1)))
    removal = Removal(streams=(2,), start=1, stop=3, by="mean")
    losses = row_losses(lab, [removal, Removal(streams=(2,), stop=3)], lab.batches)
    # means travel in float32
    expected = by_hand(model, removal, torch.stack(means))
    np.testing.assert_allclose(losses.nats[1], expected, rtol=1e-6)
    np.testing.assert_allclose(
        losses.nats[2], by_hand(model, Removal(streams=(2,), stop=3)), rtol=1e-9
    )


def test_a_stream_that_fades_to_nothing_is_one_that_is_left_out() -> None:
    model = noisy("hc")
    subject = lab_of(model, ROWS).subject
    session = subject.session(lab_of(model, ROWS).text.batches[0])
    with torch.no_grad():
        whole = travel(session, subject, Fading((1,), 1.0, subject))
        faded = travel(session, subject, Fading((1,), 0.0, subject))
        removed = travel(session, subject, Removing([Removal(streams=(1,), stop=3)], subject))
        logits = session.logits(session.readout(whole))
    torch.testing.assert_close(logits, session.own_logits())
    others = [0, 2, 3]
    torch.testing.assert_close(
        streams_in(session, faded, 4)[:, :, others], streams_in(session, removed, 4)[:, :, others]
    )
    same = put(session, whole, streams_in(session, whole, 4))
    torch.testing.assert_close(session.depth_state(same), session.depth_state(whole))


def test_the_probe_names_streams_ranges_pairs_and_what_is_left() -> None:
    lab = lab_of(noisy("hc"), ROWS)
    result = Ablation(ranges=3).run(lab)
    layers = lab.layers
    alone = row_losses(
        lab,
        [Removal(streams=(2,), start=1, stop=2), Removal(streams=(0, 3), stop=layers)],
        lab.batches,
    ).changes()
    by_depth = result.matrix("zero_by_depth")
    assert by_depth.columns == (0.0, 1.0, 2.0)
    assert by_depth.values[2][1] == pytest.approx(100 * alone[0])
    pairs = result.matrix("pairs")
    assert pairs.values[0][3] == pairs.values[3][0] == pytest.approx(100 * alone[1])
    assert pairs.values[1][1] is None
    only = row_losses(lab, [Removal(streams=(0, 1, 3), stop=layers)], lab.batches).changes()
    assert result.curve("only").values[2] == pytest.approx(100 * only[0])
    one = Ablation(layers=(1, 3), streams=(2,), mean=False, sets=False).run(lab)
    matrix = one.matrix("zero_by_depth")
    assert isinstance(matrix, Matrix)
    expected = row_losses(lab, [Removal(streams=(2,), start=1, stop=3)], lab.batches).changes()
    assert matrix.values == ((pytest.approx(100 * expected[0]),),)
    two = row_losses(lab, [Removal(streams=(1, 2), stop=layers)], lab.batches).changes()
    kept = Ablation(keep=(0, 3), mean=False, sets=False).run(lab)
    assert kept.number("kept").value == pytest.approx(100 * two[0])
    assert Ablation().refusal(lab_of(noisy("prenorm"), ROWS).subject) is not None
