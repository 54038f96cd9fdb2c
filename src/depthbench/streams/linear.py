"""Linear probes: what can be read off a vector by one linear map, in nats."""

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from depthbench.errors import DepthbenchError
from depthbench.probes.bootstrap import interval

EXTRA = "information of streams is read with scikit-learn: pip install 'depthbench[streams]'"
"""What to do where it is missing."""
LEAST_CHANCE = 1e-9
"""A class is never thought less likely: one surprise would outweigh all else."""
LEAST = 1e-6
"""Standard deviation under which a feature is a constant."""


@dataclass(frozen=True)
class Read:
    """What a classifier reads on texts that it was not fitted on."""

    nats: float
    """Information: cross entropy of the classes' shares less that of the classifier. Below 0 for
    one that is worse than knowing the shares."""
    low: float | None
    high: float | None
    """95 % bootstrap interval of `nats` over documents."""
    accuracy: float
    control: float | None
    """`nats` of a classifier that was fitted on shuffled labels; None where nobody asked."""


@dataclass(frozen=True)
class Question:
    """Classes to be read, and who is asked about them."""

    classes: NDArray[np.int64]
    tested: NDArray[np.bool_]
    documents: NDArray[np.int64]
    seed: int = 0
    strengths: tuple[float, ...] = (0.001, 0.01, 0.1, 1.0)
    """Inverse penalties on squared weights of standardised features; the one is taken that reads
    best what a part of the fitted documents' tokens says of the others."""
    steps: int = 100
    """Of the solver, at most."""


def read_classes(features: NDArray[np.float32], asked: Question, control: bool = True) -> Read:
    """Fit multinomial logistic regression on some tokens and test it on the others.

    ``I = H(shares) - CE`` in nats on the tested tokens: usable information under linear maps
    (arXiv 2002.10689), with the control of arXiv 1909.03368: labels shuffled among the tokens that
    are fitted on. Raises `DepthbenchError` without scikit-learn.
    """
    x = standardised(features, asked.tested)
    fitted = ~asked.tested
    y = asked.classes
    gains, right = _gains(x, y[fitted], asked)
    weighed = _by_document(gains, asked.documents[asked.tested])
    span = interval(lambda weights: _mean(weighed, weights), weighed.shape[1], asked.seed)
    low, high = span or (None, None)
    of_shuffled = None
    if control:
        shuffled = np.random.default_rng(asked.seed).permutation(y[fitted])
        of_shuffled = float(_gains(x, shuffled, asked)[0].mean())
    return Read(float(gains.mean()), low, high, float(right.mean()), of_shuffled)


def standardised(features: NDArray[np.float32], tested: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Mean 0 and variance 1 on the tokens that are fitted on; constants become 0."""
    fitted = features[~tested]
    scale = fitted.std(0)
    still = scale < LEAST * max(1.0, float(np.abs(fitted).max()))
    return np.where(still, 0.0, (features - fitted.mean(0)) / np.where(still, 1.0, scale)).astype(
        np.float32
    )


def _gains(
    x: NDArray[np.float32], labels: NDArray[np.int64], asked: Question
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """``ln p(class) - ln share(class)`` of every tested token, and whether its class is found."""
    fitted, tested = x[~asked.tested], x[asked.tested]
    numbers = np.unique(asked.documents[~asked.tested], return_inverse=True)[1]
    inner = numbers % 2 == 1
    if not np.isin(labels[inner], labels[~inner]).any():
        # labels that are documents are known to nobody else
        inner = np.arange(len(labels)) % 4 == 3
    strength = asked.strengths[0]
    if inner.any():
        tried = [
            _logs(fitted[~inner], labels[~inner], fitted[inner], labels[inner], one, asked.steps)
            for one in asked.strengths
        ]
        strength = asked.strengths[int(np.argmax([gains.mean() for gains, _ in tried]))]
    wanted = asked.classes[asked.tested]
    return _logs(fitted, labels, tested, wanted, strength, asked.steps)


def _logs(
    x: NDArray[np.float32],
    labels: NDArray[np.int64],
    others: NDArray[np.float32],
    wanted: NDArray[np.int64],
    strength: float,
    steps: int,
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """`_gains` of ``others``, whose classes are ``wanted``, by what is fitted on ``x``."""
    try:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression
    except ImportError:
        raise DepthbenchError(EXTRA) from None
    kinds, counts = np.unique(labels, return_counts=True)
    places = np.searchsorted(kinds, wanted).clip(max=len(kinds) - 1)
    known = kinds[places] == wanted
    if len(kinds) < 2:
        return np.zeros(len(wanted)), known
    # half a token more for each class, so that none is impossible
    shares = (counts + 0.5) / (counts + 0.5).sum()
    model = LogisticRegression(C=strength, max_iter=steps, tol=1e-3)
    with warnings.catch_warnings():
        # one that stops early is still a classifier: what it reads of other documents counts
        warnings.simplefilter("ignore", ConvergenceWarning)
        chances = model.fit(x, labels).predict_proba(others)
    logs = np.log(np.maximum(chances, LEAST_CHANCE))
    # a class that no fitted token has is as unlikely to both
    gains = np.where(known, logs[np.arange(len(wanted)), places] - np.log(shares[places]), 0.0)
    return gains.astype(np.float64), known & (logs.argmax(1) == places)


def _by_document(gains: NDArray[np.float64], documents: NDArray[np.int64]) -> NDArray[np.float64]:
    """Sums and counts ``(2, documents)``."""
    _, place = np.unique(documents, return_inverse=True)
    counts = np.bincount(place).astype(np.float64)
    return np.stack([np.bincount(place, gains).astype(np.float64), counts])


def _mean(weighed: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    total = (weighed * weights).sum(1)
    return float(total[0] / total[1]) if total[1] else float("nan")
