"""Collapse of layers: models whose blocks do nothing, and made-up results of many sizes."""

import numpy as np
import pytest
import torch

from depthbench.errors import DepthbenchError
from depthbench.probes.huggingface import HuggingFaceSubject
from depthbench.probes.lab import Alone, Lab
from depthbench.probes.lens import Lens
from depthbench.probes.result import ProbeResult
from depthbench.probes.walk import Limits
from depthbench.redundancy.collapse import (
    BySize,
    Collapse,
    by_distance,
    collapse_by_size,
    longest,
    rank_correlation,
)
from tests.probes.small import in_batches, lab_of, random_own, rows
from tests.probes.test_planted import silenced, values
from tests.probes.tiny import tiny

TEXT = in_batches(rows((24,) * 8), 2)
LAYERS = 6


def result(layers: int = LAYERS, quiet: range = range(0)) -> ProbeResult:
    model = silenced(random_own("prenorm", layers), quiet)
    return Collapse().run(lab_of(model, TEXT))


def test_blocks_that_do_nothing_are_a_collapse() -> None:
    found = result(quiet=range(1, 5))
    assert values(found, "neighbours")[1:5] == pytest.approx(1, abs=1e-12)
    assert (values(found, "neighbours")[[0, 5]] < 0.95).all()
    assert found.number("run").value == 4
    assert found.words[0] == (
        "Neighbouring layers have collapsed: the longest run of neighbours with a CKA of at least "
        "0.99 is blocks 1 to 4, 4 of 6 (least 1.000), 50% or more."
    )
    short = result(quiet=range(1, 3))
    assert short.number("run").value == 2
    assert short.words[0].startswith("Neighbouring layers have not collapsed: ")
    assert "blocks 1 to 2, 2 of 6" in short.words[0]
    assert result().words[0].startswith("Neighbouring layers have not collapsed: no block leaves")


def test_a_model_of_identities() -> None:
    found = result(quiet=range(LAYERS))
    for name in ("distance", "distance_least", "distance_largest", "neighbours"):
        assert values(found, name) == pytest.approx(1, abs=1e-12)
    assert "blocks 0 to 5, 6 of 6" in found.words[0]
    assert found.words[1].startswith("States up to 6 blocks apart")


@torch.no_grad()
def test_distances_against_all_activations_at_once() -> None:
    model = random_own("hc", 4)
    found = Collapse().run(lab_of(model, TEXT))
    lab = lab_of(model, TEXT)
    states: list[list[torch.Tensor]] = [[] for _ in range(5)]
    for batch in TEXT.batches:
        session = lab.subject.session(batch)
        trace = session.trace()  # pyright: ignore[reportAttributeAccessIssue]
        for depth, z in enumerate(trace.depth_states):
            states[depth].append(z[batch.valid])
    whole = [torch.cat(each) - torch.cat(each).mean(0) for each in states]

    def cka(i: int, j: int) -> float:
        x, y = whole[i], whole[j]
        return float((x.T @ y).norm() ** 2 / ((x.T @ x).norm() * (y.T @ y).norm()))

    for apart in range(1, 5):
        each = [cka(i, i + apart) for i in range(5 - apart)]
        place = apart - 1
        assert values(found, "distance")[place] == pytest.approx(np.mean(each), abs=1e-10)
        assert values(found, "distance_least")[place] == pytest.approx(min(each), abs=1e-10)
        assert values(found, "distance_largest")[place] == pytest.approx(max(each), abs=1e-10)
    spectrum = torch.linalg.svdvals(whole[2]).square()
    effective = float(spectrum.sum() ** 2 / spectrum.square().sum())
    assert values(found, "directions")[2] == pytest.approx(effective, rel=1e-10)


@torch.no_grad()
def test_one_direction_is_told() -> None:
    """States that a single direction rules are alike whatever blocks do: the words warn."""
    model = random_own("prenorm", LAYERS)
    model.embed.weight[:, 0] *= 1e4
    found = Collapse().run(lab_of(model, TEXT))
    assert values(found, "directions")[0] == pytest.approx(1, abs=1e-3)
    assert "7 of 7 depths the state has fewer than 2 effective directions" in found.words[2]


def test_a_hugging_face_model() -> None:
    subject = HuggingFaceSubject(tiny("llama").double(), "test")
    found = Collapse().run(Lab(subject, TEXT, Alone(subject, TEXT, Limits())))
    assert len(values(found, "distance")) == subject.layers
    assert found.matrix("cka").values[2][3] == pytest.approx(values(found, "neighbours")[2])


def made(parameters: int, layers: int, neighbours: float, quarter: float) -> ProbeResult:
    """A result with these numbers: CKA of neighbours, and of depths a quarter apart."""
    base = result(2)
    line = [0.0] * layers
    line[max(1, round(layers / 4)) - 1] = quarter
    findings = [
        one.model_copy(update={"value": neighbours})
        if one.name == "mean"
        else one.model_copy(
            update={"values": tuple(line), "places": tuple(float(n + 1) for n in range(layers))}
        )
        if one.name == "distance"
        else one
        for one in base.findings
    ]
    subject = base.subject.model_copy(update={"parameters": parameters, "layers": layers})
    return base.model_copy(update={"findings": tuple(findings), "subject": subject})


def test_collapse_by_size() -> None:
    sizes = [
        (8_000, 8, 0.9, 0.8),
        (1_000, 4, 0.7, 0.6),
        (4_000, 8, 0.8, 0.9),
        (2_000, 4, 0.75, 0.7),
    ]
    found = collapse_by_size([made(*one) for one in sizes])
    neighbours, rank, quarter, quarter_rank = found.findings
    assert neighbours.kind == quarter.kind == "curve"
    assert rank.kind == quarter_rank.kind == "number"
    assert neighbours.places == (1_000, 2_000, 4_000, 8_000)
    assert neighbours.values == (0.7, 0.75, 0.8, 0.9)
    assert quarter.values == (0.6, 0.7, 0.9, 0.8)
    assert rank.value == pytest.approx(1)
    # one swap of neighbours: 1 - 6 Σ d² / (n (n² - 1)) = 1 - 6 · 2 / 60
    assert quarter_rank.value == pytest.approx(0.8)
    assert (
        "Mean CKA of neighbouring depths grows with size: rank correlation +1.00" in found.words[0]
    )
    strict = collapse_by_size([made(*one) for one in sizes], BySize(correlation=0.9))
    assert "does not go with size: rank correlation +0.80, under 0.9" in strict.words[1]
    few = collapse_by_size([made(*one) for one in sizes[:3]])
    assert "under 4 sizes no trend is claimed" in few.words[0]
    with pytest.raises(DepthbenchError, match="results of collapse, not of lens"):
        collapse_by_size([Lens().run(lab_of(random_own(layers=2), TEXT))])


def test_parts_of_it() -> None:
    assert longest(np.array([True, False, True, True, False, True, True])) == (2, 2)
    assert longest(np.zeros(3, dtype=bool)) == (0, 0)
    cka = np.array([[1, 0.5, 0.2], [0.5, 1, 0.7], [0.2, 0.7, 1]])
    assert by_distance(cka) == pytest.approx(np.array([[0.6, 0.2], [0.5, 0.2], [0.7, 0.2]]))
    # ties share a rank: 1, 2.5, 2.5, 4 against 1, 2, 3, 4
    tied = rank_correlation(np.array([1.0, 2, 2, 5]), np.array([1.0, 2, 3, 4]))
    assert tied == pytest.approx(4.5 / np.sqrt(4.5 * 5))
    assert np.isnan(rank_correlation(np.ones(3), np.arange(3.0)))
