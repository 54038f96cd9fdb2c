"""The ledger against counters and against the bytes of real tensors (CASES 32 to 34)."""

import gc
from collections import defaultdict

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from depthbench.cost.flops import count_flops
from depthbench.cost.ledger import cache_of, cost_of, ledger_of, stage_of
from depthbench.cost.passes import state_bytes
from depthbench.designs import REGISTRY
from depthbench.errors import DepthbenchError
from depthbench.families import FAMILIES, family
from depthbench.nn.block import Block
from depthbench.nn.kernels import plain_kernels
from depthbench.nn.model import Model, ModelConfig
from depthbench.nn.packed import tensors_in
from depthbench.shapes import Shape

LENGTH, BATCH = 24, 2
SHAPE = Shape(layers=2, width=48, heads=6, kv_heads=2, ffn=64, vocab=50)
BACKBONES = ("dense", "moe", "hybrid")
REFUSED = {("moda", "hybrid")}
"""Half of a hybrid's site does not look over depth."""
QUICK = ("prenorm", "hc", "moda")
"""Designs that meet every backbone in the quick tests; the others meet theirs in the slow ones."""
CASES = [
    pytest.param(
        design,
        backbone,
        marks=() if backbone == "dense" or design in QUICK else pytest.mark.slow,
    )
    for design in REGISTRY
    for backbone in BACKBONES
    if (design, backbone) not in REFUSED
]


def config(design: str, backbone: object = "dense", shape: Shape = SHAPE) -> ModelConfig:
    return ModelConfig.parse({"shape": shape, "design": design, "backbone": backbone})


@pytest.mark.parametrize(("design", "backbone"), CASES)
def test_products_of_a_run_are_those_that_the_modules_state(design: str, backbone: str) -> None:
    one = config(design, backbone)
    stage = stage_of(one, "float32", fast=False)
    found: dict[str, int] = defaultdict(int)
    for kernel in stage.forward(BATCH, LENGTH).kernels:
        found[kernel.kind] += kernel.flops
    stated = count_flops(one, LENGTH)
    # attention in products of its own, as over depth, fills the whole square of scores
    counted = found["product"] + 2 * found["attention"]
    products = stated.projections + stated.head + stated.own_products + 2 * stated.attention
    scan = _scans(one) if backbone == "hybrid" else 0
    assert counted == BATCH * (products - scan)


def _scans(one: ModelConfig) -> int:
    """Operations of state-space branches that are no products to torch."""
    with FlopCounterMode(display=False) as counter:
        tokens = torch.zeros(1, LENGTH, dtype=torch.long)
        with sdpa_kernel(SDPBackend.MATH), plain_kernels():
            Model.build(one, seed=0)(tokens)
    stated = count_flops(one, LENGTH)
    products = stated.projections + stated.head + stated.own_products + 2 * stated.attention
    return products - counter.get_total_flops()


@pytest.mark.parametrize("design", REGISTRY)
def test_the_state_is_the_bytes_of_real_tensors(design: str) -> None:
    model = Model.build(config(design), seed=0)
    sizes: list[int] = []
    for block in model.blocks:
        assert isinstance(block, Block)
        block.register_forward_hook(lambda _, __, state: sizes.append(_bytes(state)))
    tokens = torch.zeros(BATCH, LENGTH, dtype=torch.long)
    with torch.no_grad(), plain_kernels():
        model(tokens)
    stage = stage_of(config(design), "float32", fast=False)
    assert stage.forward(BATCH, LENGTH).state == max(sizes)


def _bytes(state: object) -> int:
    """Of every tensor that can be told apart by where it is and what it shows."""
    seen = {
        (one.data_ptr(), one.shape, one.stride()): one.numel() * one.element_size()
        for one in tensors_in(state)
    }
    return sum(seen.values())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("design", ["prenorm", "moda", "cascade", "momentum", "resi_dual"])
def test_the_cache_is_the_bytes_of_real_tensors(design: str, dtype: str) -> None:
    one = config(design)
    model = Model.build(one, seed=0, dtype=getattr(torch, dtype))
    cache = model.cache(BATCH, LENGTH)
    kept = [tensor for memory in cache.memories() for tensor in memory.tensors()]
    found = cache_of(stage_of(one, dtype, fast=False), BATCH, LENGTH)
    assert found.total == sum(tensor.untyped_storage().nbytes() for tensor in kept)
    size = {"float32": 4, "bfloat16": 2}[dtype]
    # two of six heads hold keys and values, each 8 wide
    assert found.kv_bytes == 2 * SHAPE.layers * 2 * 8 * LENGTH * BATCH * size


@pytest.mark.parametrize("design", ["prenorm", "hc", "attnres"])
def test_what_a_forward_keeps_is_what_autograd_holds(design: str) -> None:
    one = config(design)
    model = Model.build(one, seed=0)
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage
        return tensor

    tokens = torch.zeros(BATCH, LENGTH, dtype=torch.long)
    gc.collect()
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        logits = model(tokens).flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(logits, tokens.flatten())
    del logits
    real = sum(storage.nbytes() for storage in kept.values())
    stage = stage_of(one, "float32", fast=True)
    step, recomputed = (
        cost_of(stage.train(BATCH, LENGTH, torch.float32, checkpointing))
        for checkpointing in (False, True)
    )
    assert loss.requires_grad
    # the tokens themselves, tables of positions and the loss are a few hundred numbers
    assert step.kept_bytes == pytest.approx(real, rel=0.02)
    assert recomputed.kept_bytes < 0.75 * step.kept_bytes
    assert recomputed.total.flops > step.total.flops


