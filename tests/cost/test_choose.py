"""Choosing under limits, with candidates whose numbers are known."""

import pytest

from depthbench.cost.candidates import Candidate, Conditions
from depthbench.cost.choose import Choice, ChooseConfig, Limits, choose, pareto_front
from depthbench.cost.choose_words import sentences
from depthbench.cost.devices import find_device
from tests.cost.made import made

DEEP = made("deep", loss=2.00, params=4000, kv=400, tpot=0.040, memory=4 * 2**30)
MIDDLE = made("middle", loss=2.10, params=2000, kv=800, tpot=0.020, memory=2 * 2**30)
WIDE = made("wide", loss=2.20, params=3000, kv=200, tpot=0.010, memory=3 * 2**30)
SMALL = made("small", loss=2.50, params=1000, kv=300, tpot=0.015, memory=2**30)
ALL = (SMALL, WIDE, DEEP, MIDDLE)


def chosen(limits: Limits, candidates: tuple[Candidate, ...] = ALL) -> Choice:
    where = Conditions(device=find_device("h100"), context=4096)
    return choose(candidates, limits, where)


def test_without_limits_the_least_loss() -> None:
    choice = chosen(Limits())
    assert choice.chosen == "deep"
    assert [one.name for one in choice.candidates] == ["deep", "middle", "wide", "small"]
    assert choice.prices == choice.conflicts == choice.relaxations == ()


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        (Limits(params=3999), "middle"),
        (Limits(params=4000), "deep"),
        (Limits(kv=399), "wide"),
        (Limits(tpot=0.039), "middle"),
        (Limits(tpot=0.019), "wide"),
        (Limits(memory=2**30), "small"),
        (Limits(params=3500, kv=500), "wide"),
        (Limits(params=2500, kv=500), "small"),
    ],
)
def test_limits_that_exclude_the_best_pick_the_next(limits: Limits, name: str) -> None:
    choice = chosen(limits)
    assert choice.chosen == name
    assert not limits.broken_by(choice.named(name))


def test_what_each_limit_costs_while_the_others_hold() -> None:
    choice = chosen(Limits(params=3500, kv=500, tpot=1.0))
    assert choice.chosen == "wide"
    params, kv, tpot = choice.prices
    assert (params.limit, params.without, params.needs) == ("params", "deep", 4000)
    assert params.bits_per_byte == pytest.approx(0.20)
    assert (kv.limit, kv.without, kv.needs) == ("kv", "middle", 800)
    assert kv.bits_per_byte == pytest.approx(0.10)
    assert (tpot.without, tpot.bits_per_byte) == ("wide", 0.0)
    words = sentences(choice)
    assert (
        "The limit KV cache ≤ 500 B costs 0.100 bits per byte: without it middle could be had "
        "(800 B)." in words
    )
    assert "The limit time per output token ≤ 1 s costs nothing: without it the choice is the " in (
        " ".join(words)
    )


def test_limits_that_exclude_the_same_cost_nothing_alone_but_together() -> None:
    choice = chosen(Limits(params=3500, tpot=0.030))
    assert choice.chosen == "middle"
    assert [one.bits_per_byte for one in choice.prices] == [0.0, 0.0]
    assert choice.unlimited == "deep"
    assert (
        "All limits together cost 0.100 bits per byte: without any the choice is deep."
        in sentences(choice)
    )


def test_an_impossible_limit_says_which_and_by_how_much() -> None:
    choice = chosen(Limits(params=800, tpot=0.020))
    assert choice.chosen is None
    (conflict,) = choice.conflicts
    assert conflict.limits == ("params",)
    assert (conflict.least, conflict.candidate) == (1000, "small")
    assert conflict.factor == pytest.approx(1.25)
    assert choice.relaxations[0].to == {"params": 1000}
    first, second, *_ = sentences(choice)
    assert first == (
        "No candidate has parameters ≤ 800: the least in the study is 1,000 (small), 25 % above "
        "the limit."
    )
    assert second.startswith("Raise parameters to 1,000 (25 % above the limit) for small (2.500")


def test_each_possible_alone_but_not_together() -> None:
    choice = chosen(Limits(params=2500, kv=250))
    assert choice.chosen is None
    assert [one.limits for one in choice.conflicts] == [("params", "kv")]
    kv, params = choice.relaxations[:2]
    # params 3000/2500 = 1.2 keeps wide; kv 300/250 = 1.2 keeps small
    assert {
        next(iter(one.to)): (next(iter(one.to.values())), one.candidate) for one in (kv, params)
    } == {
        "params": (3000, "wide"),
        "kv": (300, "small"),
    }
    assert kv.factor == params.factor == pytest.approx(1.2)
    assert (
        sentences(choice)[0] == "No candidate has parameters ≤ 2,500 and KV cache ≤ 250 B together."
    )


def test_the_least_raise_comes_first() -> None:
    choice = chosen(Limits(params=2500, kv=290))
    assert [one.candidate for one in choice.relaxations] == ["small", "wide"]
    assert [one.factor for one in choice.relaxations] == pytest.approx([300 / 290, 1.2])


