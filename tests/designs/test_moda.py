"""MoDA: attention's softmax also runs over what earlier sites stored for the same token."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from depthbench.errors import DepthbenchError
from depthbench.families import family
from depthbench.nn.attention import Attention
from depthbench.nn.branch import Context, Depth, Entry
from depthbench.nn.count import count_parameters
from depthbench.nn.model import Model
from depthbench.nn.rope import rotary_table
from depthbench.shapes import Shape
from tests.oracles import (
    GQA,
    Oracle,
    assert_equal,
    assert_equation,
    config_of,
    random_model,
    tokens_of,
)


def equation_of(turned: bool, postnorm: bool = False) -> Callable[[Oracle, Tensor], Tensor]:
    """The equation; attention stores K before RoPE and V, feed-forward ``W_kv x``, not the last.

    What is stored is made of the branch's input: of ``N(h)``, with ``postnorm`` of ``h``.
    """

    def equation(o: Oracle, h: Tensor) -> Tensor:
        entries: list[tuple[Tensor, Tensor]] = []
        keys, n = o.shape.kv_heads * o.shape.head_dim, o.shape.head_dim
        for site in range(o.shape.sites):
            x = h if postnorm else o.norm(site, h)
            if site % 2 == 0:
                y = o.attention(site, x, entries, turn_entries=turned)
                _, key, value = o.qkv(site, x)
                entries.append((key, value))
            else:
                y = o.swiglu(site, x)
            h = o.norm(site, h + y) if postnorm else h + y
            if site % 2 and site < o.shape.sites - 1:
                stored = x @ o.own(site, "kv.weight").T
                entries.append(
                    (stored[:, :keys].reshape(-1, o.shape.kv_heads, n),
                     stored[:, keys:].reshape(-1, o.shape.kv_heads, n))
                )  # fmt: skip
        return h

    return equation


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    "shape",
    [
        GQA,
        GQA.model_copy(update={"kv_heads": 4}),
        Shape(layers=4, width=32, heads=4, kv_heads=1, ffn=24, vocab=99),
        GQA.model_copy(update={"layers": 1}),
    ],
    ids=["grouped", "multi-head", "one-kv-head", "one-block"],
)
def test_logits_and_gradients(shape: Shape, turned: bool) -> None:
    table = {"name": "moda", "rotate_depth_keys": turned}
    assert_equation(config_of(table, shape), equation_of(turned))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("shape", [GQA, GQA.model_copy(update={"layers": 2})], ids=["L3", "L2"])
def test_post_norm(shape: Shape, turned: bool) -> None:
    table = {"name": "moda", "rotate_depth_keys": turned, "postnorm": True}
    assert_equation(config_of(table, shape), equation_of(turned, postnorm=True))


def test_a_single_post_norm_block_is_one_of_postnorm() -> None:
    shape = GQA.model_copy(update={"layers": 1})
    table = {"name": "moda", "postnorm": True}
    moda, plain = (random_model(config_of(design, shape)) for design in (table, "postnorm"))
    assert_equal(moda(tokens_of(shape)), plain(tokens_of(shape)), "logits")


def test_a_single_block_has_no_depth_entries() -> None:
    """The first attention site is plain, so one block of MoDA is one block of pre-norm."""
    shape = GQA.model_copy(update={"layers": 1})
    moda, plain = (random_model(config_of(name, shape)) for name in ("moda", "prenorm"))
    assert_equal(moda(tokens_of(shape)), plain(tokens_of(shape)), "logits")


@pytest.mark.parametrize("turned", [False, True])
def test_position_drops_out_of_the_depth_logit_only_if_depth_keys_turn(turned: bool) -> None:
    """A sequence that starts at position 5 instead of 0 is attended to alike, or is not."""
    attention = random_model(config_of("prenorm")).blocks[0].attention
    assert isinstance(attention, Attention)
    generator = torch.Generator().manual_seed(0)

    def noise(*axes: int) -> Tensor:
        return torch.randn(axes, generator=generator, dtype=torch.float64)

    x, entry = noise(2, 6, 32), Entry(noise(2, 6, 2, 8), noise(2, 6, 2, 8))
    depth = Depth((entry,), rotated=turned)
    cos, sin = rotary_table(11, 8, 10000.0, torch.device("cpu"), torch.float64)
    early, _ = attention(x, Context(cos[:6], sin[:6]), depth)
    late, _ = attention(x, Context(cos[5:], sin[5:]), depth)
    distance = (early - late).abs().max().item()
    assert distance < 1e-12 if turned else distance > 0.01


@pytest.mark.parametrize("postnorm", [False, True])
def test_published_size(postnorm: bool) -> None:
    """48.2 M more than pre-norm at L = 24, d = 1024: ``2 d·kv_heads·head_dim (L - 1)``."""
    (shape,) = (shape for shape in family("400m") if shape.layers == 24)
    assert (shape.width, shape.kv_heads * shape.head_dim, shape.vocab) == (1024, 1024, 50280)
    counts = count_parameters(config_of({"name": "moda", "postnorm": postnorm}, shape))
    plain = count_parameters(config_of("prenorm", shape))
    assert counts.total - plain.total == counts.own == 2 * 1024 * 1024 * 23 == 48_234_496


def test_turned_depth_keys_and_turns_that_lengthen_are_refused() -> None:
    yarn = {"name": "yarn", "factor": 4.0, "length": 16}
    both = {"name": "moda", "rotate_depth_keys": True}
    with pytest.raises(DepthbenchError, match=r"rope_scaling 'yarn': .* 1.14 times as long"):
        Model.on_meta(config_of(both, rope_scaling=yarn))
    Model.on_meta(config_of(both, rope_scaling=yarn | {"attention": 1.0}))
    Model.on_meta(config_of("moda", rope_scaling=yarn))
