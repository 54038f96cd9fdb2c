"""What streams say of each other: mutual information, likeness, and what one adds to another."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from depthbench.probes.lab import Lab
from depthbench.probes.probe import Found, StreamsProbe
from depthbench.probes.result import Curve, Finding, Matrix, Number, row, table, value
from depthbench.streams.linear import read_classes
from depthbench.streams.mutual import ESTIMATORS, Estimate, Gaussian, Samples, principal
from depthbench.streams.sample import Sample, SampleConfig

UNIT = "nats"
LINEAR = 1e-3
"""Share of a stream's variance, left by a linear map of another, under which it is a function of
it: what is shared cannot rise."""
GROUPS = 8
"""Of documents; each is left out once, for the error."""
LEAST_DEPTHS = 3
"""Behind the first, for a slope."""


@dataclass(frozen=True)
class At:
    """All pairs of streams at one depth; entries ``[i, j]``."""

    nats: NDArray[np.float64]
    error: NDArray[np.float64]
    """The larger of what documents and the estimator's calibration say."""
    without: NDArray[np.float64]
    """``(groups, s, s)``: `nats` without a group of documents."""
    ceiling: NDArray[np.bool_]
    cosine: NDArray[np.float64]
    cka: NDArray[np.float64]
    ranks: tuple[float, float]
    """Effective number of streams, in all and without what all have in common."""
    unexplained: NDArray[np.float64]
    """Share of stream ``j``'s variance that a linear map of stream ``i`` leaves, held out."""


