"""Plain: ``h ← F(N(h))``, no residual."""

import torch
from torch import Tensor

from tests.oracles import GQA, Oracle, assert_equation, config_of, random_model, tokens_of


def equation(o: Oracle, h: Tensor) -> Tensor:
    for site in range(o.shape.sites):
        h = o.branch(site, o.norm(site, h))
    return h


def test_logits_and_gradients() -> None:
    assert_equation(config_of("plain"), equation)


def test_nothing_goes_past_a_branch() -> None:
    """With one site's output held, nothing before it matters."""
    model = random_model(config_of("plain"))
    held = torch.randn(2, 6, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def tap(site: int, _: Tensor, y: Tensor) -> Tensor:
        return held if site == 2 else y

    one, other = (model(tokens_of(GQA, seed=seed), tap=tap) for seed in (1, 2))
    assert torch.equal(one, other)
