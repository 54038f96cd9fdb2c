"""Generation: against the full forward, and the choice of tokens against its definition."""

import pytest
import torch
from torch import Tensor

from depthbench.errors import DepthbenchError
from depthbench.nn import generate as generation
from depthbench.nn.generate import Sampling, choose, generate, probabilities
from depthbench.nn.model import Model
from tests.oracles import GQA, config_of, random_model, tokens_of


def model() -> Model:
    return random_model(config_of("prenorm"))


def greedy_by_hand(model: Model, tokens: Tensor, count: int) -> Tensor:
    """The most likely token, with the whole sequence anew each time."""
    for _ in range(count):
        tokens = torch.cat([tokens, model(tokens)[:, -1:].argmax(-1)], dim=1)
    return tokens


def test_greedy_is_the_argmax_of_the_full_forward() -> None:
    tokens = tokens_of(GQA, length=5)
    expected = greedy_by_hand(model(), tokens, 9)
    assert torch.equal(generate(model(), tokens, 9), expected)
    assert len(expected[:, 5:].unique()) > 3


def test_left_padding_changes_nothing() -> None:
    tokens = tokens_of(GQA, length=5)
    padded = torch.cat([torch.full((2, 3), 7), tokens], dim=1)
    padded[1, 3:5] = 7
    found = generate(model(), padded, 6, padding=torch.tensor([3, 5]))
    assert torch.equal(found[0, 3:], generate(model(), tokens[:1], 6)[0])
    assert torch.equal(found[1, 5:], generate(model(), tokens[1:, 2:], 6)[0])


def test_a_seed_repeats_and_another_differs() -> None:
    tokens = tokens_of(GQA, length=3)
    first, again, other = (
        generate(model(), tokens, 12, sampling=Sampling(temperature=1.5, seed=seed))
        for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


LOGITS = torch.tensor([[1.0, 3.0, 2.0, -4.0], [0.0, 0.0, 0.0, 0.0]], dtype=torch.float64)


def test_temperature_divides_the_logits() -> None:
    expected = torch.exp(LOGITS / 0.7)
    expected = expected / expected.sum(-1, keepdim=True)
    torch.testing.assert_close(probabilities(LOGITS, Sampling(temperature=0.7)), expected)


def test_a_temperature_near_zero_is_greedy_without_overflow() -> None:
    chances = probabilities(1e3 * LOGITS[:1].float(), Sampling(temperature=1e-30))
    assert chances.tolist() == [[0.0, 1.0, 0.0, 0.0]]


def test_top_k_keeps_exactly_k_of_equal_tokens_too() -> None:
    chances = probabilities(LOGITS, Sampling(temperature=1, top_k=2))
    assert (chances > 0).sum(-1).tolist() == [2, 2]
    ratio = (chances[0, 1] / chances[0, 2]).item()
    assert ratio == pytest.approx(torch.e)
    assert chances.sum(-1).tolist() == pytest.approx([1, 1])


@pytest.mark.parametrize(("top_p", "kept"), [(0.5, 1), (0.7, 2), (0.95, 3), (1.0, 4)])
def test_top_p_keeps_the_fewest_that_reach_it(top_p: float, kept: int) -> None:
    """The four have 0.665, 0.245, 0.090 and 0.0006."""
    chances = probabilities(LOGITS[:1], Sampling(temperature=1, top_p=top_p))
    assert (chances > 0).sum().item() == kept
    assert chances.sum().item() == pytest.approx(1)


def test_top_p_counts_what_top_k_left() -> None:
    """Of the two that are left the first has 0.73."""
    both = probabilities(LOGITS[:1], Sampling(temperature=1, top_k=2, top_p=0.7))
    assert both.tolist() == [[0, 1, 0, 0]]


def test_draws_follow_the_probabilities() -> None:
    sampling = Sampling(temperature=1.3)
    generator = torch.Generator().manual_seed(0)
    drawn = choose(LOGITS[:1].expand(20000, -1), sampling, generator)
    shares = torch.bincount(drawn, minlength=4) / 20000
    # four standard deviations of a share of 20 000 draws
    assert (shares - probabilities(LOGITS[:1], sampling)[0]).abs().max() < 4 * 0.5 / 20000**0.5


def test_a_sequence_ends_with_its_stop_token() -> None:
    tokens = tokens_of(GQA, length=5)
    free = generate(model(), tokens, 9)
    stop = int(free[0, 7])
    assert stop not in free[0, 5:7]
    found = generate(model(), tokens, 9, stop=stop)
    assert torch.equal(found[0, :8], free[0, :8])
    assert (found[0, 8:] == stop).all()
    alone = generate(model(), tokens[:1], 9, stop=stop)
    assert alone.shape == (1, 8)


def test_rows_that_pad_the_head_are_never_chosen() -> None:
    padded = model()
    with torch.no_grad():
        padded.head.weight[90:] = 50 * padded.head.weight[90:]
    tokens = tokens_of(GQA, length=5) % 90
    assert (generate(padded, tokens, 8)[:, 5:] >= 90).any()
    assert (generate(padded, tokens, 8, vocab=90)[:, 5:] < 90).all()


@pytest.mark.parametrize("design", ["prenorm", "cascade", "momentum"])
@pytest.mark.parametrize("backbone", ["dense", "hybrid"])
def test_room_grows_with_the_text(
    design: str, backbone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache that is doubled on the way gives what one that is large from the start gives."""
    long = random_model(config_of(design, name=backbone))
    tokens = tokens_of(GQA, length=4)
    expected = generate(long, tokens, 40)
    monkeypatch.setattr(generation, "AHEAD", 3)
    assert torch.equal(generate(long, tokens, 40), expected)


def test_no_memory_is_taken_for_tokens_that_do_not_come() -> None:
    """The most that is allowed costs nothing when the text ends at once."""
    tokens = tokens_of(GQA, batch=1, length=5)
    stop = int(generate(model(), tokens, 1)[0, -1])
    assert generate(model(), tokens, 10**12, stop=stop).shape == (1, 6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch": 0, "capacity": 5}, "batch = 0"),
        ({"batch": 2, "capacity": -5}, "capacity = -5"),
        ({"batch": 2, "capacity": 5, "dtype": torch.int32}, "torch.int32"),
    ],
)
def test_caches_that_hold_nothing(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(DepthbenchError, match=message):
        model().cache(**arguments)  # type: ignore[arg-type]  # mixed kinds


def test_nothing_new_is_asked_for() -> None:
    tokens = tokens_of(GQA)
    assert torch.equal(generate(model(), tokens, 0), tokens)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": torch.zeros(1, 0, dtype=torch.long)}, "the prompt is empty"),
        ({"count": -1}, "count = -1"),
        ({"stop": 99}, "stop = 99.*0 to 98"),
        ({"vocab": 100}, "vocab = 100.*1 to 99"),
        ({"vocab": 0}, "vocab = 0.*1 to 99"),
        ({"tokens": torch.zeros(0, 3, dtype=torch.long)}, "at least one sequence"),
        ({"tokens": torch.tensor([[3, 99]])}, "ids from 3 to 99.*0 to 98"),
        ({"padding": torch.tensor([0, 6]), "count": 9}, "padding = .0, 6."),
    ],
)
def test_what_is_refused(changes: dict[str, object], message: str) -> None:
    arguments = {"tokens": tokens_of(GQA), "count": 1} | changes
    tokens, count = arguments.pop("tokens"), arguments.pop("count")
    with pytest.raises(DepthbenchError, match=message):
        generate(model(), tokens, count, **arguments)  # type: ignore[arg-type]  # mixed kinds
