"""Probes of one subject, one after another, each kept as soon as it is done."""

import json
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from depthbench.config import digest_of
from depthbench.errors import DepthbenchError
from depthbench.files import write_atomic
from depthbench.probes import REGISTRY
from depthbench.probes.crew import Make, crew_of
from depthbench.probes.lab import FORMAT, Lab, Progress
from depthbench.probes.probe import LackingError, Probe
from depthbench.probes.result import ProbeResult
from depthbench.probes.subject import Subject
from depthbench.probes.text import Text
from depthbench.probes.walk import Limits

PARTS = "parts"
Say = Callable[[str], None]


def run_probes(
    subject: Subject,
    text: Text,
    probes: Sequence[Probe],
    folder: Path | None = None,
    *,
    make: Make | None = None,
    workers: int = 1,
    limits: Limits | None = None,
    progress: Progress = lambda *_: None,
    say: Say = lambda _: None,
) -> list[ProbeResult]:
    """Results of ``probes`` that have something to say of ``subject``, in their order.

    They are kept in ``folder`` as ``<probe>.json``, with what was measured so far under ``parts``;
    what is found there for the same weights, text and options is not measured again. ``make`` loads
    the subject in each of ``workers``. A probe that refuses the subject is named through ``say``.
    """
    open_probes = [probe for probe in probes if not _refused(probe, subject, say)]
    known = {probe.name: _found(folder, probe, subject, text) for probe in open_probes}
    if any(one is None for one in known.values()):
        parts = None if folder is None else folder / PARTS / _key(subject, text)
        with crew_of(subject, make, text, limits or Limits(), workers) as crew:
            lab = Lab(subject, text, crew, parts, progress)
            lacking: DepthbenchError | None = None
            for probe in open_probes:
                try:
                    known[probe.name] = known[probe.name] or run_probe(probe, lab, folder)
                except LackingError as error:
                    lacking = error
                    say(f"{probe.name} is left out: {error}")
            if lacking is not None and not any(known.values()):
                raise lacking
    return [one for one in known.values() if one is not None]


def read_results(folder: Path, names: Collection[str] | None = None) -> list[ProbeResult]:
    """The results of ``names`` in ``folder``, by name, and of all probes unless they are given.

    Raises `DepthbenchError` for one that is broken.
    """
    paths = sorted(folder.glob("*.json"))
    return [read_result(path) for path in paths if names is None or path.stem in names]


def kept_results(
    folder: Path, results: Sequence[ProbeResult], say: Say = lambda _: None
) -> list[ProbeResult]:
    """``results`` with all else that ``folder`` holds of their weights and text, as `PROBES` are
    ordered; none for none.

    What cannot be read is named through ``say`` and left out.
    """
    known = {one.probe: one for one in results}
    of = {(one.subject.weights_hash, one.text.hash) for one in results}
    for path in sorted(folder.glob("*.json")) if results else ():
        try:
            one = read_result(path)
        except DepthbenchError as error:
            say(f"{error}. It is left out of the page")
            continue
        if (one.subject.weights_hash, one.text.hash) in of:
            known.setdefault(one.probe, one)
    order = {name: place for place, name in enumerate(REGISTRY)}
    return sorted(known.values(), key=lambda one: order.get(one.probe, len(order)))


def read_result(path: Path) -> ProbeResult:
    """One result; raises `DepthbenchError` if it is missing or broken."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DepthbenchError(
            f"{path} cannot be read: {error}. Remove it and probe the model again"
        ) from None
    return ProbeResult.parse(data, str(path))


def _refused(probe: Probe, subject: Subject, say: Say) -> bool:
    why = probe.refusal(subject)
    if why is not None:
        say(f"{probe.name}: {why}")
    return why is not None


def run_probe(probe: Probe, lab: Lab, folder: Path | None) -> ProbeResult:
    """Its result, kept in ``folder`` if there is one."""
    result = probe.run(lab)
    if folder is not None:
        write_atomic(folder / f"{probe.name}.json", result.model_dump_json(indent=1) + "\n")
    return result


def _found(folder: Path | None, probe: Probe, subject: Subject, text: Text) -> ProbeResult | None:
    """What the folder holds of this probe, if it is of this subject, text and options."""
    if folder is None or not (path := folder / f"{probe.name}.json").exists():
        return None
    try:
        result = read_result(path)
    except DepthbenchError:
        return None
    same = (
        result.subject.weights_hash == subject.facts.weights_hash
        and result.text.hash == text.facts.hash
        and result.options == probe.resolved()
        and result.definition == probe.definition
    )
    return result if same else None


def _key(subject: Subject, text: Text) -> str:
    """What the parts of a subject on a text are kept under."""
    rows = [list(batch.documents) for batch in text.batches]
    facts = (subject.facts.weights_hash, text.facts.hash, rows, str(subject.dtype))
    return digest_of([FORMAT, *facts])
