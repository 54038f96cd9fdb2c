"""Loss against size: a power law with a floor for each design, and how far it may be trusted."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from depthbench.config import Frozen
from depthbench.cost.candidates import Candidate
from depthbench.errors import DepthbenchError
from depthbench.study.paired import t_quantile

Numbers = NDArray[np.float64]
GRID = 300
"""Exponents that are tried before the best one is refined."""
COEFFICIENTS = 3
"""Of the law: ``E``, ``A`` and ``α``."""


class ScalingConfig(Frozen):
    """When a law is fitted, and how far it is followed."""

    least_sizes: int = Field(default=4, ge=4)
    """Different sizes that a fit needs: one more than the law has coefficients."""
    same_size: float = Field(default=0.05, gt=0, lt=1)
    """Parameter counts within this share of the smallest of them are one size, of which the shape
    with the least mean loss counts."""
    extrapolation: float = Field(default=4.0, ge=1)
    """A prediction may be this factor beyond the largest size, or under the smallest."""
    confidence: float = Field(default=0.95, gt=0, lt=1)
    """Of the prediction interval."""
    least_exponent: float = Field(default=0.01, gt=0)
    """A law that falls more slowly than this is none."""
    greatest_exponent: float = Field(default=3.0, gt=0)
    """An optimum at either end is no optimum: the sizes do not tell the exponent."""


class Prediction(Frozen):
    """The loss of one more trial of this size, with the interval that it lies in."""

    label: str
    parameters: int
    bits_per_byte: float
    low: float
    high: float
    confidence: float


class Law(Frozen):
    """``loss = E + A · N^-α``, in bits per byte, by least squares over trials.

    Every seed of the best shape of each size is one observation with the same normal error.
    """

    label: str
    sizes: tuple[int, ...]
    """Parameters of the shapes that were taken, rising."""
    floor: float
    """``E``; it may come out negative."""
    factor: float
    """``A``."""
    exponent: float
    """``α``."""
    observations: int
    deviation: float
    """``s``: root of the squared residuals over ``observations - 3``."""
    centre: float
    """``N₀``, the geometric mean of the sizes: ``covariance`` is that of ``E``, ``A·N₀^-α``, α."""
    covariance: tuple[tuple[float, ...], ...]
    """``(JᵀJ)⁻¹`` of the fit, without ``s²``."""

    def loss(self, parameters: float) -> float:
        """The law at this size, in bits per byte."""
        return self.floor + self.factor * parameters**-self.exponent

    def predict(self, parameters: int, config: ScalingConfig | None = None) -> Prediction:
        """The loss of one more trial: ``law ± t · s · sqrt(1 + gᵀ (JᵀJ)⁻¹ g)``.

        The delta method, ``g`` the law's gradient by its coefficients and ``t`` Student's quantile
        for ``observations - 3`` degrees of freedom. It holds if the law does: what another law
        would say beyond the sizes is no part of it. Raises `DepthbenchError` too far outside.
        """
        config = config or ScalingConfig()
        _check_reach(self, parameters, config.extrapolation)
        x = np.array([parameters / self.centre])
        gradient = _jacobian(x, self.factor * self.centre**-self.exponent, self.exponent)[0]
        spread = math.sqrt(1 + float(gradient @ np.array(self.covariance) @ gradient))
        quantile = t_quantile(config.confidence, self.observations - COEFFICIENTS)
        reach, loss = quantile * self.deviation * spread, self.loss(parameters)
        return Prediction(
            label=self.label,
            parameters=parameters,
            bits_per_byte=loss,
            low=loss - reach,
            high=loss + reach,
            confidence=config.confidence,
        )


def fit_law(
    label: str, observed: Sequence[tuple[int, float]], config: ScalingConfig | None = None
) -> Law:
    """The law through ``(parameters, bits per byte)`` of trials.

    For each exponent ``E`` and ``A`` are linear; the exponent is searched. Raises
    `DepthbenchError` for too few sizes, and for losses that no such law describes.
    """
    config = config or ScalingConfig()
    sizes = tuple(sorted({size for size, _ in observed}))
    if len(sizes) < config.least_sizes:
        raise DepthbenchError(
            f"{label}: a scaling fit needs {config.least_sizes} sizes, the study has "
            f"{len(sizes)}. Train more sizes, or name several studies"
        )
    n, y = (np.array(column, dtype=np.float64) for column in zip(*observed, strict=True))
    centre = float(np.exp(np.mean(np.log(sizes))))
    x = n / centre
    exponent = _exponent(x, y, config)
    floor, factor = _linear(x, y, exponent)
    at_end = not config.least_exponent * 1.01 < exponent < config.greatest_exponent / 1.01
    if factor <= 0 or at_end:
        raise DepthbenchError(
            f"{label}: its losses do not follow E + A N^-alpha with alpha between "
            f"{config.least_exponent:g} and {config.greatest_exponent:g} from "
            f"{sizes[0]:,} to {sizes[-1]:,} parameters. Train more sizes or more seeds"
        )
    residuals = y - floor - factor * x**-exponent
    jacobian = _jacobian(x, factor, exponent)
    return Law(
        label=label,
        sizes=sizes,
        floor=floor,
        factor=factor * centre**exponent,
        exponent=exponent,
        observations=len(y),
        deviation=math.sqrt(float(residuals @ residuals) / (len(y) - COEFFICIENTS)),
        centre=centre,
        covariance=tuple(map(tuple, np.linalg.inv(jacobian.T @ jacobian).tolist())),
    )


def best_by_size(candidates: Sequence[Candidate], config: ScalingConfig) -> list[Candidate]:
    """Of one design, the shape with the least mean loss of every size, small to large.

    The least of several is lucky as well as good: where a size has more shapes than another, part
    of its lead is choice.
    """
    groups: list[list[Candidate]] = []
    for one in sorted(candidates, key=lambda one: one.parameters):
        if groups and one.parameters <= groups[-1][0].parameters * (1 + config.same_size):
            groups[-1].append(one)
        else:
            groups.append([one])
    return [min(group, key=lambda one: one.bits_per_byte) for group in groups]


def fit_designs(
    candidates: Sequence[Candidate], config: ScalingConfig | None = None
) -> tuple[tuple[Law, ...], tuple[str, ...]]:
    """The law of every design that has one, and why the others have none."""
    config = config or ScalingConfig()
    laws: list[Law] = []
    refused: list[str] = []
    for label in dict.fromkeys(one.label for one in candidates):
        chosen = best_by_size([one for one in candidates if one.label == label], config)
        observed = [(one.parameters, loss) for one in chosen for loss in one.by_seed.values()]
        try:
            laws.append(fit_law(label, observed, config))
        except DepthbenchError as error:
            refused.append(str(error))
    return tuple(laws), tuple(refused)


def _check_reach(law: Law, parameters: int, factor: float) -> None:
    low, high = law.sizes[0] / factor, law.sizes[-1] * factor
    if low <= parameters <= high:
        return
    beyond, side = (
        (parameters / law.sizes[-1], f"the largest size of {law.label} ({law.sizes[-1]:,})")
        if parameters > high
        else (law.sizes[0] / parameters, f"the smallest size of {law.label} ({law.sizes[0]:,})")
    )
    raise DepthbenchError(
        f"predict = {parameters:,} parameters is a factor {beyond:.3g} from {side}: "
        f"at most {factor:g} is allowed. Ask for {math.ceil(low)} to {math.floor(high)}, or train "
        "sizes nearer to it"
    )


def _exponent(x: Numbers, y: Numbers, config: ScalingConfig) -> float:
    """The exponent with the least squares: on a grid, then by golden section around its best."""
    low, high = math.log(config.least_exponent), math.log(config.greatest_exponent)
    grid = np.linspace(low, high, GRID)
    best = int(np.argmin([_squares(x, y, math.exp(one)) for one in grid]))
    a, b = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, GRID - 1)])
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(60):
        left, right = b - golden * (b - a), a + golden * (b - a)
        if _squares(x, y, math.exp(left)) < _squares(x, y, math.exp(right)):
            b = right
        else:
            a = left
    return math.exp((a + b) / 2)


def _linear(x: Numbers, y: Numbers, exponent: float) -> tuple[float, float]:
    powers = x**-exponent
    away = powers - powers.mean()
    factor = float(away @ y) / float(away @ away)
    return float(y.mean() - factor * powers.mean()), factor


def _squares(x: Numbers, y: Numbers, exponent: float) -> float:
    floor, factor = _linear(x, y, exponent)
    residuals = y - floor - factor * x**-exponent
    return float(residuals @ residuals)


def _jacobian(x: Numbers, factor: float, exponent: float) -> Numbers:
    powers = x**-exponent
    return np.stack([np.ones_like(x), powers, -factor * powers * np.log(x)], axis=1)
