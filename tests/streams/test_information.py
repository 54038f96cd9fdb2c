"""Labels, linear probes and estimates of information against what is known."""

import numpy as np
import pytest

from depthbench.data.tokenizer import ByteTokenizer
from depthbench.probes.batch import Batch
from depthbench.probes.text import Text
from depthbench.streams.labels import labels_of
from depthbench.streams.linear import Question, read_classes
from depthbench.streams.mutual import ESTIMATORS, Contrastive, Gaussian, Neighbours, principal
from depthbench.streams.shared import ckas, cosines, ranks, unexplained
from tests.streams.planted import lab_of, noisy

DIMENSIONS = 16


def pair(nats: float, samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian vectors of known information, the second turned by a random rotation."""
    generator = np.random.default_rng(seed)
    rho = np.sqrt(1 - np.exp(-2 * nats / DIMENSIONS))
    x = generator.standard_normal((samples, DIMENSIONS))
    y = rho * x + np.sqrt(1 - rho**2) * generator.standard_normal((samples, DIMENSIONS))
    turn, _ = np.linalg.qr(generator.standard_normal((DIMENSIONS, DIMENSIONS)))
    return x, y @ turn


@pytest.mark.parametrize("nats", [0.1, 0.3, 1.0, 3.0])
def test_information_of_gaussians_is_within_a_tenth(nats: float) -> None:
    # at 0.1 nats 8192 samples are known to 3 %, so a tenth is three standard errors
    found = Gaussian().estimate(*pair(nats, 8192, seed=11))
    assert found.nats == pytest.approx(nats, rel=0.1)
    assert found.low < nats < found.high
    assert found.error < 0.05 * nats + 0.003
    assert not found.saturated


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda one: one.name)
@pytest.mark.parametrize("nats", [0.1, 0.3, 1.0, 3.0])
def test_every_estimator_is_within_a_tenth_or_says_so(estimator: object, nats: float) -> None:
    # at 0.1 nats 8192 samples scatter neighbours by 6 %: each pair of components adds noise
    samples = 32768 if isinstance(estimator, Neighbours) else 8192
    assert isinstance(estimator, Gaussian | Neighbours | Contrastive)
    found = estimator.estimate(*pair(nats, samples, seed=7))
    assert found.nats == pytest.approx(nats, rel=0.1)
    assert found.low < nats < found.high


def test_no_information_is_none_and_the_bound_of_infonce_is_told() -> None:
    generator = np.random.default_rng(0)
    x, y = generator.standard_normal((2, 2048, DIMENSIONS))
    found = Gaussian().estimate(x, y)
    # the plain estimate would be 256 / (2 · 2048) = 0.0625 too large
    assert abs(found.nats) < 3 * found.error < 0.05
    much = Contrastive(steps=5).estimate(*pair(20.0, 1024, seed=1))
    assert much.saturated
    assert np.isnan(much.seen)
    assert Gaussian().estimate(np.zeros((600, 3)), x[:600, :3]).nats == 0.0
    same = Gaussian().estimate(x, x @ np.diag(np.arange(1.0, 17.0)))
    assert same.at_ceiling


def test_principal_components_are_those_of_numpy() -> None:
    x = np.random.default_rng(0).standard_normal((500, 6)).astype(np.float32)
    x[:, 1] += 3 * x[:, 0]
    found = principal(x, 2)
    scaled = (x - x.mean(0)) / x.std(0)
    values = np.linalg.eigvalsh(np.cov(scaled.T, ddof=0))[::-1]
    np.testing.assert_allclose(found.var(0), values[:2], rtol=1e-4)
    assert abs(found[:, 0] @ found[:, 1]) < 1e-6 * len(x)


def test_a_linear_probe_reads_what_is_there_and_nothing_from_shuffled_labels() -> None:
    generator = np.random.default_rng(0)
    classes = generator.integers(0, 4, 4000)
    documents = np.arange(4000) // 50
    tested = documents % 2 == 1
    clear = np.eye(4, dtype=np.float32)[classes] + 0.01 * generator.standard_normal(
        (4000, 4)
    ).astype(np.float32)
    found = read_classes(clear, Question(classes, tested, documents))
    assert found.nats == pytest.approx(np.log(4), abs=0.02)
    assert found.accuracy == 1.0
    assert found.control is not None
    # a classifier of shuffled labels is worse than knowing the shares, never better
    assert -0.1 < found.control < 0.005
    noise = generator.standard_normal((4000, 4)).astype(np.float32)
    nothing = read_classes(noise, Question(classes, tested, documents))
    assert nothing.low is not None
    assert nothing.high is not None
    assert nothing.low < 0.0 < nothing.high + 0.01
    # a known channel: the class is seen with a chance of 0.7, else any
    shown = np.where(generator.random(4000) < 0.7, classes, generator.integers(0, 4, 4000))
    hidden = read_classes(np.eye(4, dtype=np.float32)[shown], Question(classes, tested, documents))
    right = 0.7 + 0.3 / 4
    capacity = np.log(4) + right * np.log(right) + (1 - right) * np.log((1 - right) / 3)
    assert hidden.nats == pytest.approx(capacity, abs=0.06)


def test_labels_follow_phrases_sentences_and_documents() -> None:
    coder = ByteTokenizer()
    rows = [list(b"ab, cd. ef gh"), list(b"xy. z, w. abc")]
    batches = (Batch.of_rows(rows, documents=(0, 1)),)
    lab = lab_of(noisy("hc"), [[1, 2]] * 2)
    text = Text(batches, lab.text.facts, ("web", "code"), coder)
    labels = labels_of(text, 1, 200)
    assert labels.count == 24
    assert labels.held_out.tolist() == [False] * 24
    # the one row of each domain is fitted on; classes are ranks by count, so compare by equality
    first = labels.classes["chunk"][:12]
    assert len(set(first[:3])) == 1, "ab,"
    assert len(set(first[3:7])) == 1, " cd."
    assert first[0] != first[3]
    assert labels.classes["sentence"][:12].tolist() == [1, 1, 1, 1, 2, 2, 0, 1, 1, 1, 1, 2]
    assert labels.classes["task"].tolist() == [0] * 12 + [1] * 12
    nexts = labels.classes["token"][:12]
    assert nexts[0] != nexts[1]
    assert nexts[2] == nexts[6] == nexts[9], "a space follows"
    silent = labels_of(Text(batches, text.facts, ("web", "code")), 1, 16)
    assert set(silent.missing) == {"chunk", "sentence"}


def test_likeness_of_streams_is_that_of_closed_forms() -> None:
    generator = np.random.default_rng(0)
    x = generator.standard_normal((1000, 5)).astype(np.float32)
    turn, _ = np.linalg.qr(generator.standard_normal((5, 5)))
    z = np.stack([x, 2 * x, (x @ turn).astype(np.float32), -x])
    np.testing.assert_allclose(cosines(z)[0, [0, 1, 3]], [1, 1, -1], atol=1e-5)
    np.testing.assert_allclose(ckas(z)[0], 1, atol=1e-5)
    held_out = np.arange(1000) % 2 == 1
    assert unexplained(x, z[2], held_out) < 1e-5
    other = generator.standard_normal((1000, 5)).astype(np.float32)
    half = unexplained(x, x + other, held_out)
    assert half == pytest.approx(0.5, abs=0.05)


def test_the_all_ones_direction_is_told_apart() -> None:
    x, y = np.random.default_rng(0).standard_normal((2, 400, 5)).astype(np.float32)
    copies = np.stack([x, x, x, x])
    assert ranks(copies) == (pytest.approx(1.0), pytest.approx(0.0, abs=1e-6))
    two = np.stack([x + y, x - y])
    # singular values √2 |x| along the mean and √2 |y| across it
    sizes = np.linalg.norm([x.ravel(), y.ravel()], axis=1)
    shares = sizes / sizes.sum()
    assert ranks(two)[0] == pytest.approx(np.exp(-(shares * np.log(shares)).sum()), rel=1e-3)
    assert ranks(two)[1] == pytest.approx(1.0)