@final
class Shared(StreamsProbe):
    """What is sampled, and how many components are kept, are options."""

    name: ClassVar[str] = "shared"
    title: ClassVar[str] = "What streams share"
    definition: ClassVar[str] = (
        "mutual information of two streams at a depth, on their first principal components, by "
        "canonical correlations (exact for Gaussians); error: the larger of a jackknife over eight "
        "groups of documents and what the estimator shows on Gaussians of the same size; linear "
        "CKA; cosine; share of a stream's variance that ridge regression on the other does not "
        "explain on held-out documents; nats "
        "that a stream adds to what another says of each label; effective number of streams: "
        "exp(-Σ p ln p) of the normalised singular values of all streams side by side, also with "
        "their mean (the all-ones direction) taken off"
    )
    blind: ClassVar[str] = (
        "Components that are left out may hold what matters, and what is shared need not be used. "
        "Streams that mix share by construction."
    )
    reading: ClassVar[str] = (
        "Information that rises with depth and little unexplained variance: the streams become "
        "one. Compare with the error bar before reading a slope."
    )
    source: ClassVar[str] = (
        "Hotelling 1936; arXiv cond-mat/0305641; arXiv 1807.03748; arXiv 1905.00414"
    )
    sample: SampleConfig = SampleConfig()
    """What is looked at."""
    components: int = Field(default=16, ge=1)
    """Principal components of a stream that information is estimated from."""
    compared: int = Field(default=2, ge=0)
    """Depths at which all estimators are held side by side."""

    def look(self, lab: Lab) -> Found:
        sample = Sample(lab, self.sample)
        each: list[At] = []
        beside: dict[int, list[list[Estimate]]] = {}
        added = np.empty((0, 0))
        steps = len(sample.depths)
        chosen = self._compared(sample.depths)
        for number, depth in enumerate(sample.depths):
            lab.progress("shared", number, steps)
            z = sample.at(depth)
            parts = [principal(one, self.components) for one in z]
            each.append(self._at(z, parts, sample))
            if depth in chosen:
                beside[depth] = self._beside(parts)
            if depth == sample.depths[-1]:
                added = self._added(z, sample)
        lab.progress("shared", steps, steps)
        findings = self._findings(lab, sample, each, added)
        findings += self._estimators(beside)
        return Found(findings, [sample.words, *self._words(lab, sample, each, beside)])

    def _compared(self, depths: Sequence[int]) -> set[int]:
        """Depths behind the first, where all streams may still be one."""
        later = list(depths[1:])
        if not self.compared:
            return set()
        places = np.linspace(0, len(later) - 1, min(self.compared, len(later)))
        return {later[round(place)] for place in places}

    def _at(self, z: NDArray[np.float32], parts: Sequence[Samples], sample: Sample) -> At:
        count = len(z)
        shape = (count, count)
        nats, error = np.full(shape, np.nan), np.full(shape, np.nan)
        groups = np.unique(sample.labels.documents, return_inverse=True)[1] % GROUPS
        without = np.full((GROUPS, *shape), np.nan)
        ceiling = np.zeros(shape, bool)
        for i in range(count):
            for j in range(i):
                found = Gaussian().estimate(parts[i], parts[j], self.seed)
                nats[i, j] = nats[j, i] = found.nats
                for group in range(GROUPS):
                    rest = groups != group
                    raw = Gaussian().raw(parts[i][rest], parts[j][rest], self.seed)
                    without[group, i, j] = without[group, j, i] = raw
                own = jackknife(without[:, i, j])
                error[i, j] = error[j, i] = max(own, found.error)
                ceiling[i, j] = ceiling[j, i] = found.at_ceiling
        held_out = sample.labels.held_out
        left = [[unexplained(z[i], z[j], held_out) for j in range(count)] for i in range(count)]
        return At(nats, error, without, ceiling, cosines(z), ckas(z), ranks(z), np.array(left))

    def _beside(self, parts: Sequence[Samples]) -> list[list[Estimate]]:
        """Stream 0 with every other one, by each estimator."""
        return [
            [one.estimate(parts[0], other, self.seed) for one in ESTIMATORS] for other in parts[1:]
        ]

    def _added(self, z: NDArray[np.float32], sample: Sample) -> NDArray[np.float64]:
        """Nats over all labels that stream ``j`` adds, given ``i``, at the pair ``[i, j]``."""
        count = len(z)
        found = np.zeros((count, count))
        for kind in sample.labels.classes:
            asked = sample.question(kind, self.seed)
            for i in range(count):
                alone = read_classes(z[i], asked, control=False).nats
                for j in range(count):
                    if i != j:
                        both = np.concatenate([z[i], z[j]], axis=1)
                        found[i, j] += read_classes(both, asked, control=False).nats - alone
        np.fill_diagonal(found, np.nan)
        return found

    def _findings(
        self, lab: Lab, sample: Sample, each: Sequence[At], added: NDArray[np.float64]
    ) -> list[Finding]:
        names, depths = lab.subject.stream_names, tuple(map(float, sample.depths))
        count = len(names)
        findings: list[Finding] = []
        for i in range(count):
            for j in range(i + 1, count):
                nats = np.array([at.nats[i, j] for at in each])
                error = np.array([at.error[i, j] for at in each])
                findings.append(
                    Curve(
                        name=f"nats_{i}_{j}",
                        title=f"Information that streams {names[i]} and {names[j]} share",
                        unit=UNIT,
                        axis="depth",
                        places=depths,
                        **_band(nats, error),
                        words=f"streams {names[i]} and {names[j]} at depth {{}}: shared",
                    )
                )
                findings.append(self._rise(sample.depths, each, i, j, names))
        places = tuple(map(float, range(count)))
        last = each[-1]
        maps = (
            ("last", "Shared information at the last depth", UNIT, last.nats, "shared"),
            ("cka", "Linear CKA of streams at the last depth", "", last.cka, "CKA"),
            ("cosine", "Cosine of streams at the last depth", "", last.cosine, "cosine"),
            (
                "unexplained",
                "Share of a stream's variance that another leaves unexplained, most over depths "
                "behind the first",
                "",
                np.max([at.unexplained for at in each[1:]], axis=0),
                "unexplained share of the column's stream",
            ),
            (
                "added",
                "Nats on all labels that a stream adds to another, at the last depth",
                UNIT,
                added,
                "added by the column's stream to the row's",
            ),
        )
        findings += [
            Matrix(
                name=name,
                title=title,
                unit=unit,
                row_axis="given stream",
                column_axis="stream",
                rows=places,
                columns=places,
                values=table(values),
                words=f"streams {{row}} and {{column}}: {words}",
            )
            for name, title, unit, values, words in maps
        ]
        for place, (name, title) in enumerate(
            (
                ("rank", "Effective number of streams"),
                ("rank_centred", "The same without the all-ones direction, their mean"),
            )
        ):
            findings.append(
                Curve(
                    name=name,
                    title=title,
                    unit=f"of {count - place}",
                    axis="depth",
                    places=depths,
                    values=row([at.ranks[place] for at in each]),
                    words=f"depth {{}}: {title[0].lower()}{title[1:]}",
                )
            )
        for name, title, read in (
            ("cka_by_depth", "Linear CKA of two streams, mean over pairs", "cka"),
            ("cosine_by_depth", "Cosine of two streams, mean over pairs", "cosine"),
        ):
            others = ~np.eye(count, dtype=bool)
            means = [float((at.cka if read == "cka" else at.cosine)[others].mean()) for at in each]
            findings.append(
                Curve(name=name, title=title, axis="depth", places=depths, values=row(means))
            )
        return findings

    def _rise(
        self, depths: Sequence[int], each: Sequence[At], i: int, j: int, names: Sequence[str]
    ) -> Number:
        """Slope of what two streams share over the depths behind the first.

        At least three depths are needed: a line through two says nothing of its error.
        """
        title = f"Rise of what streams {names[i]} and {names[j]} share, behind the first depth"
        made = partial(Number, name=f"rise_{i}_{j}", title=title, unit="nats/depth")
        later = np.array(depths[1:], np.float64)
        if len(later) < LEAST_DEPTHS:
            return made(value=None)
        centred = later - later.mean()
        weights = centred / (centred**2).sum()
        slope = float(weights @ np.array([at.nats[i, j] for at in each[1:]]))
        error = jackknife(weights @ np.array([at.without[:, i, j] for at in each[1:]]))
        low, high = value(slope - 1.96 * error), value(slope + 1.96 * error)
        return made(value=value(slope), low=low, high=high)

    def _estimators(self, beside: dict[int, list[list[Estimate]]]) -> list[Finding]:
        """Means over the streams beside stream 0, with the largest error."""
        depths = tuple(map(float, beside))
        findings: list[Finding] = []
        for place, estimator in enumerate(ESTIMATORS if beside else ()):
            found = [[pair[place] for pair in pairs] for pairs in beside.values()]
            nats = np.array([np.mean([one.seen for one in line]) for line in found])
            error = np.array([np.max([one.error for one in line]) for line in found])
            findings.append(
                Curve(
                    name=f"by_{estimator.name}",
                    title=f"Shared with stream 0, mean over the others: {estimator.title}",
                    unit=UNIT,
                    axis="depth",
                    places=depths,
                    **_band(nats, error),
                    words=f"{estimator.title}, depth {{}}: mean with stream 0",
                )
            )
            biases = [one.bias for line in found for one in line if not one.saturated]
            findings.append(
                Number(
                    name=f"bias_{estimator.name}",
                    title=f"Bias of {estimator.title} on Gaussians, taken off; the largest",
                    unit=UNIT,
                    value=value(max(biases, key=abs)) if biases else None,
                )
            )
        return findings

    def _words(
        self,
        lab: Lab,
        sample: Sample,
        each: Sequence[At],
        beside: dict[int, list[list[Estimate]]],
    ) -> list[str]:
        names, last = lab.subject.stream_names, each[-1]
        whole, centred = last.ranks
        said = [
            f"At the last depth {whole:.2f} of {len(names)} streams are effective, and "
            f"{centred:.2f} of {len(names) - 1} directions beside their mean."
        ]
        order = np.nan_to_num(last.nats, nan=-np.inf)
        i, j = np.unravel_index(int(order.argmax()), order.shape)
        at = "at least " if last.ceiling[i, j] else ""
        said.append(
            f"At the last depth streams {names[int(i)]} and {names[int(j)]} share most: {at}"
            f"{last.nats[i, j]:.3g} ± {1.96 * last.error[i, j]:.2g} nats in {self.components} "
            "components."
        )
        for i in range(len(names)):
            for j in range(i + 1, len(names)):
                worst = max(max(at.unexplained[i, j], at.unexplained[j, i]) for at in each[1:])
                if worst < LINEAR:
                    said.append(
                        f"Streams {names[i]} and {names[j]} are linear functions of each other at "
                        f"all depths: at most {worst:.1e} of either's variance is left."
                    )
        spread = [
            max(one.nats for one in seen) - min(one.nats for one in seen)
            for pairs in beside.values()
            for pair in pairs
            if len(seen := [one for one in pair if not one.saturated]) > 1
        ]
        if spread:
            said.append(f"Between the estimators lie up to {max(spread):.2g} nats.")
        for place, estimator in enumerate(ESTIMATORS):
            if any(pair[place].saturated for pairs in beside.values() for pair in pairs):
                said.append(
                    f"{estimator.title} cannot see so much information from so many tokens, and "
                    "is left out where it misses more than a third on Gaussians."
                )
        return said


