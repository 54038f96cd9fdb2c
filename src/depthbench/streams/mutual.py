"""Mutual information of two vectors from samples: three estimators, each with its error.

All work on a few principal components of each vector, so what they say is a lower bound.
"""

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.special import digamma

from depthbench.errors import DepthbenchError
from depthbench.streams.linear import EXTRA

Samples = NDArray[np.float64]
"""``(n, k)``: one row a sample."""
CEILING = 1 - 1e-6
"""Largest squared canonical correlation that is told from 1: more is rounding."""
MISSED = 1 / 3
"""Share of the truth that a bias may be."""
CLEAR = 2.5
"""Standard errors beyond which a bias is no chance: taking off less would only add noise."""
FAINT = 0.1
"""Nats of bias that are always allowed: little information is easily missed by a third."""


@dataclass(frozen=True)
class Estimate:
    """Nats, and what they are worth."""

    nats: float
    """Corrected by the bias that the estimator showed on Gaussians of known information."""
    error: float
    """Standard error: of sampling, and of the calibration itself."""
    bias: float
    """That was found and taken off."""
    saturated: bool
    """Whether the bias is so large a share of what there is that the estimate says nothing."""
    at_ceiling: bool
    """Whether one vector is a function of the other, as far as precision tells."""

    @property
    def seen(self) -> float:
        """`nats`, or NaN for one that says nothing."""
        return float("nan") if self.saturated else self.nats

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval."""
        return self.nats - 1.96 * self.error

    @property
    def high(self) -> float:
        """Upper end of the 95 % interval."""
        return self.nats + 1.96 * self.error


@dataclass(frozen=True)
class Estimator(ABC):
    """A way to estimate mutual information."""

    name: ClassVar[str]
    title: ClassVar[str]

    draws: ClassVar[int] = 5
    """Samples of known information that it is calibrated on; more than three."""

    @abstractmethod
    def raw(self, x: Samples, y: Samples, seed: int) -> float:
        """Nats, without correction. Rows that belong together stand in both."""

    def estimate(self, x: Samples, y: Samples, seed: int = 0) -> Estimate:
        """With bias and error from Gaussians of as many samples, components and correlations."""
        correlations = canonical(x, y).correlations
        if not len(correlations):
            # one of them is constant
            return Estimate(0.0, 0.0, 0.0, saturated=False, at_ceiling=False)
        at_ceiling = bool((correlations**2 >= CEILING).any())
        known = calibration(self, len(x), _rounded(correlations), seed)
        nats = self.raw(x, y, seed) - known.bias
        saturated = abs(known.bias) > MISSED * known.truth + FAINT
        return Estimate(nats, known.error, known.bias, saturated, at_ceiling)


@dataclass(frozen=True)
class Calibration:
    """What an estimator says of Gaussians whose information is known."""

    truth: float
    bias: float
    """Mean of what it says, less the truth; 0 where that could be chance."""
    error: float
    """Of the next sample, known from so few draws: ``s √((n - 1) / (n - 3))``, the standard
    deviation of Student's t, with that of the mean where the bias is taken off."""


@functools.lru_cache(maxsize=512)
def calibration(
    estimator: Estimator, samples: int, correlations: tuple[float, ...], seed: int
) -> Calibration:
    """Bias and spread on samples of Gaussian pairs with these canonical correlations."""
    draws = estimator.draws
    rho = np.array(correlations)
    truth = float(-0.5 * np.log1p(-(rho**2)).sum())
    # numbers of its own for each, so that all are not off together
    generator = np.random.default_rng([seed, samples, *(round(1e6 * one) for one in correlations)])
    found = []
    for draw in range(draws):
        x = generator.standard_normal((samples, len(rho)))
        noise = generator.standard_normal((samples, len(rho)))
        found.append(estimator.raw(x, rho * x + np.sqrt(1 - rho**2) * noise, draw))
    spread = float(np.std(found, ddof=1)) * ((draws - 1) / (draws - 3)) ** 0.5
    bias = float(np.mean(found)) - truth
    if abs(bias) < CLEAR * spread * draws**-0.5:
        return Calibration(truth, 0.0, spread)
    return Calibration(truth, bias, spread * (1 + 1 / draws) ** 0.5)


def _rounded(correlations: NDArray[np.float64]) -> tuple[float, ...]:
    """To two digits, so that like pairs share a calibration."""
    return tuple(np.minimum(np.round(correlations, 2), CEILING**0.5).tolist())


@dataclass(frozen=True)
class Canonical:
    """Directions in which two vectors go together."""

    correlations: NDArray[np.float64]
    x: Samples
    """Components of each sample, of variance 1."""
    y: Samples


def canonical(x: Samples, y: Samples) -> Canonical:
    """Canonical correlation analysis (Hotelling 1936) by the singular values of ``Qxᵀ Qy``."""
    qx, qy = _orthonormal(x), _orthonormal(y)
    left, values, right = np.linalg.svd(qx.T @ qy, full_matrices=False)
    scale = np.sqrt(len(x))
    limit = CEILING**0.5
    return Canonical(np.minimum(values, limit), qx @ left * scale, qy @ right.T * scale)


def _orthonormal(x: Samples) -> Samples:
    """Columns of mean 0 that span those of ``x``; what is constant or repeated is left out."""
    centred = x - x.mean(0)
    u, values, _ = np.linalg.svd(centred, full_matrices=False)
    return u[:, values > values.max(initial=0.0) * 1e-7]


