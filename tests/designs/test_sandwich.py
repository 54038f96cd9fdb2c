"""Sandwich norm: ``h ← h + N_out(F(N_in(h)))``, and without ``N_in``."""

from torch import Tensor

from depthbench.check.formula import evaluated
from depthbench.designs.sandwich import Sandwich, SandwichConfig
from depthbench.nn.count import count_parameters
from tests.oracles import GQA, Oracle, assert_equation, config_of


def equation(o: Oracle, h: Tensor) -> Tensor:
    for site in range(o.shape.sites):
        y = o.branch(site, o.norm(site, h, "norm_in"))
        h = h + o.norm(site, y, "norm_out")
    return h


def test_logits_and_gradients() -> None:
    assert_equation(config_of("sandwich"), equation)


def behind(o: Oracle, h: Tensor) -> Tensor:
    for site in range(o.shape.sites):
        h = h + o.norm(site, o.branch(site, h), "norm_out")
    return h


def test_norms_behind_the_branches_alone() -> None:
    assert_equation(config_of({"name": "sandwich", "before": False}), behind)


def test_own_parameters_of_both_kinds() -> None:
    """Norms of width 32 at 6 sites; without those in front there are as many as in prenorm."""
    own = {
        before: count_parameters(config_of({"name": "sandwich", "before": before})).own
        for before in (True, False)
    }
    assert own == {True: 6 * 32, False: 0}
    card = Sandwich.card.own
    for before, count in own.items():
        assert evaluated(card, SandwichConfig(before=before), GQA) == count
