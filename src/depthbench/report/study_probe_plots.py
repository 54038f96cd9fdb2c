"""Figures of a study's probes: few, and of its deepest models; its maps are chosen on the page."""

from typing import Any, NamedTuple

from depthbench.report.probe_groups import curves
from depthbench.report.probe_plots import curve_plot
from depthbench.report.study_probes import ProbedStudy
from depthbench.report.style import Mark

CURVES = (("depth", "removal"), ("lens", "divergence"))


class StudyPlots(NamedTuple):
    """A few figures of a study's probes."""

    figures: dict[str, Any]
    """By their names in the page's payload."""
    curves: list[tuple[str, str]]
    """Names with titles."""


def study_plots(study: ProbedStudy | None, style: dict[str, Mark]) -> StudyPlots:
    """Of the deepest shape alone: the pages of the trials have the rest."""
    plots = StudyPlots({}, [])
    if study is None or not study.trials:
        return plots
    models = [trial.model for trial in study.deepest]
    for probe, finding in CURVES:
        for one in curves(models, probe):
            if one.first.name == finding:
                name = f"probe-{probe}"
                plots.figures[name] = curve_plot(one, style)
                plots.curves.append((name, one.title))
    return plots
