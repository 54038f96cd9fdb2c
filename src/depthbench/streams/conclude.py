"""From the results that a folder holds to a verdict and a page."""

from collections.abc import Callable, Sequence
from pathlib import Path

from depthbench.probes.lab import Alone, Lab
from depthbench.probes.result import ProbeResult
from depthbench.probes.run import kept_results, run_probe
from depthbench.probes.subject import Subject
from depthbench.probes.text import Text
from depthbench.probes.walk import Limits
from depthbench.streams import ORDER
from depthbench.streams.evidence import evidence_of
from depthbench.streams.flat import validation_of
from depthbench.streams.verdict import Verdict

VALIDATIONS = 5
"""That must be flat before a verdict."""


def conclude(
    subject: Subject,
    text: Text,
    folder: Path,
    results: Sequence[ProbeResult],
    *,
    seed: int = 0,
    say: Callable[[str], None] = lambda _: None,
) -> list[ProbeResult]:
    """``results`` with all else that ``folder`` holds of this model and text, the verdict first.

    The verdict is made anew and kept as ``verdict.json``, where the model has several streams.
    """
    kept = [one for one in kept_results(folder, results, say) if one.probe != Verdict.name]
    of = {one.probe: one for one in kept}
    if subject.facts.streams > 1:
        verdict = Verdict(
            seed=seed,
            evidence=evidence_of(of, subject.facts.streams),
            validation=validation_of(subject.trial, VALIDATIONS),
        )
        lab = Lab(subject, text, Alone(subject, text, Limits()))
        kept.append(run_probe(verdict, lab, folder))
    return in_order(kept)


def in_order(results: Sequence[ProbeResult]) -> list[ProbeResult]:
    """As they stand on a page."""
    places = {name: place for place, name in enumerate(ORDER)}
    return sorted(results, key=lambda one: places.get(one.probe, len(places)))