def _band(nats: NDArray[Any], error: NDArray[Any]) -> dict[str, Any]:
    """Values of a curve with their 95 % intervals."""
    reach = 1.96 * error
    return {"values": row(nats), "low": row(nats - reach), "high": row(nats + reach)}


def jackknife(without: NDArray[np.float64]) -> float:
    """Standard error from estimates that each leave one group out (Quenouille 1956)."""
    groups = len(without)
    spread = ((without - without.mean()) ** 2).sum()
    return float(np.sqrt((groups - 1) / groups * spread))


def unexplained(
    x: NDArray[np.float32], y: NDArray[np.float32], held_out: NDArray[np.bool_]
) -> float:
    """``Σ (y - ŷ)² / Σ (y - mean)²`` on held-out documents; ``ŷ`` by ridge regression on ``x``."""
    a, b = x[~held_out].astype(np.float64), y[~held_out].astype(np.float64)
    mean_a, mean_b = a.mean(0), b.mean(0)
    a, b = a - mean_a, b - mean_b
    gram = a.T @ a
    gram[np.diag_indices_from(gram)] += 1e-6 * max(np.trace(gram) / len(gram), 1e-30)
    weights = np.linalg.solve(gram, a.T @ b)
    test = y[held_out] - mean_b
    rest = test - (x[held_out] - mean_a) @ weights
    total = float((test**2).sum())
    return float((rest**2).sum()) / total if total else 0.0


