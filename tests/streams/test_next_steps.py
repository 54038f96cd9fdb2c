"""What a verdict says to do next, and who is the main stream."""

import pytest

from depthbench.probes.huggingface import HuggingFaceSubject
from depthbench.probes.lab import Alone, Lab
from depthbench.probes.walk import Limits
from depthbench.shapes import Shape
from depthbench.streams.evidence import Case, Evidence
from depthbench.streams.flat import Validation
from depthbench.streams.merge.plan import pairs_of
from depthbench.streams.sample import Sample, SampleConfig
from depthbench.streams.verdict import Verdict
from tests.probes.tiny import tiny
from tests.streams.planted import SHAPE, lab_of, noisy, random_rows, tied

FLAT = Validation(losses=(2.0,) * 5, wanted=5)
DOMAINS = ("a", "b", "c")


def case(stream: int, whole: float, slope: float | None = 0.1, main: int = 0) -> Case:
    return Case(
        stream=stream,
        main=main,
        changes=(whole, whole),
        by_domain={},
        whole=whole,
        hard=(whole, whole),
        slope=None if stream == main else slope,
        slope_error=None if stream == main or slope is None else 0.01,
        linear=False,
        pairs={},
    )


def evidence(
    *wholes: float, seeds: int = 3, shared: bool = True, slope: float | None = 0.1
) -> Evidence:
    cases = tuple(case(n, whole, slope) for n, whole in enumerate(wholes))
    return Evidence(cases=cases, seeds=seeds, domains=DOMAINS, shared=shared)


def lab_with(layers: int) -> Lab:
    shape = Shape(**(SHAPE.model_dump() | {"layers": layers}))
    return lab_of(noisy("hc", shape), random_rows(8, 40))


def said(lab: Lab, found: Evidence | None) -> tuple[str, list[str]]:
    """The headline, and what is next."""
    words = Verdict(evidence=found, validation=FLAT).run(lab).words
    return words[0], [one for one in words if one.startswith("Next")]


def test_a_stream_that_can_go_is_merged_into_the_main_one_by_a_whole_command() -> None:
    head, after = said(lab_with(3), evidence(0.5, 0.001, 0.4, 0.3))
    assert head == "1 of 4 streams can be merged: 1."
    [words] = after
    command = words.partition(": depthbench streams ")[2]
    assert command == "merge planted --pairs 1:0 --way weight --out smaller"


def test_copies_name_their_pairs() -> None:
    lab = lab_of(tied(noisy("hc"), 1, 3), random_rows(8, 40))
    _, after = said(lab, None)
    assert after[-1] == (
        "Next: depthbench streams merge planted --pairs 3:1 --way copies --out smaller"
    )
    assert pairs_of("3:1", 4) == {3: 1}


def test_what_is_missing_comes_with_a_command_that_brings_it() -> None:
    lab = lab_with(3)
    head, after = said(lab, None)
    assert head == "No verdict yet: no ablation of every stream over all blocks."
    assert after == ["Next: depthbench streams diagnose planted"]
    head, after = said(lab, evidence(0.5, 0.1, 0.4, 0.3, shared=False, slope=None))
    assert head == "No verdict yet: what streams share is not measured."
    [words] = after
    assert words.endswith(": depthbench streams diagnose planted")
    head, after = said(lab, evidence(0.5, 0.1, 0.4, 0.3, slope=None))
    assert head == "No verdict yet: no mutual information at three depths behind the first."
    [words] = after
    assert words.endswith(": depthbench streams diagnose planted --depths 4")
    head, after = said(lab, evidence(0.5, 0.1, 0.4, 0.3, seeds=1))
    assert head == "No verdict yet: too few seeds: re-trained with 1 of 3."
    [words] = after
    assert words.endswith(": depthbench streams ablate planted --retrain --seeds 3")


def test_two_blocks_are_too_few_for_a_slope_however_many_depths_are_asked_for() -> None:
    head, after = said(lab_with(2), evidence(0.5, 0.1, 0.4, 0.3, slope=None))
    assert head == (
        "No verdict yet: mutual information by depth needs 3 blocks or more, the model has 2."
    )
    assert after == []


@pytest.mark.parametrize("layers", [1, 3, 4, 7])
def test_as_many_depths_are_looked_at_as_were_asked_for(layers: int) -> None:
    lab = lab_with(layers)
    for depths in range(2, 10):
        found = Sample(lab, SampleConfig(tokens=256, depths=depths)).depths
        assert len(found) == min(depths, layers + 1)
        assert (found[0], found[-1]) == (0, layers)
        steps = {one - other for one, other in zip(found[1:], found, strict=False)}
        assert max(steps) - min(steps) <= 1


def test_a_model_that_cannot_be_trained_on_is_not_told_to_be() -> None:
    subject = HuggingFaceSubject(tiny("deepseek_v4"), "v4")
    text = lab_of(noisy("hc"), random_rows(8, 40, vocab=subject.facts.vocab)).text
    lab = Lab(subject, text, Alone(subject, text, Limits()))
    words = Verdict(evidence=evidence(0.5, 0.1, 0.4, 0.3, seeds=0), validation=FLAT).run(lab).words
    assert words[0].startswith("No verdict yet: not re-trained: only models of this package")
    assert words[-1].startswith("This model cannot be trained on here: the second and the third")
    assert not any("--retrain" in one or "merge" in one for one in words)


def test_the_main_stream_of_a_model_that_is_better_without_any() -> None:
    words = Verdict(evidence=evidence(-0.001, -0.2, -0.3, -0.1), validation=FLAT).run(lab_with(3))
    assert (
        "Stream 0 is held to be the main one, though the loss grows without none: without it it "
        "falls least (-0.10%)."
    ) in words.words
    words = Verdict(evidence=evidence(0.5, 0.1, 0.4, 0.3), validation=FLAT).run(lab_with(3))
    assert "Stream 0 is the main one: without it the loss grows most (+50.00%)." in words.words
    assert [words.number(f"free_{n}").value for n in range(4)] == [0.0, 0.0, 0.0, 0.0]