def test_a_tied_head_is_counted_once_in_memory_and_fully_in_flops() -> None:
    tied = ledger_of(config("prenorm", {"name": "dense", "tied_head": True}), context=LENGTH)
    own = ledger_of(config("prenorm"), context=LENGTH)
    matrix = SHAPE.vocab * SHAPE.width
    assert own.parameters.total - tied.parameters.total == matrix
    assert own.memory.weights - tied.memory.weights == 4 * matrix
    assert own.memory.optimizer - tied.memory.optimizer == 2 * 4 * matrix
    assert own.prefill.total.flops == tied.prefill.total.flops
    assert own.prefill.parts["head"].flops == 2 * matrix
    # the look-up reads rows and multiplies nothing
    assert own.prefill.parts["embedding"].flops == 0


def test_parts_add_up_and_the_decoded_token_is_counted_by_hand() -> None:
    found = ledger_of(config("prenorm"), context=LENGTH, batch=BATCH)
    for one in (found.prefill, found.decode):
        assert sum(part.flops for part in one.parts.values()) == one.total.flops
        assert sum(part.bytes for part in one.parts.values()) == one.total.bytes
        assert sum(part.kernels for part in one.parts.values()) == one.total.kernels
    d, keys, layers = SHAPE.width, 2 * 8, SHAPE.layers
    block = 2 * d * d + 2 * d * keys + 3 * d * SHAPE.ffn
    assert found.decode.parts["projections"].flops == 2 * BATCH * layers * block
    assert found.decode.parts["attention"].flops == 4 * BATCH * layers * (LENGTH + 1) * d
    norms = (2 * layers + 1) * d
    once = layers * block + norms + SHAPE.vocab * d + BATCH * d
    assert found.decode.weight_bytes == 4 * once
    whole = found.decode.total
    assert whole.intensity == whole.flops / whole.bytes
    assert found.decode.peak_bytes > found.memory.weights + found.cache.total


@pytest.mark.parametrize("name", FAMILIES)
def test_published_shapes(name: str) -> None:
    for shape in family(name):
        flops = {one: count_flops(config(one, shape=shape), 4096) for one in ("hc", "mhc")}
        size = 4096 * shape.width * shape.layers
        assert flops["hc"].own / size == pytest.approx(192, rel=0.02)
        assert flops["mhc"].own / size == pytest.approx(480, rel=0.02)
        assert flops["hc"].attention == 2 * 4096**2 * shape.layers * shape.width


def test_prefill_and_keys_of_the_published_extremes() -> None:
    shallow, deep = family("400m")[0], family("400m")[-1]
    found = [count_flops(config("prenorm", shape=one), 4096) for one in (shallow, deep)]
    heads = [2 * one.vocab * one.width for one in (shallow, deep)]
    # logits of the last position alone
    terms = [(f.projections + f.attention + h) / 1e12 for f, h in zip(found, heads, strict=True)]
    assert terms[0] == pytest.approx(3.0, abs=0.05)
    assert 4.3 <= terms[1] <= 4.4
    caches = [Model.on_meta(config("prenorm", shape=one)).cache(1, 4096).bytes
              for one in (shallow, deep)]  # fmt: skip
    assert caches[1] / caches[0] == pytest.approx(2.30, abs=0.005)


def test_kernels_and_state_of_designs() -> None:
    plain = ledger_of(config("prenorm"), context=LENGTH)
    streams = ledger_of(config("hc"), context=LENGTH)
    sources = ledger_of(config("attnres"), context=LENGTH)
    one = LENGTH * SHAPE.width * 4
    assert plain.prefill.state_bytes == one
    assert streams.prefill.state_bytes == 4 * one
    assert streams.decode.total.kernels > plain.decode.total.kernels
    assert sources.prefill.state_bytes >= (2 * SHAPE.layers + 1) * one


def test_an_unknown_dtype_is_named() -> None:
    with pytest.raises(DepthbenchError, match="unknown dtype 'bfloat', did you mean 'bfloat16'"):
        ledger_of(config("prenorm"), context=LENGTH, dtype="bfloat")


def test_a_pass_does_not_depend_on_the_one_before() -> None:
    stage = stage_of(config("hc"), "float32", fast=True)
    first = stage.prefill(BATCH, LENGTH)
    stage.train(BATCH, LENGTH, torch.float32, checkpointing=False)
    again = stage.prefill(BATCH, LENGTH)
    assert first.kernels == again.kernels
    assert cost_of(first).total == cost_of(again).total
    assert first.peak == again.peak
    assert state_bytes((torch.zeros(3), torch.zeros(3))) == 24


@pytest.mark.parametrize("design", ["prenorm", "hc", "attnres"])
def test_the_run_multiplies_what_is_stated(design: str) -> None:
    found = ledger_of(config(design), context=LENGTH, batch=BATCH)
    assert found.excess == pytest.approx(1.0)
    stated = found.stated
    last = 2 * SHAPE.vocab * SHAPE.width
    assert found.stated_prefill == BATCH * (
        stated.projections + stated.attention + stated.own + last
    )


def test_attention_in_products_of_its_own_is_no_projection_and_fills_the_square() -> None:
    found = ledger_of(config("moda"), context=LENGTH)
    parts, stated = found.prefill.parts, found.stated
    assert parts["projections"].flops == stated.projections
    # the second block sees two entries over depth, and works out the whole square of its scores
    half = stated.attention // SHAPE.layers
    assert parts["attention"].flops == 3 * half + 4 * LENGTH * SHAPE.width * 2
    run = stated.projections + parts["attention"].flops
    assert found.excess == pytest.approx(run / (stated.projections + stated.attention))
