"""Decoding with a cache, of any design on any backbone: the logits of the full forward."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from depthbench.designs.base import DesignConfig
from depthbench.errors import DepthbenchError
from depthbench.nn.backbones import BACKBONES
from depthbench.nn.cache import Cache, KeyValues, Memory
from depthbench.nn.model import Model, ModelConfig
from tests.contract.variants import DEFAULTS, VARIANTS
from tests.oracles import GQA, config_of, random_model, tokens_of

LENGTH = 12
PADDING = torch.tensor([0, 2, 5])
PAIRS = [
    pytest.param(
        design,
        backbone,
        id=f"{label}-{backbone}",
        # every design on every backbone, and every option on one of them, in the short run
        marks=[] if backbone == "dense" or label in DEFAULTS else [pytest.mark.slow],
    )
    for label, design in VARIANTS.items()
    for backbone in BACKBONES
]

every = pytest.mark.parametrize(("design", "backbone"), PAIRS)


def refusal_of(config: ModelConfig) -> str | None:
    """Why a design and a backbone do not go together, if they do not."""
    try:
        Model.on_meta(config)
    except DepthbenchError as error:
        return str(error)
    return None


def model_of(design: DesignConfig, backbone: str) -> Model:
    """A random float64 model; a pair that refuses itself by name is skipped."""
    config = config_of(design, GQA, name=backbone)
    refusal = refusal_of(config)
    if refusal is not None:
        assert design.name in refusal
        assert backbone in refusal
        pytest.skip(refusal)
    return random_model(config)


def pieces_of(sizes: tuple[int, ...]) -> Iterator[slice]:
    """Runs of positions, the last one up to the end."""
    start = 0
    for size in sizes:
        yield slice(start, start + size)
        start += size
    yield slice(start, LENGTH)


def stepped(model: Model, tokens: Tensor, sizes: tuple[int, ...], cache: Cache) -> Tensor:
    """Logits of all positions, from steps of these sizes and one of what is left."""
    return torch.cat([model.step(tokens[:, piece], cache) for piece in pieces_of(sizes)], dim=1)


def assert_same_logits(actual: Tensor, expected: Tensor) -> None:
    """To ten digits of the largest."""
    assert actual.shape == expected.shape
    assert (actual - expected).abs().max() <= 1e-10 * expected.abs().max()


@every
def test_steps_give_the_logits_of_the_forward(design: DesignConfig, backbone: str) -> None:
    """One token at a time, in pieces, and at once; what an earlier cache saw is nothing to it."""
    model = model_of(design, backbone)
    tokens, others = (tokens_of(GQA, length=LENGTH, seed=seed) for seed in (1, 2))
    with torch.no_grad():
        expected = model(tokens)
        model.step(others, model.cache(batch=2, capacity=LENGTH))
        for sizes in ((1,) * (LENGTH - 1), (3, 1, 5), ()):
            cache = model.cache(batch=2, capacity=LENGTH)
            assert_same_logits(stepped(model, tokens, sizes, cache), expected)


@every
def test_padding_on_the_left_changes_no_logits(design: DesignConfig, backbone: str) -> None:
    """Of the forward, and of steps whose first is all padding for one sequence."""
    model = model_of(design, backbone)
    tokens = tokens_of(GQA, batch=3, length=LENGTH)
    with torch.no_grad():
        whole = model(tokens, padding=PADDING)
        steps = stepped(model, tokens, (3, 1, 5), model.cache(3, LENGTH, padding=PADDING))
        for row, edge in enumerate(PADDING.tolist()):
            alone = model(tokens[row : row + 1, edge:])
            for logits in (whole, steps):
                assert_same_logits(logits[row : row + 1, edge:], alone)


@every
def test_padding_is_not_read(design: DesignConfig, backbone: str) -> None:
    """Other tokens there, other logits nowhere."""
    model = model_of(design, backbone)
    tokens = tokens_of(GQA, batch=3, length=LENGTH)
    outside = torch.arange(LENGTH) < PADDING[:, None]
    other = torch.where(outside, (tokens + 1) % GQA.vocab, tokens)
    with torch.no_grad():
        whole, same = model(tokens, padding=PADDING), model(other, padding=PADDING)
    assert_same_logits(same[~outside], whole[~outside])


@every
def test_bytes_are_those_of_keys_and_values_and_what_else_is_stated(
    design: DesignConfig, backbone: str
) -> None:
    """All allocated at once: nothing grows with what is stored."""
    model = model_of(design, backbone)
    cache = model.cache(batch=2, capacity=LENGTH, dtype=torch.float32)
    stated = cache.bytes
    keys_and_values = 2 * GQA.layers * GQA.kv_heads * GQA.head_dim * LENGTH * 2 * 4
    attention = [memory for memory in cache.branches if isinstance(memory, KeyValues)]
    others = [memory for memory in cache.branches if not isinstance(memory, KeyValues)]
    if others.count(None) == len(others):
        assert bytes_of(attention) == keys_and_values
    designs = bytes_of([*cache.connections, cache.design])
    assert stated == bytes_of(attention) + bytes_of(others) + designs
    model.step(tokens_of(GQA, length=LENGTH), cache)
    assert cache.bytes == stated


def bytes_of(memories: list[KeyValues] | list[Memory | None]) -> int:
    tensors = [t for memory in memories if memory is not None for t in memory.tensors()]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_last_leaves_the_other_positions_out(backbone: str) -> None:
    model = random_model(config_of("prenorm", GQA, name=backbone))
    tokens = tokens_of(GQA, length=LENGTH)
    with torch.no_grad():
        expected = model(tokens)[:, -1:]
    logits = model.step(tokens, model.cache(2, LENGTH), last=True)
    assert_same_logits(logits, expected)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_full_cache_and_another_batch_size_are_one_line_each(backbone: str) -> None:
    model = random_model(config_of("prenorm", GQA, name=backbone))
    tokens = tokens_of(GQA, length=4)
    cache = model.cache(batch=2, capacity=6)
    model.step(tokens, cache)
    with pytest.raises(DepthbenchError) as full:
        model.step(tokens[:, :3], cache)
    assert str(full.value) == (
        "3 more tokens behind 4 exceed the cache's capacity of 6. Make one with room for 7"
    )
    with pytest.raises(DepthbenchError) as other:
        model.step(tokens[:1, :1], cache)
    assert str(other.value) == (
        "tokens of 1 sequences, but the cache is for 2. "
        "Make one with model.cache(batch=1, capacity=...)"
    )
    assert cache.length == 4
    model.step(tokens[:, :2], cache)
    assert cache.length == 6


@pytest.mark.parametrize("padding", [[0, 0, 0], [0, 6], [-1, 0]])
def test_padding_that_fits_no_cache(padding: list[int]) -> None:
    model = random_model(config_of("prenorm"))
    with pytest.raises(DepthbenchError, match=r"for each of 2 sequences, 0 to 5 tokens"):
        model.cache(batch=2, capacity=6, padding=torch.tensor(padding))
