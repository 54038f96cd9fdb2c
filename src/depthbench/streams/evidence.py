"""What the results of the other probes say for and against merging each stream."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from depthbench.config import Frozen
from depthbench.probes.result import Curve, Matrix, Number, ProbeResult
from depthbench.streams.shared import LINEAR


class Case(Frozen):
    """One stream."""

    stream: int
    main: int
    """The stream whose removal costs most, which others are held against."""
    changes: tuple[float, ...]
    """Growth of the loss by range of blocks, as a share; re-trained where that is known."""
    by_domain: dict[str, tuple[float, ...]]
    whole: float | None
    """The same over all blocks."""
    hard: tuple[float, ...]
    """Without training, by range."""
    slope: float | None
    """Nats per depth by which the information shared with the main stream rises."""
    slope_error: float | None
    linear: bool
    """Whether it is a linear function of the main stream at all depths behind the first."""
    pairs: dict[int, float]
    """Growth without it and another stream too."""


class Evidence(Frozen):
    """All streams of a model."""

    cases: tuple[Case, ...]
    seeds: int
    """Of re-training; 0 where nothing was re-trained."""
    domains: tuple[str, ...]
    shared: bool
    """Whether it was measured what streams share."""


def evidence_of(results: Mapping[str, ProbeResult], streams: int) -> Evidence | None:
    """From `ablation`, `retrained` and `shared`; None where no ablation of all ranges is there."""
    ablation = source = results.get("ablation")
    if ablation is None or source is None:
        return None
    hard = changes = _by_range(ablation, "zero", streams)
    kind, trained = "zero", results.get("retrained")
    if trained is not None and (found := _by_range(trained, "retrained", streams)) is not None:
        source, kind, changes = trained, "retrained", found
    wholes = [_whole(source, kind, one) for one in range(streams)]
    known = [one for one in wholes if one is not None]
    if changes is None or hard is None or len(known) < streams:
        return None
    main = int(np.argmax(known))
    domains = source.text.domains
    return Evidence(
        cases=tuple(
            _case(results, source, kind, one, main, hard[one], changes[one], wholes[one], domains)
            for one in range(streams)
        ),
        seeds=_seeds(source),
        domains=domains,
        shared="shared" in results,
    )


def _case(
    results: Mapping[str, ProbeResult],
    source: ProbeResult,
    kind: str,
    stream: int,
    main: int,
    hard: NDArray[np.float64],
    changes: NDArray[np.float64],
    whole: float | None,
    domains: Sequence[str],
) -> Case:
    slope, error, linear = _rise(results.get("shared"), stream, main)
    by_domain = {}
    for number, name in enumerate(domains):
        line = _in_domain(source, kind, number, stream)
        if line is not None:
            by_domain[name] = line
    return Case(
        stream=stream,
        main=main,
        changes=tuple(changes.tolist()),
        by_domain=by_domain,
        whole=whole,
        hard=tuple(hard.tolist()),
        slope=slope,
        slope_error=error,
        linear=linear,
        pairs=_pairs(results["ablation"], source, kind, stream),
    )


def _find(result: ProbeResult, name: str) -> Curve | Matrix | Number | None:
    return next((one for one in result.findings if one.name == name), None)


def _by_range(result: ProbeResult, kind: str, streams: int) -> NDArray[np.float64] | None:
    """``(streams, ranges)`` as shares; None unless every stream is there."""
    if kind == "zero":
        found = _find(result, "zero_by_depth")
        if not isinstance(found, Matrix) or len(found.rows) != streams:
            return None
        return np.array(found.values, np.float64) / 100
    lines = [_find(result, f"retrained_{one}") for one in range(streams)]
    values = [one.values for one in lines if isinstance(one, Curve)]
    return np.array(values, np.float64) / 100 if len(values) == streams else None


def _in_domain(
    result: ProbeResult, kind: str, number: int, stream: int
) -> tuple[float, ...] | None:
    name = f"zero_by_depth_{number}" if kind == "zero" else f"retrained_domain_{number}"
    found = _find(result, name)
    if not isinstance(found, Matrix) or float(stream) not in found.rows:
        return None
    line = found.values[found.rows.index(float(stream))]
    return tuple(one / 100 for one in line if one is not None)


def _whole(result: ProbeResult, kind: str, stream: int) -> float | None:
    found = _find(result, f"zero_{stream}" if kind == "zero" else f"retrained_whole_{stream}")
    if not isinstance(found, Number) or found.value is None:
        return None
    return found.value / 100


def _pairs(ablation: ProbeResult, source: ProbeResult, kind: str, stream: int) -> dict[int, float]:
    """Re-trained where it is known, else hard only where nothing was re-trained."""
    found: dict[int, float] = {}
    table = _find(ablation, "pairs")
    if kind == "zero" and isinstance(table, Matrix):
        for other, one in enumerate(table.values[stream]):
            if one is not None:
                found[other] = one / 100
    for one in source.findings:
        parts = one.name.removeprefix("retrained_whole_").split("_")
        if isinstance(one, Number) and len(parts) == 2 and one.name.startswith("retrained_whole_"):
            pair = [int(part) for part in parts]
            if stream in pair and one.value is not None:
                found[next(n for n in pair if n != stream)] = one.value / 100
    return found


def _rise(
    shared: ProbeResult | None, stream: int, main: int
) -> tuple[float | None, float | None, bool]:
    """Slope of the shared information by depth, behind the first, with its error."""
    if shared is None or stream == main:
        return None, None, False
    low, high = sorted((stream, main))
    rise, left = _find(shared, f"rise_{low}_{high}"), _find(shared, "unexplained")
    linear = False
    if isinstance(left, Matrix):
        share = left.values[main][stream]
        linear = share is not None and share < LINEAR
    if not isinstance(rise, Number) or rise.value is None:
        return None, None, linear
    if rise.low is None or rise.high is None:
        return None, None, linear
    return rise.value, (rise.high - rise.low) / 2 / 1.96, linear


def _seeds(result: ProbeResult) -> int:
    if result.probe != "retrained":
        return 0
    return len({one["seed"] for one in result.options["rows"]})
