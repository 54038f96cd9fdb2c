"""Check designs against all laws, several at once in processes of their own."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pydantic import SerializeAsAny

from depthbench.check.law import Finding, Law
from depthbench.check.laws import LAWS
from depthbench.check.signal import DEPTHS, Signal, signal_at
from depthbench.check.subject import Subject, one_thread
from depthbench.config import Frozen
from depthbench.designs import add_design, parse_design
from depthbench.designs.base import DesignConfig
from depthbench.designs.own import read_design
from depthbench.errors import DepthbenchError, unknown
from depthbench.machine import prepare_process
from depthbench.nn.backbones import parse_backbone
from depthbench.nn.branch import Backbone

SIGNAL = "signal"


class Asked(Frozen):
    """One design to check, as a process of its own can be told."""

    design: dict[str, Any]
    backbone: dict[str, Any]
    file: str | None = None
    """Python file that defines the design; None for a registered one."""
    laws: tuple[str, ...]

    def subject(self) -> Subject:
        """Reads the file first, where there is one."""
        if self.file is not None:
            add_design(read_design(Path(self.file)))
        return Subject(parse_design(self.design), parse_backbone(self.backbone))


class Checked(Frozen):
    """What all laws found about one design."""

    label: str
    design: SerializeAsAny[DesignConfig]
    backbone: SerializeAsAny[Backbone]
    findings: tuple[Finding, ...]
    signals: tuple[Signal, ...] = ()
    """The init card at every depth."""
    seconds: float

    @property
    def broken(self) -> tuple[Finding, ...]:
        """The laws that do not hold."""
        return tuple(finding for finding in self.findings if finding.status == "broken")


def asked_for(
    spec: str | dict[str, Any], backbone: str | dict[str, Any], laws: Sequence[str]
) -> Asked:
    """A design by name, by table, or by the path of a Python file (ending in ``.py``).

    Raises `DepthbenchError` for names, files and combinations that cannot be.
    """
    for name in laws:
        if name not in LAWS:
            raise unknown("law", name, LAWS)
    file = spec if isinstance(spec, str) and spec.endswith(".py") else None
    design = parse_design(_named(file) if file is not None else spec)
    kind = parse_backbone(backbone)
    # a combination that is refused is refused here, before a process starts
    Subject(design, kind).on_meta()
    chosen = tuple(laws) or tuple(LAWS)
    return Asked(design=design.resolved(), backbone=kind.resolved(), file=file, laws=chosen)


def _named(file: str) -> str:
    return add_design(read_design(Path(file)))


def check(asked: Asked) -> Checked:
    """All laws in this process, one thread."""
    started = time.perf_counter()
    subject = asked.subject()
    with one_thread():
        findings = tuple(_finding(LAWS[name], subject) for name in asked.laws)
        cards = tuple(_signals(subject)) if SIGNAL in asked.laws else ()
    return Checked(
        label=subject.label,
        design=subject.design,
        backbone=subject.backbone,
        findings=findings,
        signals=cards,
        seconds=time.perf_counter() - started,
    )


def _finding(law: Law, subject: Subject) -> Finding:
    """A law whose check fails with an error is broken by that error."""
    try:
        outcome = law.check(subject)
    except Exception as error:
        first = next(iter(str(error).strip().splitlines()), "")
        said = f"{type(error).__name__}: {first}"
        return Finding(law=law.name, status="broken", detail=said)
    return Finding(
        law=law.name,
        status=outcome.status,
        measured=outcome.measured,
        limit=outcome.limit,
        detail=outcome.detail,
    )


def _signals(subject: Subject) -> Iterator[Signal]:
    """Depths that fail are told by the law."""
    for layers in DEPTHS:
        try:
            yield signal_at(subject, layers)
        except Exception:
            return


def check_all(
    asked: Sequence[Asked], workers: int, done: Callable[[Checked], None] = lambda _: None
) -> list[Checked]:
    """Every one, in the order asked; ``done`` is called as each ends."""
    if workers == 1 or len(asked) == 1:
        return [_told(check(one), done) for one in asked]
    found: dict[int, Checked] = {}
    context = get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_prepare) as pool:
        futures = {pool.submit(check, one): number for number, one in enumerate(asked)}
        for future in as_completed(futures):
            found[futures[future]] = _told(future.result(), done)
    return [found[number] for number in range(len(asked))]


def _prepare() -> None:
    prepare_process(threads=1)


def _told(checked: Checked, done: Callable[[Checked], None]) -> Checked:
    done(checked)
    return checked


def all_broken(checked: Iterable[Checked]) -> list[tuple[str, Finding]]:
    """Design and law of whatever does not hold."""
    return [(one.label, finding) for one in checked for finding in one.broken]


def refuse_empty(specs: Sequence[str], every: bool) -> None:
    """Raise `DepthbenchError` unless designs are named, or all are asked for, and not both."""
    if bool(specs) == every:
        raise DepthbenchError(
            "name designs or files, or write --all. Example: depthbench check hc ./mine.py"
        )
