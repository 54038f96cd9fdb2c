"""Findings of one trial, in words and numbers: ``health.json`` beside its metrics."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from depthbench.config import Frozen
from depthbench.errors import DepthbenchError
from depthbench.files import write_atomic
from depthbench.train.health import depth_rules, loss_rules
from depthbench.train.health.history import Finding, History, Severity
from depthbench.train.health.loss_rules import LossSlope, loss_slope

FILE = "health.json"
ORDER: tuple[Severity, ...] = ("problem", "warning", "note")
RULES: tuple[Callable[[History], list[Finding]], ...] = (
    loss_rules.divergence,
    loss_rules.loss_lost,
    loss_rules.no_learning,
    loss_rules.spikes,
    depth_rules.not_finite,
    depth_rules.gradient_ratio,
    depth_rules.second_moment_low,
    depth_rules.update_size,
    depth_rules.similarity_rising,
    depth_rules.state_growth,
    depth_rules.mixing_error,
    depth_rules.low_precision_drift,
    depth_rules.experts,
)


class HealthReport(Frozen):
    """``health.json``: it depends on the records of ``metrics.jsonl`` and the config alone."""

    format: Literal[1] = 1
    step: int
    """Last step that the findings know of."""
    loss_slope: LossSlope | None
    """None while too few losses are recorded."""
    findings: tuple[Finding, ...]
    """The most serious first, then by step."""

    def write(self, folder: Path) -> None:
        """Put it in place as the folder's ``health.json``."""
        write_atomic(folder / FILE, json.dumps(self.resolved(), indent=1) + "\n")


def report_of(history: History) -> HealthReport:
    """All that the rules find."""
    found = [finding for rule in RULES for finding in rule(history)]
    found.sort(key=lambda finding: (ORDER.index(finding.severity), finding.step))
    return HealthReport(step=history.step, loss_slope=loss_slope(history), findings=tuple(found))


def read_report(folder: Path) -> HealthReport | None:
    """The findings of the trial in ``folder``; None where there are none yet.

    Raises `DepthbenchError` for a file that is something else.
    """
    path = folder / FILE
    if not path.exists():
        return None
    try:
        return HealthReport.parse(json.loads(path.read_text(encoding="utf-8")), str(path))
    except (OSError, ValueError) as error:
        raise DepthbenchError(f"{path} cannot be read: {error}. Train the trial again") from None