def principal(features: NDArray[np.float32], components: int) -> Samples:
    """The first principal components of standardised features."""
    centred = features.astype(np.float64) - features.mean(0, dtype=np.float64)
    scale = centred.std(0)
    centred = centred / np.where(scale > 0, scale, 1.0)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    return centred @ vectors[:, ::-1][:, :components]


@final
@dataclass(frozen=True)
class Gaussian(Estimator):
    """``-½ Σ ln(1 - ρ_i²)`` over canonical correlations: exact for Gaussians.

    Less its bias in closed form: the expected logarithm of a Wishart determinant, by digamma
    functions (Misra, Singh and Demchuk 2005).
    """

    name: ClassVar[str] = "gaussian"
    title: ClassVar[str] = "Gaussian (CCA)"
    draws: ClassVar[int] = 12

    def raw(self, x: Samples, y: Samples, seed: int) -> float:
        found = canonical(x, y)
        nats = -0.5 * np.log1p(-(found.correlations**2)).sum()
        freedom, p, q = len(x) - 1, found.x.shape[1], found.y.shape[1]
        return float(nats - self._bias(freedom, p, q))

    def _bias(self, freedom: int, p: int, q: int) -> float:
        def logs(dimensions: int) -> float:
            return (
                digamma((freedom - torch.arange(dimensions, dtype=torch.float64)) / 2).sum().item()
            )

        return 0.5 * (logs(p) + logs(q) - logs(p + q))


@final
@dataclass(frozen=True)
class Neighbours(Estimator):
    """k-nearest neighbours (arXiv cond-mat/0305641, first algorithm) on pairs of canonical
    components, one pair at a time, added up: sees what is not linear in a pair.
    """

    name: ClassVar[str] = "neighbours"
    title: ClassVar[str] = "k nearest neighbours"
    draws: ClassVar[int] = 12
    neighbours: int = 64
    """With 16 the estimate scatters two to three times as much, and its bias, which is larger
    with 64, is calibrated."""

    def raw(self, x: Samples, y: Samples, seed: int) -> float:
        found = canonical(x, y)
        return sum(
            self._pair(found.x[:, place], found.y[:, place])
            for place in range(len(found.correlations))
        )

    def _pair(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
        try:
            from scipy.spatial import KDTree
        except ImportError:
            raise DepthbenchError(EXTRA) from None
        both = np.stack([x, y], 1)
        k, count = self.neighbours, len(x)
        distances, _ = KDTree(both).query(both, k + 1, p=np.inf)
        radius = distances[:, -1]
        nx, ny = (_within(one, radius) for one in (x, y))
        both_sides = digamma(torch.from_numpy(np.stack([nx, ny])).double()).sum(0).mean()
        ends = digamma(torch.tensor([k, count], dtype=torch.float64)).sum()
        return (ends - both_sides).item()


def _within(values: NDArray[np.float64], radius: NDArray[np.float64]) -> NDArray[np.int64]:
    """How many others, and itself, are nearer to each value than ``radius``."""
    ordered = np.sort(values)
    high = np.searchsorted(ordered, values + radius, side="left")
    low = np.searchsorted(ordered, values - radius, side="right")
    return np.maximum(high - low, 1)


@final
@dataclass(frozen=True)
class Contrastive(Estimator):
    """InfoNCE (arXiv 1807.03748): ``ln N - E[CE of finding the partner among N]``, a lower bound.

    The critic is quadratic in canonical components, which holds the density ratio of Gaussians;
    it is fitted on half of the samples and tested on the other.
    """

    name: ClassVar[str] = "contrastive"
    title: ClassVar[str] = "InfoNCE"
    among: int = 512
    steps: int = 100
    rate: float = 0.03

    def raw(self, x: Samples, y: Samples, seed: int) -> float:
        found = canonical(x, y)
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(x), generator=generator)
        half = len(x) // 2
        among = min(self.among, half)
        a, b = (torch.from_numpy(one).float()[order] for one in (found.x, found.y))
        critic = _Critic(torch.from_numpy(found.correlations).float().clamp(max=0.999))
        optimizer = torch.optim.Adam(critic.parameters(), lr=self.rate)
        for _ in range(self.steps):
            rows = torch.randint(half, (among,), generator=generator)
            optimizer.zero_grad()
            critic.loss(a[rows], b[rows]).backward()
            optimizer.step()
        with torch.no_grad():
            starts = range(half, len(x) - among + 1, among)
            losses = [critic.loss(a[n : n + among], b[n : n + among]) for n in starts]
            return float(np.log(among) - torch.stack(losses).mean())


class _Critic(torch.nn.Module):
    """``f(x, y) = Σ_i u_i x_i y_i - v_i x_i² - w_i y_i²``, from what Gaussians would have."""

    def __init__(self, rho: torch.Tensor) -> None:
        super().__init__()
        rest = 1 - rho**2
        self.product = torch.nn.Parameter(rho / rest)
        self.of_x = torch.nn.Parameter(rho**2 / rest / 2)
        self.of_y = torch.nn.Parameter(rho**2 / rest / 2)

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Cross entropy of the partner of each row, both ways."""
        scores = (x * self.product) @ y.T - (x**2 @ self.of_x)[:, None] - (y**2 @ self.of_y)[None]
        partners = torch.arange(len(x))
        entropy = torch.nn.functional.cross_entropy
        return (entropy(scores, partners) + entropy(scores.T, partners)) / 2


ESTIMATORS: tuple[Estimator, ...] = (Gaussian(), Neighbours(), Contrastive())
