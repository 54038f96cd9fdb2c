"""Attention over time, and over time and depth, against one token and one head at a time."""

import pytest
import torch
from torch import Tensor

from depthbench.nn.attention import Attention, attend_time_and_depth
from depthbench.nn.branch import Context, Depth, Entry
from depthbench.nn.model import Model
from depthbench.nn.rope import rotary_table
from tests.oracles import GQA, Oracle, assert_equal, config_of, random_model

CPU = torch.device("cpu")


def noise(*axes: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(axes, generator=generator, dtype=torch.float64)


def attention_of(kv_heads: int) -> tuple[Model, Attention, Oracle, Context]:
    shape = GQA.model_copy(update={"kv_heads": kv_heads})
    model = random_model(config_of("prenorm", shape))
    attention = model.blocks[0].attention
    assert isinstance(attention, Attention)
    oracle = Oracle({n: p.detach() for n, p in model.named_parameters()}, shape)
    return model, attention, oracle, Context(*rotary_table(7, 8, 10000.0, CPU, torch.float64))


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_over_time(kv_heads: int) -> None:
    _, attention, oracle, context = attention_of(kv_heads)
    x = noise(3, 7, 32)
    expected = torch.stack([oracle.attention(0, sequence) for sequence in x])
    assert_equal(attention(x, context)[0], expected, "attention")


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("turned", [False, True])
def test_over_time_and_depth(kv_heads: int, turned: bool) -> None:
    _, attention, oracle, context = attention_of(kv_heads)
    x = noise(3, 7, 32)
    pairs = [(noise(3, 7, kv_heads, 8, seed=s), noise(3, 7, kv_heads, 8, seed=-s)) for s in (1, 2)]
    depth = Depth(tuple(Entry(k, v) for k, v in pairs), rotated=turned)
    expected = torch.stack(
        [
            oracle.attention(0, x[b], [(k[b], v[b]) for k, v in pairs], turn_entries=turned)
            for b in range(3)
        ]
    )
    assert_equal(attention(x, context, depth)[0], expected, "attention")


def test_no_entries_over_depth_is_attention_over_time() -> None:
    _, attention, _, context = attention_of(2)
    x = noise(3, 7, 32)
    plain, _ = attention(x, context)
    empty, _ = attention(x, context, Depth((), rotated=False))
    torch.testing.assert_close(plain, empty, rtol=1e-12, atol=1e-14)


def test_entry_holds_the_key_before_its_rotation_and_the_value() -> None:
    _, attention, oracle, context = attention_of(2)
    x = noise(3, 7, 32)
    _, entry = attention(x, context, Depth((), rotated=False))
    assert entry is not None
    for b in range(3):
        _, key, value = oracle.qkv(0, x[b])
        assert_equal(entry.key[b], key, "key")
        assert_equal(entry.value[b], value, "value")


def test_time_and_depth_share_one_softmax() -> None:
    """With values all 1 the output is 1: the weights of time and depth add up to 1 together."""
    q, k = noise(1, 5, 4, 8), noise(1, 5, 2, 8, seed=1)
    ones = torch.ones(1, 5, 2, 8, dtype=torch.float64)
    out = attend_time_and_depth(q, k, ones, q, (Entry(noise(1, 5, 2, 8, seed=2), ones),))
    torch.testing.assert_close(out, torch.ones_like(out), rtol=1e-12, atol=0)
