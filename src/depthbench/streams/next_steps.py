"""What to do behind a verdict, as commands that run."""

import shlex
from collections.abc import Mapping, Sequence

from depthbench.probes.subject import Subject
from depthbench.streams.evidence import Evidence

SAME = ", with the --data, --tokens and --length of now"
"""Results of other text are not held against each other."""
DEPTHS = 4
"""The first, and three behind it for a slope."""


def trains_on(subject: Subject) -> bool:
    """Whether its recipe and its data are known, so that it can be trained on."""
    return subject.facts.kind == "depthbench"


def next_steps(
    subject: Subject,
    evidence: Evidence | None,
    missing: Sequence[str],
    into: Mapping[int, int],
    *,
    copies: bool,
    seeds: int,
) -> list[str]:
    """In words; ``into`` says which streams can go and where to, ``copies`` that they are equal."""
    source = shlex.quote(subject.facts.source)
    found: list[str] = []

    def say(command: str, how: str = "") -> None:
        # the command stands last and without a full stop, so that it can be copied
        found.append(f"Next{how}: depthbench streams {command}")

    if evidence is None or not evidence.shared:
        say(f"diagnose {source}", SAME if evidence is not None else "")
    elif any("three depths" in one for one in missing):
        say(f"diagnose {source} --depths {DEPTHS}", SAME)
    if into and trains_on(subject) and (copies or not missing):
        say(merging(source, into, copies), "" if copies else ", and compare losses there")
    if evidence is not None and evidence.seeds < seeds:
        if trains_on(subject):
            say(f"ablate {source} --retrain --seeds {seeds}", SAME)
        else:
            found.append(
                "This model cannot be trained on here: the second and the third criterion are what "
                "can be reached, of hard removal and without a verdict."
            )
    if any(one.startswith("not converged") for one in missing):
        found.append("Next: train on until validation is flat, and diagnose again.")
    if any("domains" in one for one in missing):
        found.append("Next: give texts of more kinds with --data.")
    return found


def merging(source: str, into: Mapping[int, int], copies: bool) -> str:
    """The command, behind ``depthbench streams``."""
    pairs = ",".join(f"{one}:{other}" for one, other in into.items())
    return f"merge {source} --pairs {pairs} --way {'copies' if copies else 'weight'} --out smaller"