def test_two_impossible_limits_are_both_named() -> None:
    choice = chosen(Limits(params=500, kv=100))
    assert [one.limits for one in choice.conflicts] == [("params",), ("kv",)]
    assert [one.factor for one in choice.conflicts] == pytest.approx([2.0, 2.0])
    (raised,) = choice.relaxations
    # small asks for 2 and 3 times the limits, deep for 8 and 4
    assert (raised.candidate, raised.factor) == ("small", pytest.approx(3.0))
    assert raised.to == {"params": 1000, "kv": 300}


def test_three_that_conflict_only_together() -> None:
    a = made("a", loss=1, params=2, kv=1, tpot=1)
    b = made("b", loss=1, params=1, kv=2, tpot=1)
    c = made("c", loss=1, params=1, kv=1, tpot=2)
    choice = chosen(Limits(params=1, kv=1, tpot=1), (a, b, c))
    assert [one.limits for one in choice.conflicts] == [("params", "kv", "tpot")]
    assert len(choice.relaxations) == 3


def test_the_front_holds_what_nothing_beats_in_all_three() -> None:
    # middle is worse than deep in KV, but faster; small is beaten by wide in all three
    assert [one.name for one in pareto_front(ALL)] == ["deep", "middle", "wide"]
    twin = made("twin", loss=2.00, params=4000, kv=400, tpot=0.040)
    assert [one.name for one in pareto_front((*ALL, twin))] == ["deep", "twin", "middle", "wide"]
    better = made("better", loss=2.00, kv=399, tpot=0.040)
    assert "deep" not in {one.name for one in pareto_front((*ALL, better))}


def test_a_clear_lead_over_three_seeds_wins() -> None:
    choice = chosen(Limits())
    assert choice.comparison is not None
    assert choice.winner == choice.comparison.winner == "deep"
    # s = 0.01 and three seeds each: sqrt(2 · 0.01² / 3)
    assert choice.comparison.standard_error == pytest.approx(0.01 * (2 / 3) ** 0.5)
    assert choice.ties == ()
    assert "deep wins: it leads middle by 0.100 bits per byte" in " ".join(sentences(choice))


def test_a_lead_within_the_spread_is_a_tie() -> None:
    close = made("close", loss=2.01, tpot=0.5)
    choice = chosen(Limits(), (*ALL, close))
    assert choice.chosen == "deep"
    assert choice.comparison is not None
    assert choice.comparison.winner is None
    assert choice.ties == ("close",)
    words = " ".join(sentences(choice))
    assert "smaller than the spread between seeds, a tie." in words
    assert "Within two standard errors of it: close." in words


def test_a_clear_lead_over_the_second_is_no_win_over_a_wild_third() -> None:
    wild = made("wild", loss=2.15, spread=0.2)
    choice = chosen(Limits(), (*ALL, wild))
    assert choice.comparison is not None
    assert (choice.comparison.winner, choice.winner) == ("deep", None)
    assert choice.ties == ("wild",)
    words = " ".join(sentences(choice))
    assert "deep leads middle by 0.100 bits per byte, but its lead over others is within" in words


def test_one_candidate_with_too_few_seeds_is_enough_for_no_claim() -> None:
    single = made("single", loss=2.3, seeds=1)
    choice = chosen(Limits(), (*ALL, single))
    assert (choice.winner, choice.few) == (None, ("single",))
    assert "1 candidate had fewer than three seeds: no winner" in " ".join(sentences(choice))


@pytest.mark.parametrize("seeds", [1, 2])
def test_with_fewer_than_three_seeds_no_winner_is_claimed(seeds: int) -> None:
    few = tuple(made(one.name, loss=one.bits_per_byte, seeds=seeds) for one in ALL)
    choice = chosen(Limits(), few)
    assert choice.chosen == "deep"
    assert choice.comparison is not None
    assert choice.winner is choice.comparison.winner is None
    words = " ".join(sentences(choice))
    assert f"deep n = {seeds}" in words
    assert "no winner is claimed" in words
    assert ("one seed, which shows a direction" in words.replace("have", "has")) == (seeds == 1)


def test_winners_at_equal_cost_side_by_side() -> None:
    best = made("best", loss=2.0, params=1000, flops=100, seconds=10.0, tpot=0.01)
    rich = made("rich", loss=1.9, params=1040, flops=200, seconds=9.6, tpot=0.05)
    slow = made("slow", loss=1.8, params=1060, flops=104, seconds=99.0, tpot=0.05)
    choice = chosen(Limits(tpot=0.02), (best, rich, slow))
    assert choice.chosen == "best"
    found = {one.budget: (one.winner, one.compared) for one in choice.equals}
    assert found == {
        "parameters": ("rich", 2),
        "training FLOPs": ("slow", 2),
        "training time": ("rich", 2),
    }
    words = " ".join(sentences(choice))
    assert "limits left aside) the best is slow with 104: 1.800 bits per byte, 0.200 less." in words
    wider = choose(
        (best, rich, slow), choice.limits, choice.conditions, config=ChooseConfig(tolerance=0.06)
    )
    assert wider.equals[0].winner == "slow"
    alone = chosen(Limits(), (best,))
    assert {one.winner for one in alone.equals} == {"best"}
