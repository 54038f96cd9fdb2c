"""Operations counted from the modules, against torch's counter and by hand (CASES 32, 33)."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from depthbench.cost.flops import count_flops
from depthbench.nn.count import count_parameters
from depthbench.nn.kernels import plain_kernels
from depthbench.nn.model import Model, ModelConfig
from depthbench.shapes import Shape

LENGTH = 16
DENSE = Shape(layers=3, width=32, heads=4, kv_heads=4, ffn=88, vocab=99)
GROUPED = Shape(layers=2, width=48, heads=6, kv_heads=2, ffn=64, vocab=50)


def config(shape: Shape, design: str = "prenorm") -> ModelConfig:
    return ModelConfig.parse({"shape": shape, "design": design})


@pytest.mark.parametrize("shape", [DENSE, GROUPED])
def test_equal_to_torchs_counter_under_the_math_kernel(shape: Shape) -> None:
    model = Model.build(config(shape), seed=0)
    tokens = torch.zeros(1, LENGTH, dtype=torch.long)
    with sdpa_kernel(SDPBackend.MATH), plain_kernels(), FlopCounterMode(display=False) as counter:
        model(tokens)
    ours = count_flops(config(shape), LENGTH)
    # torch's counter ignores causality: it sees the whole square of scores, twice the causal half
    assert counter.get_total_flops() == ours.forward + ours.attention


def test_by_hand() -> None:
    flops = count_flops(config(GROUPED), LENGTH)
    d, f, keys = 48, 64, 2 * 8
    per_block = 2 * d * d + 2 * d * keys + 3 * d * f
    assert flops.projections == 2 * LENGTH * 2 * per_block
    assert flops.attention == 2 * LENGTH**2 * 2 * 6 * 8
    assert flops.head == 2 * LENGTH * d * 50
    assert flops.training_step == 3 * (flops.projections + flops.attention + flops.head)


def test_the_embedding_look_up_is_no_product_and_the_head_is_one() -> None:
    small, large = GROUPED, GROUPED.model_copy(update={"vocab": 51})
    more = count_flops(config(large), LENGTH).forward - count_flops(config(small), LENGTH).forward
    assert more == 2 * LENGTH * 48


def test_a_designs_own_projection_counts() -> None:
    flops = count_flops(config(GROUPED, "moda"), LENGTH)
    stored, depth = 2 * LENGTH * 2 * 48 * 16, 2 * 2 * LENGTH * 48 * 2
    assert flops.own_products == stored + depth
    assert flops.projections == count_flops(config(GROUPED), LENGTH).projections


@pytest.mark.parametrize("design", ["prenorm", "hc", "moda"])
def test_embedding_and_head_are_counted_once_each(design: str) -> None:
    counts = count_parameters(config(GROUPED, design))
    model = Model.build(config(GROUPED, design), seed=0)
    assert counts.embedding_and_head == 2 * 50 * 48
    assert counts.total == sum(p.numel() for p in model.parameters())
    assert counts.total == counts.backbone + counts.embedding_and_head + counts.own
