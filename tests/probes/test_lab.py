"""Measurements: the same bits again, in any order, by anybody; kept and taken up."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from depthbench.designs import REGISTRY as DESIGNS
from depthbench.errors import DepthbenchError
from depthbench.probes import REGISTRY, parse_probes
from depthbench.probes.lens import Lens
from depthbench.probes.own import OwnSubject
from depthbench.probes.result import ProbeResult
from depthbench.probes.run import read_result, run_probes
from depthbench.probes.subject import Subject
from depthbench.probes.weights import hash_of
from tests.probes.small import in_batches, random_own, rows

TEXTS = rows((34, 34, 20, 34))
TEXT = in_batches(TEXTS, 2)
QUICK = "angular,causal,permutation,prune,lens,depth,usefulness"


def subject(design: str = "hc") -> Subject:
    return OwnSubject(random_own(design, 3, width=16), "test")


def data(results: Sequence[ProbeResult]) -> list[Any]:
    """All but times."""
    times = {"at", "seconds"}
    return [{k: v for k, v in one.resolved().items() if k not in times} for one in results]


def test_every_probe_twice_and_in_another_order_gives_the_same_bits() -> None:
    one = subject()
    assert isinstance(one, OwnSubject)
    before = hash_of(one.model)
    first = run_probes(one, TEXT, parse_probes("all"))
    again = run_probes(one, TEXT, parse_probes("all"))
    back = run_probes(one, TEXT, parse_probes("all")[::-1])[::-1]
    assert data(first) == data(again) == data(back)
    assert {result.probe for result in first} == REGISTRY.keys()
    assert hash_of(one.model) == before
    assert all(parameter.grad is None for parameter in one.model.parameters())


def test_the_model_is_as_it_was_after_an_error_too() -> None:
    one = subject()
    assert isinstance(one, OwnSubject)
    before, logits = hash_of(one.model), one.session(TEXT.batches[0]).own_logits()

    with pytest.raises(ZeroDivisionError), one.session(TEXT.batches[0]).differentiable():
        _ = 1 / 0
    assert hash_of(one.model) == before
    assert torch.equal(one.session(TEXT.batches[0]).own_logits(), logits)


@pytest.mark.slow
def test_two_processes_measure_the_same_bits() -> None:
    alone = run_probes(subject(), TEXT, parse_probes(QUICK))
    together = run_probes(
        subject(), TEXT, parse_probes(QUICK), make=partial(subject, "hc"), workers=2
    )
    assert data(alone) == data(together)


def broken() -> Subject:
    raise DepthbenchError("no model is here. Name another one")


def test_a_worker_that_cannot_load_says_why() -> None:
    with pytest.raises(DepthbenchError, match=r"^no model is here\. Name another one$"):
        run_probes(subject(), TEXT, parse_probes("lens"), make=broken, workers=2)


def test_finished_parts_are_taken_up(tmp_path: Path) -> None:
    """A damaged result is measured again, one of other options too; others are not."""
    one, said = subject(), []

    def hear(name: str, done: int, total: int) -> None:
        said.append((name, done, total))

    first = run_probes(one, TEXT, parse_probes("lens,prune"), tmp_path, progress=hear)
    assert (said[0], said[-1]) == (("decoded", 0, 2), ("losses", 2, 2))
    said.clear()
    assert run_probes(one, TEXT, parse_probes("lens,prune"), tmp_path, progress=hear) == first
    assert said == []
    (tmp_path / "lens.json").write_text("{")
    again = run_probes(one, TEXT, parse_probes("lens"), tmp_path, progress=hear)
    # from its parts: nothing is left to measure
    assert said == [("decoded", 2, 2)]
    assert data(again) == data(first[:1])
    assert read_result(tmp_path / "lens.json") == again[0]
    [other] = run_probes(one, TEXT, [Lens(best=2)], tmp_path)
    assert other.options["best"] == 2
    assert other.curve("overlap") != first[0].curve("overlap")
    elsewhere = OwnSubject(random_own("hc", 3, width=16, seed=1), "test")
    [others] = run_probes(elsewhere, TEXT, parse_probes("lens"), tmp_path)
    assert others.curve("loss") != first[0].curve("loss")


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("left", [False, True])
def test_batches_and_padding_change_nothing(size: int, left: bool) -> None:
    expected = run_probes(subject(), in_batches(TEXTS, 2), parse_probes("angular,lens,cka"))
    found = run_probes(
        subject(), in_batches(TEXTS, size, left=left), parse_probes("angular,lens,cka")
    )
    for one, other in zip(expected, found, strict=True):
        for a, b in zip(one.findings, other.findings, strict=True):
            if a.kind == "number":
                assert b.kind == "number"
                assert b.value == pytest.approx(a.value, rel=1e-9)
            elif a.kind == "curve":
                assert b.kind == "curve"
                assert b.values == pytest.approx(a.values, rel=1e-9, abs=1e-12)
            else:
                assert b.kind == "matrix"
                for x, y in zip(a.values, b.values, strict=True):
                    assert y == pytest.approx(x, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("design", DESIGNS)
def test_every_design_is_probed_or_refused_by_name(design: str) -> None:
    said: list[str] = []
    text = in_batches(rows((34, 34, 34, 34)), 2)
    results = run_probes(subject(design), text, parse_probes("all"), say=said.append)
    refused = {words.split(":")[0] for words in said}
    assert {one.probe for one in results} | refused == REGISTRY.keys()
    assert refused <= {"streams", "jacobian"}
    for one in results:
        for finding in one.findings:
            if finding.kind == "curve":
                assert len(finding.places) == len(finding.values)


def test_damaged_parts_are_measured_anew(tmp_path: Path) -> None:
    one = subject()
    [first] = run_probes(one, TEXT, parse_probes("lens"), tmp_path)
    files = sorted((tmp_path / "parts").rglob("*.safetensors"))
    files[0].write_bytes(files[0].read_bytes()[:-8])
    files[1].write_bytes(b"junk")
    (tmp_path / "lens.json").unlink()
    [again] = run_probes(one, TEXT, parse_probes("lens"), tmp_path)
    assert data([again]) == data([first])


def test_a_text_that_is_too_short_for_one_probe_leaves_that_one_out() -> None:
    said: list[str] = []
    short = in_batches(rows((12, 12)), 2)
    found = run_probes(subject(), short, parse_probes("lens,jacobian,usefulness"), say=said.append)
    assert [one.probe for one in found] == ["lens"]
    assert [words.split(" is left out")[0] for words in said] == ["jacobian", "usefulness"]
    with pytest.raises(DepthbenchError, match="jacobian needs a text of 32 tokens"):
        run_probes(subject(), short, parse_probes("jacobian"))
    with pytest.raises(DepthbenchError, match=r"cka of 3 tokens says nothing: give at least 4"):
        run_probes(subject(), in_batches(rows((3,)), 1), parse_probes("cka"))
    assert len(run_probes(subject(), in_batches(rows((4,)), 1), parse_probes("cka"))) == 1


def test_weights_that_are_not_finite_are_refused() -> None:
    model = random_own("hc", 2)
    with torch.no_grad():
        model.final_norm.gain[0] = float("nan")
    with pytest.raises(DepthbenchError, match=r"test: the weights hold .*final_norm\.gain"):
        OwnSubject(model, "test")


def test_another_seed_draws_other_intervals() -> None:
    text = in_batches(rows((34,) * 8), 2)
    ends = [
        run_probes(subject(), text, [Lens(seed=seed)])[0].number("half_depth") for seed in (0, 1)
    ]
    assert ends[0].value == ends[1].value
    assert ends[0].low != ends[1].low


def test_names() -> None:
    assert [probe.name for probe in parse_probes("lens, causal")] == ["lens", "causal"]
    assert [probe.name for probe in parse_probes("all")] == list(REGISTRY)
    with pytest.raises(DepthbenchError, match="unknown probe 'lenz', did you mean 'lens'"):
        parse_probes("lenz")
    with pytest.raises(DepthbenchError, match="named twice"):
        parse_probes("lens,lens")
