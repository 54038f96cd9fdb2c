"""Products of mixing matrices and their effective rank (CASES 6)."""

import math

import pytest
import torch

from depthbench.designs.sinkhorn import sinkhorn_plain
from depthbench.nn.block import Trace
from depthbench.nn.model import Model, ModelConfig
from depthbench.probes.mixing import effective_rank, mixing_product, traced_mixes
from depthbench.shapes import Shape

SHAPE = Shape(layers=3, width=32, heads=4, kv_heads=2, ffn=24, vocab=99)


def test_product_is_in_the_order_of_depth() -> None:
    first, second = torch.randn(2, 4, 4, dtype=torch.float64)
    start = torch.randn(4, 5, dtype=torch.float64)
    # y_j = Σ_i A[i, j] x_i twice
    through = second.T @ (first.T @ start)
    product = mixing_product([first, second])
    torch.testing.assert_close(product.T @ start, through, rtol=1e-12, atol=0.0)


def test_rank_of_known_spectra() -> None:
    permutation = torch.eye(4)[[2, 0, 3, 1]]
    equal = torch.full((4, 4), 0.25)
    half = torch.diag(torch.tensor([1.0, 1.0, 0.0, 0.0]))
    assert effective_rank(permutation).item() == pytest.approx(4.0, abs=1e-12)
    assert effective_rank(permutation, without_mean=True).item() == pytest.approx(3.0, abs=1e-12)
    assert effective_rank(equal).item() == pytest.approx(1.0, abs=1e-12)
    assert effective_rank(equal, without_mean=True).item() == 0.0
    assert effective_rank(half).item() == pytest.approx(2.0, abs=1e-12)


def test_a_long_product_forgets_all_but_the_mean_and_bfloat16_loses_what_is_left() -> None:
    torch.manual_seed(0)
    mixes = [sinkhorn_plain(torch.randn(4, 4, dtype=torch.float64), 400) for _ in range(24)]
    product = mixing_product(mixes)
    values = torch.linalg.svdvals(product)
    assert values[0].item() == pytest.approx(1.0, abs=1e-9)
    assert effective_rank(product).item() == pytest.approx(1.0, abs=1e-3)
    # doubly stochastic matrices commute with centring: centre each, or the product
    centre = torch.eye(4, dtype=torch.float64) - 0.25
    centred = torch.linalg.svdvals(mixing_product([centre @ mix @ centre for mix in mixes]))
    assert 1e-13 < values[1].item() < 1e-6
    assert values[1].item() == pytest.approx(centred[0].item(), rel=1e-2)
    low = mixes[0].bfloat16()
    for mix in mixes[1:]:
        low = low @ mix.bfloat16()
    second = torch.linalg.svdvals(low.double())[1].item()
    assert abs(second - values[1].item()) > 0.5 * values[1].item()


@pytest.mark.parametrize("design", ["hc", "mhc"])
def test_traced_mixes_of_a_model_at_its_start_are_identities(design: str) -> None:
    model = Model.build(ModelConfig.parse({"shape": SHAPE, "design": design}), seed=0)
    trace = Trace()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        model(torch.arange(16).view(1, 16), trace=trace)
    mixes = traced_mixes(trace)
    assert len(mixes) == SHAPE.sites
    product = mixing_product(mixes)
    assert product.dtype == torch.float64
    # mhc's off-diagonal start is sigmoid-small, e^-8 a site before normalisation
    distance = (product - torch.eye(4, dtype=torch.float64)).abs().max().item()
    assert distance < {"hc": 1e-6, "mhc": SHAPE.sites * 3 * math.exp(-8)}[design]


def test_no_matrices_is_an_error() -> None:
    with pytest.raises(ValueError, match="no mixing matrices"):
        mixing_product([])
