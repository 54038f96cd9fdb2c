"""Spikes: the z-score by hand, when one begins, grows and ends, and what is none."""

import math

import numpy as np
import pytest

from depthbench.train.health.config import HealthConfig
from depthbench.train.health.spikes import Spike, Spikes, robust_z

CONFIG = HealthConfig(window=10, window_least=5, spike_z=6.0, loss_floor=0.01, norm_floor=0.05)
QUIET = [2.0, 2.1, 1.9, 2.2, 1.8]


def look(losses: list[float], config: HealthConfig = CONFIG) -> list[list[Spike]]:
    spikes = Spikes(config)
    return [spikes.look("loss", step, [loss]) for step, loss in enumerate(losses, start=1)]


def test_z_by_hand() -> None:
    """Median 3, deviations 2 1 0 1 2 with median 1: (10 - 3) / 1.4826."""
    window = np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0], [4.0, 5.0], [5.0, 5.1]])
    median, z = robust_z(window, np.array([10.0, 5.2]), floor=0.05)
    assert median.tolist() == [3.0, 5.0]
    # nothing moves in the second column: the floor is the scale
    assert z.tolist() == pytest.approx([7 / 1.4826, 0.2 / 0.05])


def test_a_spike_begins_grows_and_ends() -> None:
    """Against the logarithms of 2.0, 2.1, 1.9, 2.2, 1.8: median ln 2, MAD ln(2 / 1.9)."""
    told = look([*QUIET, 4.0, 9.0, 4.5, 2.1, 2.0])
    scale = 1.4826 * math.log(2.0 / 1.9)
    assert told[:5] == [[]] * 5
    [begun] = told[5]
    assert (begun.signal, begun.block, begun.step, begun.value) == ("loss", None, 6, 4.0)
    assert begun.usual == pytest.approx(2.0)
    assert begun.z == pytest.approx(math.log(2) / scale)
    assert begun.until is None
    [grown] = told[6]
    # by now 4.0 is in the window: the median is the mean of ln 2.0 and ln 2.1
    window = np.log([*QUIET, 4.0])
    middle = np.median(window)
    larger = (math.log(9) - middle) / (1.4826 * np.median(np.abs(window - middle)))
    assert (grown.step, grown.value, grown.z) == (6, 9.0, pytest.approx(larger))
    assert grown.usual == begun.usual
    assert told[7] == []
    [ended] = told[8]
    assert ended == grown.model_copy(update={"until": 9})
    assert told[9] == []


def test_too_little_to_compare_with_is_no_spike() -> None:
    assert look([*QUIET[:4], 50.0])[-1] == []
    assert len(look([*QUIET, 50.0])[-1]) == 1


def test_a_fall_and_small_noise_are_no_spikes() -> None:
    assert not any(look([2.0] * 8 + [0.5]))
    # the floor: 5.9 of its units above a window that never moved, and 6.1
    assert not any(look([2.0] * 8 + [2.0 * math.exp(0.059)]))
    assert any(look([2.0] * 8 + [2.0 * math.exp(0.061)]))


def test_old_values_leave_the_window() -> None:
    """Ten steps after the jump the new level is the usual one; the spike is over on the way."""
    told = look([2.0] * 12 + [4.0] * 12)
    assert [len(one) for one in told[:13]] == [0] * 12 + [1]
    [ended] = [spike for one in told for spike in one if spike.until is not None]
    assert ended.step == 13
    assert 17 <= (ended.until or 0) <= 19
    assert told[-1] == []


def test_blocks_are_apart_and_a_block_that_never_moved_cannot_jump() -> None:
    spikes = Spikes(CONFIG)
    for step in range(1, 9):
        assert spikes.look("update", step, [0.1, 0.0, 0.3]) == []
    [one] = spikes.look("update", 9, [0.1, 0.2, 0.9])
    assert (one.block, one.signal, one.value) == (2, "update", 0.9)
    assert one.usual == pytest.approx(0.3)
    assert one.z == pytest.approx(math.log(3) / 0.05)
    assert [spike.block for spike in spikes.lasting] == [2]


def test_signals_do_not_end_each_other() -> None:
    spikes = Spikes(CONFIG)
    for step in range(1, 9):
        spikes.look("loss", step, [2.0])
        spikes.look("gradient", step, [1.0])
    spikes.look("loss", 9, [4.0])
    spikes.look("gradient", 9, [9.0])
    [ended] = spikes.look("gradient", 10, [1.0])
    assert (ended.signal, ended.until) == ("gradient", 10)
    assert [spike.signal for spike in spikes.lasting] == ["loss"]


def test_going_on_from_the_state_is_going_on() -> None:
    """Through JSON, in the middle of a spike."""
    losses = [*QUIET, 2.05, 4.0, 4.2, 5.0, 2.0, 1.9, 6.0]
    whole, first = Spikes(CONFIG), Spikes(CONFIG)
    told = [whole.look("loss", step, [loss]) for step, loss in enumerate(losses)]
    for step, loss in enumerate(losses[:8]):
        first.look("loss", step, [loss])
    second = Spikes(CONFIG)
    second.restore(first.state())
    assert second.lasting == first.lasting != []
    rest = [second.look("loss", step, [losses[step]]) for step in range(8, len(losses))]
    assert rest == told[8:]
    assert any(rest)


def test_noise_of_batches_is_no_spike_at_the_defaults() -> None:
    """10 000 steps of normal noise on a falling loss."""
    noise = np.random.default_rng(0)
    spikes = Spikes(HealthConfig())
    for step in range(1, 10001):
        loss = (2 + 4 * step**-0.3) * math.exp(noise.normal(0, 0.03))
        assert spikes.look("loss", step, [loss]) == []