def ranks(z: NDArray[np.float32]) -> tuple[float, float]:
    """``exp(-Σ p ln p)``, ``p`` the singular values of the streams as rows over their sum.

    Twice: as they are, and less their mean, which is what copies of one stream have alone.
    """
    rows = z.reshape(len(z), -1).astype(np.float64)
    return _rank(rows), _rank(rows - rows.mean(0))


def _rank(rows: NDArray[np.float64]) -> float:
    squares = np.linalg.eigvalsh(rows @ rows.T).clip(min=0)
    # of equal streams the rest is rounding
    values = np.sqrt(np.where(squares > squares.max() * len(rows) * 1e-12, squares, 0.0))
    total = values.sum()
    if not total:
        return 0.0
    shares = values[values > 0] / total
    return float(np.exp(-(shares * np.log(shares)).sum()))


def cosines(z: NDArray[np.float32]) -> NDArray[np.float64]:
    """Mean over tokens of the cosine of two streams, for all pairs."""
    sizes = np.linalg.norm(z, axis=-1, keepdims=True)
    units = z.astype(np.float64) / np.maximum(sizes, np.finfo(np.float32).tiny)
    return (np.einsum("ind,jnd->ij", units, units) / z.shape[1]).astype(np.float64)


def ckas(z: NDArray[np.float32]) -> NDArray[np.float64]:
    """Linear CKA ``‖XᵀY‖² / (‖XᵀX‖ ‖YᵀY‖)`` of centred streams, for all pairs."""
    centred = z.astype(np.float64) - z.mean(1, keepdims=True, dtype=np.float64)
    count = len(z)
    found = np.array(
        [[np.linalg.norm(centred[i].T @ centred[j]) for j in range(count)] for i in range(count)]
    )
    own = np.diag(found)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (found**2 / np.outer(own, own)).astype(np.float64)
