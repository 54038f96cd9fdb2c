import math

import numpy as np
import pytest
import torch

from depthbench.data.entropy import unigram_nats
from depthbench.data.loss import LossSum, next_token_loss


def test_twenty_tokens_by_hand_in_numpy() -> None:
    """CASES 30: shifted by one, and divided by the tokens that are scored."""
    chosen = np.random.Generator(np.random.Philox(key=3))
    tokens = chosen.integers(0, 11, 20)
    sizes = chosen.integers(0, 5, 20)
    scores = chosen.normal(size=(20, 11)) * 3
    probabilities = np.exp(scores[:-1]) / np.exp(scores[:-1]).sum(axis=1, keepdims=True)
    nats = -np.log(probabilities[np.arange(19), tokens[1:]]).sum()

    logits, stream = torch.from_numpy(scores)[None], torch.from_numpy(tokens)[None]
    loss = next_token_loss(logits[:, :-1], stream[:, 1:], torch.from_numpy(sizes)[None, 1:])

    assert loss.nats == pytest.approx(nats, rel=1e-13)
    assert loss.tokens == 19
    assert loss.bytes == sizes[1:].sum()
    assert loss.nats_per_token == pytest.approx(nats / 19, rel=1e-13)
    assert loss.bits_per_byte == pytest.approx(nats / math.log(2) / sizes[1:].sum(), rel=1e-13)
    row = loss.domain_loss()
    assert (row.nats_per_token, row.bits_per_byte) == (loss.nats_per_token, loss.bits_per_byte)
    assert (row.tokens, row.bytes) == (19, sizes[1:].sum())


def test_sums_do_not_depend_on_the_batches() -> None:
    torch.manual_seed(0)
    logits = torch.randn(6, 5, 9)
    targets, sizes = torch.randint(0, 9, (6, 5)), torch.randint(0, 4, (6, 5))
    whole = next_token_loss(logits, targets, sizes)
    parts = LossSum()
    for row in range(6):
        one = slice(row, row + 1)
        parts += next_token_loss(logits[one], targets[one], sizes[one])
    assert parts.nats == pytest.approx(whole.nats, rel=1e-14)
    assert (parts.tokens, parts.bytes) == (30, int(sizes.sum()))


def test_many_small_losses_are_summed_in_double() -> None:
    logits = torch.zeros(1, 300_000, 3)
    targets = torch.zeros(1, 300_000, dtype=torch.int64)
    loss = next_token_loss(logits, targets, targets)
    assert loss.nats_per_token == pytest.approx(float(np.float32(math.log(3))), rel=1e-9)


def test_bfloat16_logits_are_widened() -> None:
    logits = torch.randn(2, 7, 5, generator=torch.Generator().manual_seed(1)).bfloat16()
    targets = torch.full((2, 7), 4)
    exact = next_token_loss(logits.double(), targets, targets)
    assert next_token_loss(logits, targets, targets).nats == pytest.approx(exact.nats, rel=1e-6)


@pytest.mark.parametrize("bad", [-100, -1, 5])
def test_a_target_outside_the_vocabulary_is_refused(bad: int) -> None:
    targets = torch.tensor([[0, bad]])
    with pytest.raises(ValueError, match="outside the vocabulary of 5"):
        next_token_loss(torch.zeros(1, 2, 5), targets, targets)


def test_shapes_that_do_not_belong_together() -> None:
    targets = torch.zeros(1, 3, dtype=torch.int64)
    with pytest.raises(ValueError, match="do not belong together"):
        next_token_loss(torch.zeros(1, 4, 5), targets, targets)
    with pytest.raises(ValueError, match="do not belong together"):
        next_token_loss(torch.zeros(1, 3, 5), targets, targets[:, 1:])


def test_nothing_summed_is_no_zero() -> None:
    with pytest.raises(ValueError, match="no target tokens"):
        _ = LossSum().nats_per_token
    with pytest.raises(ValueError, match="no target bytes"):
        _ = LossSum(1.0, 1, 0).bits_per_byte
    with pytest.raises(ValueError, match="no tokens"):
        unigram_nats(np.zeros(4, np.int64))


def test_unigram_entropy() -> None:
    assert unigram_nats(np.array([2, 1, 0, 1])) == pytest.approx(1.5 * math.log(2), rel=1e-15)
    assert unigram_nats(np.array([7, 0])) == 0
