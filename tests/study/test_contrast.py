"""When a side is called lower, and in which words."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from depthbench.study.budget import Budget
from depthbench.study.compare import CompareConfig
from depthbench.study.conclude import decide, lead_of
from depthbench.study.contrast import Contrast, LossSlope, Observations, SideResult
from depthbench.study.contrast_words import tell
from depthbench.study.paired import exact, interval
from depthbench.study.shared import SharedStart
from depthbench.study.single import RunConfig
from depthbench.train.health.history import Finding, Kind, Severity

BUDGET = Budget(tokens=512, sequences=4, length=16, parameters=1000, flops_per_token=6000.0)


def side(label: str, bits: Sequence[float], seconds: float | None = 0.01) -> SideResult:
    return SideResult(
        label=label,
        budget=BUDGET,
        learning_rate=3e-3,
        ids={seed: f"{label}{seed}" for seed in range(len(bits))},
        bits_per_byte=dict(enumerate(bits)),
        nats_per_token={seed: math.log(2) * loss for seed, loss in enumerate(bits)},
        standard_deviation=None,
        diverged=(),
        failed=(),
        seconds_per_step=seconds,
    )


def result(
    a: SideResult, b: SideResult, findings: dict[str, dict[int, list[Finding]]] | None = None
) -> Contrast:
    findings = findings or {}
    lead = lead_of(a, b, 0.95)
    slope = LossSlope(steps=4, a={}, b={}, difference=None)
    config = CompareConfig(
        name="it", labels=(a.label, b.label), a=RunConfig(), b=RunConfig(), seeds=(0, 1, 2)
    )
    found = Contrast(
        name="it",
        seeds=config.seeds,
        a=a,
        b=b,
        data_hash="0",
        shared=SharedStart(
            numbers=900, of_a=0.9, of_b=0.9, other_start=(), other_shape=(), only_a=(), only_b=()
        ),
        lead=lead,
        training=None,
        observations=Observations(
            slope=slope, gradient_norm=(), state_variance=(), neighbour_cosine=()
        ),
        verdict=decide(lead),
        machines=(),
        config={},
        finished="",
    )
    return tell(found, config, ["B was narrowed"], [], findings)


def test_a_clear_difference_is_told_with_its_interval() -> None:
    # differences -0.2, -0.3, -0.4: mean -0.3, deviation 0.1, reach 4.303 · 0.1 / sqrt(3) = 0.25
    a, b = side("hc", [3.0, 3.0, 3.0]), side("prenorm", [3.2, 3.3, 3.4])
    found = result(a, b)
    assert found.verdict == "a_lower"
    assert found.sentence == (
        "hc is lower than prenorm by 0.30 (95 % interval 0.05 to 0.55, 3 seeds) bits per byte of "
        "validation loss, more than the noise between seeds (0.115)."
    )
    turned = result(b, a)
    assert turned.verdict == "b_lower"
    assert turned.sentence == found.sentence


def test_an_interval_with_0_shows_no_difference() -> None:
    found = result(side("hc", [3.0, 3.1, 3.2]), side("prenorm", [3.1, 3.1, 3.1]))
    assert found.verdict == "no_difference"
    assert found.sentence == (
        "No difference shown: hc minus prenorm is 0.00 (95 % interval -0.25 to 0.25, 3 seeds) bits "
        "per byte of validation loss: with so many seeds hc may still be lower by 0.25 or higher "
        "by 0.25."
    )


def test_a_difference_within_the_noise_between_seeds_is_no_win() -> None:
    # every pair differs by almost exactly 0.01, but seeds differ by 0.3
    found = result(side("hc", [3.0, 3.3, 3.6]), side("prenorm", [3.0101, 3.31, 3.6099]))
    assert found.lead is not None
    assert found.lead.bits_per_byte.excludes_zero
    assert found.verdict == "no_difference"
    assert "leaves 0 out, but the difference is within the noise between seeds (0.49" in (
        found.sentence
    )


def test_two_seeds_claim_nothing_however_large_the_difference() -> None:
    found = result(side("hc", [1.0, 1.0]), side("prenorm", [3.0, 3.001]))
    assert found.verdict == "too_few_seeds"
    assert found.sentence.startswith("No claim: 2 seeds finished with both, 3 are needed.")
    assert "Not trained yet: seed 2." in found.warnings
    one = result(side("hc", [1.0]), side("prenorm", [3.0]))
    assert one.sentence.endswith("hc minus prenorm: -2 (one seed, no interval) bits per byte.")


def test_only_seeds_that_both_finished_count() -> None:
    a = side("hc", [1.0, 2.0, 3.0, 4.0])
    b = side("prenorm", [1.5, 2.5, 3.5, 4.5]).model_copy(
        update={"bits_per_byte": {0: 1.5, 3: 4.5}, "nats_per_token": {0: 1.0, 3: 3.0}}
    )
    lead = lead_of(a, b, 0.95)
    assert lead is not None
    assert lead.by_seed == {0: -0.5, 3: -0.5}
    assert lead.bits_per_byte == interval([-0.5, -0.5], 0.95)
    assert lead.exact == exact([-0.5, -0.5])
    # both spread over seeds 0 and 3 alone: variance 4.5 each
    assert lead.noise == pytest.approx(2 * math.sqrt((4.5 + 4.5) / 2))


def test_time_and_changes_are_warned_of() -> None:
    found = result(side("a", [3.0] * 3, 0.010), side("b", [3.1] * 3, 0.0112))
    assert found.warnings[0] == "B was narrowed."
    assert found.warnings[1].startswith("Time per step: b 11.2 ms, a 10 ms (b 12 % more)")
    close = result(side("a", [3.0] * 3, 0.010), side("b", [3.1] * 3, 0.0109))
    assert not any("Time" in text for text in close.warnings)
    unknown = result(side("a", [3.0] * 3, None), side("b", [3.1] * 3, 0.02))
    assert not any("Time" in text for text in unknown.warnings)


def test_what_the_health_watch_found_is_counted_by_seeds() -> None:
    def finding(kind: Kind, severity: Severity) -> Finding:
        return Finding(kind=kind, severity=severity, step=1, numbers={}, words="x")

    spike, note = finding("loss_spike", "warning"), finding("gradient_spike", "note")
    found = result(
        side("a", [3.0] * 3),
        side("b", [3.1] * 3),
        {"a": {0: [note]}, "b": {0: [spike, spike], 1: [spike, finding("not_finite", "problem")]}},
    )
    assert found.warnings[-1] == (
        "Health of b: loss spike (2 seeds) and not finite (1 seed); see health.json of its trials."
    )
    assert not any("Health of a" in text for text in found.warnings)


@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("shared_noise", [0.0, 3.0])
def test_equal_sides_are_seldom_told_apart(seeds: int, shared_noise: float) -> None:
    random = np.random.default_rng(seeds)
    claims = 0
    for _ in range(2000):
        common = shared_noise * random.normal(size=seeds)
        a, b = (common + random.normal(size=seeds) for _ in range(2))
        lead = lead_of(side("a", a.tolist()), side("b", b.tolist()), 0.95)
        claims += decide(lead) in ("a_lower", "b_lower")
    # at most the 5 % of the interval alone, whatever the seeds have in common
    assert claims / 2000 <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 2000)


def test_different_sides_are_told_apart() -> None:
    random = np.random.default_rng(0)
    claims = []
    for _ in range(500):
        a, b = random.normal(0, 1, 5), random.normal(5, 1, 5)
        claims.append(decide(lead_of(side("a", a.tolist()), side("b", b.tolist()), 0.95)))
    assert claims.count("a_lower") >= 490
    assert claims.count("b_lower") == 0
