"""What designs state of their own operations, against torch's counter and published totals."""

from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from depthbench.cost.flops import count_flops
from depthbench.designs.base import DesignConfig
from depthbench.nn.kernels import plain_kernels
from depthbench.nn.model import Model, ModelConfig
from depthbench.shapes import Shape
from tests.contract.variants import DEFAULTS, VARIANTS

LENGTH = 16
SHAPE = Shape(layers=3, width=48, heads=6, kv_heads=2, ffn=40, vocab=50)


def config(design: DesignConfig | dict[str, Any]) -> ModelConfig:
    return ModelConfig.parse({"shape": SHAPE, "design": design})


def counted(design: DesignConfig) -> int:
    """Matrix products of one forward, as torch sees them run."""
    model = Model.build(config(design), seed=0)
    tokens = torch.zeros(1, LENGTH, dtype=torch.long)
    plain = sdpa_kernel(SDPBackend.MATH), plain_kernels(), torch.no_grad()
    with plain[0], plain[1], plain[2], FlopCounterMode(display=False) as counter:
        model(tokens)
    return counter.get_total_flops()


@pytest.mark.parametrize("design", VARIANTS.values(), ids=VARIANTS.keys())
def test_stated_products_are_those_that_torch_counts_beyond_prenorm(design: DesignConfig) -> None:
    beyond = counted(design) - counted(DEFAULTS["prenorm"])
    assert count_flops(config(design), LENGTH).own_products == beyond


@pytest.mark.parametrize(("design", "published"), [("hc", 192), ("mhc", 480)])
def test_published_totals_of_streams(design: str, published: int) -> None:
    """FLOPs per token over ``d L``, of four streams (arXiv 2609.32534)."""
    flops = count_flops(config({"name": design}), LENGTH)
    assert flops.own == published * LENGTH * SHAPE.width * SHAPE.layers


def test_sums_are_the_reads_and_the_writes() -> None:
    """Two for each entry of each stream, in the read and in the write of each site."""
    for design in ("hc", "mhc", "mhc_lite"):
        for streams in (1, 3):
            flops = count_flops(config({"name": design, "streams": streams}), LENGTH)
            assert flops.own_sums == 2 * 2 * streams * LENGTH * SHAPE.width * SHAPE.sites
    assert count_flops(config({"name": "frac"}), LENGTH).own_sums == 2 * LENGTH * 48 * 6
    assert count_flops(config({"name": "resi_dual"}), LENGTH).own == 0
