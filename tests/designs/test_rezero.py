"""ReZero: ``h ← h + a F(h)``, ``a = 0`` at the start, no norm in the blocks."""

import torch
from torch import Tensor, nn

from depthbench.cost.flops import count_flops
from depthbench.nn.count import count_parameters
from depthbench.nn.model import Model
from tests.oracles import GQA, Oracle, assert_equation, config_of, tokens_of


def equation(o: Oracle, h: Tensor) -> Tensor:
    for site in range(o.shape.sites):
        h = h + o.own(site, "factor") * o.branch(site, h)
    return h


def test_logits_and_gradients() -> None:
    assert_equation(config_of("rezero"), equation)


def test_start_is_the_identity_and_only_factors_and_ends_get_a_gradient() -> None:
    model = Model.build(config_of("rezero"), seed=0, dtype=torch.float64)
    tokens = tokens_of(GQA)
    logits = model(tokens)
    assert torch.equal(logits, model(tokens, program=[]))
    nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
    moved = {n for n, p in model.named_parameters() if p.grad is not None and p.grad.any()}
    factors = {n for n, _ in model.named_parameters() if n.endswith(".factor")}
    assert len(factors) == 6
    assert moved == factors | {"embed.weight", "final_norm.gain", "head.weight"}


def test_blocks_have_no_norm() -> None:
    names = [name for name, _ in Model.on_meta(config_of("rezero")).named_parameters()]
    assert [name for name in names if "norm" in name] == ["final_norm.gain"]
    assert count_parameters(config_of("rezero")).own == 6 - 6 * 32


def test_stated_sums() -> None:
    """One weighted term a site."""
    assert count_flops(config_of("rezero"), 10).own_sums == 2 * 10 * 32 * 6
