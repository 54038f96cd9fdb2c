"""Check designs against all laws, several at once in processes of their own."""

import inspect
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pydantic import SerializeAsAny

from depthbench.check.law import Finding, Law
from depthbench.check.laws import LAWS
from depthbench.check.signal import DEPTHS, Signal, signal_at
from depthbench.check.subject import Subject, one_thread
from depthbench.config import Frozen
from depthbench.designs import REGISTRY, add_design, design_class, parse_design
from depthbench.designs.base import DesignConfig
from depthbench.designs.own import failed, line_of, read_design
from depthbench.errors import DepthbenchError, unknown
from depthbench.machine import end_with_parent, prepare_process
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
    refused: str | None = None
    """Why the design cannot be had on this backbone; then nothing was checked."""

    @property
    def broken(self) -> tuple[Finding, ...]:
        """The laws that do not hold."""
        return tuple(finding for finding in self.findings if finding.status == "broken")


def asked_for(
    spec: str | dict[str, Any], backbone: str | dict[str, Any], laws: Sequence[str]
) -> Asked:
    """A design by name, by table, or by the path of a Python file.

    Raises `DepthbenchError` for names, files and combinations that cannot be.
    """
    asked, subject = _asked(spec, backbone, laws)
    try:
        # a combination that is refused is refused here, before a process starts
        subject.on_meta()
    except DepthbenchError:
        raise
    except Exception as error:
        if asked.file is None:
            raise
        raise failed(Path(asked.file), error) from None
    return asked


def all_asked(backbone: str | dict[str, Any], laws: Sequence[str]) -> list[Asked | Checked]:
    """Every registered design; a finished answer for those that ``backbone`` cannot carry."""
    return [_asked_or_refused(name, backbone, laws) for name in REGISTRY]


def _asked_or_refused(
    name: str, backbone: str | dict[str, Any], laws: Sequence[str]
) -> Asked | Checked:
    asked, subject = _asked(name, backbone, laws)
    try:
        subject.on_meta()
    except DepthbenchError as error:
        return Checked(
            label=subject.label,
            design=subject.design,
            backbone=subject.backbone,
            findings=(),
            seconds=0.0,
            refused=str(error),
        )
    return asked


def _asked(
    spec: str | dict[str, Any], backbone: str | dict[str, Any], laws: Sequence[str]
) -> tuple[Asked, Subject]:
    for name in laws:
        if name not in LAWS:
            raise unknown("law", name, LAWS)
    kind = parse_backbone(backbone)
    file = spec if isinstance(spec, str) and _is_path(spec) else None
    design = parse_design(spec if file is None else add_design(read_design(Path(file))))
    chosen = tuple(dict.fromkeys(laws or LAWS))
    asked = Asked(design=design.resolved(), backbone=kind.resolved(), file=file, laws=chosen)
    return asked, Subject(design, kind)


def _is_path(spec: str) -> bool:
    return spec.endswith(".py") or os.sep in spec or "/" in spec


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
        return Finding(law=law.name, status="broken", detail=_said(error, subject))
    return Finding(
        law=law.name,
        status=outcome.status,
        measured=outcome.measured,
        limit=outcome.limit,
        detail=outcome.detail,
    )


def _said(error: Exception, subject: Subject) -> str:
    """The first line of the message, and the line of the design's file that it came through."""
    first = next(iter(str(error).strip().splitlines()), "")
    said = f"{type(error).__name__}: {first}"
    try:
        path = Path(inspect.getfile(design_class(subject.design.name)))
    except (OSError, TypeError):  # a class that was typed in has no file
        return said
    line = line_of(error, path)
    return said if line is None else f"{said} ({path.name}, line {line})"


def _signals(subject: Subject) -> Iterator[Signal]:
    """Depths that fail are told by the law."""
    for layers in DEPTHS:
        try:
            yield signal_at(subject, layers)
        except Exception:
            return


def check_all(
    asked: Sequence[Asked | Checked],
    workers: int,
    done: Callable[[Checked], None] = lambda _: None,
) -> list[Checked]:
    """Every one, in the order given; ``done`` is called as each ends. What is checked stays.

    Raises `DepthbenchError` if a design ends the process that checks it.
    """
    found = {number: one for number, one in enumerate(asked) if isinstance(one, Checked)}
    left = {number: one for number, one in enumerate(asked) if isinstance(one, Asked)}
    for one in found.values():
        done(one)
    if workers == 1 or len(left) == 1:
        found |= {number: _told(check(one), done) for number, one in left.items()}
    elif left:
        found |= _in_processes(left, workers, done)
    return [found[number] for number in range(len(asked))]


def _in_processes(
    asked: dict[int, Asked], workers: int, done: Callable[[Checked], None]
) -> dict[int, Checked]:
    context = get_context("spawn")
    pool = ProcessPoolExecutor(min(workers, len(asked)), mp_context=context, initializer=_prepare)
    try:
        futures = {pool.submit(check, one): number for number, one in asked.items()}
        return {futures[one]: _told(one.result(), done) for one in as_completed(futures)}
    except BrokenProcessPool:
        raise DepthbenchError(
            "a process that checks designs was ended from outside (out of memory?). Check fewer "
            "at once: --workers 1"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare() -> None:
    # an interrupt ends the process without a word
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    end_with_parent()
    prepare_process(threads=1)


def _told(checked: Checked, done: Callable[[Checked], None]) -> Checked:
    done(checked)
    return checked


def all_broken(checked: Iterable[Checked]) -> list[tuple[str, Finding]]:
    """Design and law of whatever does not hold."""
    return [(one.label, finding) for one in checked for finding in one.broken]


def refuse_empty(specs: Sequence[str], every: bool) -> None:
    """Raise `DepthbenchError` unless designs are named, or all are asked for, and not both.

    Nor may one be named twice.
    """
    if bool(specs) == every:
        raise DepthbenchError(
            "name designs or files, or write --all. Example: depthbench check hc ./mine.py"
        )
    for spec in specs:
        if specs.count(spec) > 1:
            raise DepthbenchError(f"'{spec}' is named twice: name each design once")
