"""Models with a planted truth: every probe finds it."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch

from depthbench.nn.block import Block
from depthbench.nn.generate import generate
from depthbench.nn.model import Model
from depthbench.probes.ablate import Prune, Repeat
from depthbench.probes.angular import Angular
from depthbench.probes.causal import Causal
from depthbench.probes.cka import CKA
from depthbench.probes.contribution import Contribution
from depthbench.probes.depth import Depth, verdict
from depthbench.probes.jacobian import Jacobian
from depthbench.probes.lens import Lens
from depthbench.probes.permutation import Permutation
from depthbench.probes.probe import Probe
from depthbench.probes.result import Number, ProbeResult
from depthbench.probes.usefulness import Usefulness
from tests.probes.small import in_batches, lab_of, random_own, rows

LAYERS = 8
TEXT = in_batches(rows((24,) * 12), 2)


@torch.no_grad()
def silenced(model: Model, blocks: Iterable[int]) -> Model:
    """With the last matrix of both branches of these blocks at 0: they add nothing."""
    for number in blocks:
        block = model.blocks[number]
        assert isinstance(block, Block)
        for branch in (block.attention, block.feedforward):
            list(branch.parameters())[-1].zero_()
    return model


def values(result: ProbeResult, name: str) -> np.ndarray:
    return np.array(result.curve(name).values, dtype=np.float64)


def found(model: Model, probe: Probe) -> ProbeResult:
    return probe.run(lab_of(model, TEXT))


@pytest.mark.slow
@pytest.mark.parametrize(
    "design",
    [
        "prenorm",
        pytest.param({"name": "hc", "mix": False}, marks=pytest.mark.slow),
        pytest.param("moda", marks=pytest.mark.slow),
    ],
)
def test_a_later_half_that_does_nothing(design: Any) -> None:
    model = silenced(random_own(design, LAYERS), range(LAYERS // 2, LAYERS))
    late = np.arange(LAYERS) >= LAYERS // 2
    pruned, twice = found(model, Prune()), found(model, Repeat())
    assert (values(pruned, "block")[late] == 0).all()
    assert (values(twice, "block")[late] == 0).all()
    assert (np.abs(values(pruned, "block")[~late]) > 1e-3).all()
    assert (values(found(model, Angular()), "step")[late] == 0).all()
    assert (values(found(model, Contribution()), "size_block")[late] == 0).all()
    assert values(found(model, CKA()), "neighbours")[late] == pytest.approx(1, abs=1e-12)
    assert values(found(model, Usefulness()), "growth")[late] == pytest.approx(0, abs=1e-9)
    assert values(found(model, Jacobian(context=12)), "distance")[late] == pytest.approx(
        0, abs=1e-9
    )
    lens = values(found(model, Lens()), "divergence")
    assert (lens[LAYERS // 2 :] == 0).all()
    assert lens[LAYERS // 2 - 1] > 0
    causal = np.array(found(model, Causal()).matrix("effect").values, dtype=np.float64)
    # the update of a block that adds nothing is 0, so its relative change is not defined
    assert np.isnan(causal[:, late]).all()
    swaps = np.array(found(model, Permutation()).matrix("change").values, dtype=np.float64)
    assert np.nanmax(swaps[np.ix_(late, late)]) == 0
    # what the model itself would write: every block that does something is missed
    own = generate(model, torch.arange(1, 13)[:, None], 23)
    lab = lab_of(model, in_batches(own.tolist(), 2))
    depth = Depth().run(lab)
    assert depth.number("kept").value == LAYERS // 2
    # few candidates at a step do not limit how many blocks go
    assert Depth(candidates=2).run(lab).number("kept").value == LAYERS // 2
    assert depth.number("half_depth").value <= LAYERS // 2
    assert "4 of 8 blocks keep the loss" in depth.words[0]


@pytest.mark.parametrize(
    ("layers", "kept", "words"),
    [
        (1, 0, "The only block can go without loss."),
        (1, 1, "The only block cannot go without loss."),
        (4, 0, "The loss is kept without any of the 4 blocks."),
        (4, 1, "1 of 4 blocks keeps the loss."),
        (4, 3, "3 of 4 blocks keep the loss."),
        (4, 4, "None of the 4 blocks can go without loss."),
    ],
)
def test_what_is_kept_in_words(layers: int, kept: int, words: str) -> None:
    nothing = Number(name="none", title="None", value=None)
    assert verdict(layers, kept, nothing, nothing, nothing) == words


def test_one_block_that_does_nothing_alone() -> None:
    result = found(silenced(random_own("prenorm", 1), [0]), Depth())
    assert result.number("kept").value == 0
    assert result.number("kept").unit == "of 1 block"
    assert result.words[0].startswith("The only block can go without loss")


def test_one_block_that_does_nothing_amid_others() -> None:
    model = silenced(random_own("prenorm", LAYERS), [3])
    assert values(found(model, Prune()), "block")[3] == 0
    assert values(found(model, Contribution()), "size_block")[3] == 0
    causal = np.array(found(model, Causal()).matrix("effect").values, dtype=np.float64)
    assert causal[3, 4:] == pytest.approx(0, abs=1e-12)
    assert np.isnan(causal[:3, 3]).all()


@torch.no_grad()
def test_duplicates() -> None:
    """Swapping equal blocks is nothing, and they are not called dispensable for it."""
    model = random_own("prenorm", LAYERS)
    model.blocks[5].load_state_dict(model.blocks[2].state_dict())
    swaps = np.array(found(model, Permutation()).matrix("change").values, dtype=np.float64)
    # other batches of programs may sum in another order
    assert swaps[2, 5] == pytest.approx(0, abs=1e-12)
    others = swaps[~np.isnan(swaps)]
    assert (others < 1e-9).sum() == 2
    assert abs(values(found(model, Prune()), "block")[5]) > 1e-4


@torch.no_grad()
def test_noise_turns_the_state_but_is_not_used() -> None:
    """Writing where the head does not read: angles are large, losses do not move."""
    model = random_own("prenorm", LAYERS)
    # the head and all readers see the first half of the width, noise writes to the second
    half = model.config.shape.width // 2
    model.final_norm.gain[half:] = 0
    loud = (4, 5)
    for number in range(LAYERS):
        block = model.blocks[number]
        assert isinstance(block, Block)
        for branch, connection in block.pairs():
            next(iter(connection.parameters()))[half:] = 0
            out = list(branch.parameters())[-1]
            if number in loud:
                out[:half] = 0
            else:
                out[half:] = 0
    model.embed.weight[:, half:] = 0
    angles = values(found(model, Angular()), "step")
    assert (angles[list(loud)] > 0.05).all()
    pruned = values(found(model, Prune()), "block")
    quiet = [number for number in range(LAYERS) if number not in loud]
    # the norm's scale is of the whole state, so all that is left is a common factor
    assert np.abs(pruned[list(loud)]).max() < np.abs(pruned[quiet]).max()
