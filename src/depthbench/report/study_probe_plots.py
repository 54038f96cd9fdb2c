"""Figures of a study's probes: few, and of its deepest models."""

from typing import Any, NamedTuple

from depthbench.report.probe_groups import Probed, curves, matrices, scale_of
from depthbench.report.probe_plots import curve_plot, map_plots
from depthbench.report.study_probes import ProbedStudy
from depthbench.report.style import Mark

MAP = ("causal", "effect")
CURVES = (("depth", "removal"), ("lens", "divergence"))


class StudyPlots(NamedTuple):
    """A few figures of a study's probes."""

    figures: dict[str, Any]
    """By their names in the page's payload."""
    curves: list[tuple[str, str]]
    """Names with titles."""
    maps: list[tuple[str, Probed]]
    """Names with their models."""
    title: str
    """Of the maps."""
    colours: str
    """What is to be said of theirs."""


def study_plots(study: ProbedStudy | None, style: dict[str, Mark]) -> StudyPlots:
    """Of the deepest shape alone: the pages of the trials have the rest."""
    plots = StudyPlots({}, [], [], "", "")
    if study is None or not study.trials:
        return plots
    models = [trial.model for trial in study.deepest]
    for one in matrices(models, MAP[0]):
        if one.first.name == MAP[1]:
            plots = plots._replace(title=one.title, colours=scale_of(one).words)
            for side, (model, figure) in enumerate(map_plots(one)):
                name = f"probe-map-{side}"
                plots.figures[name] = figure
                plots.maps.append((name, model))
    for probe, finding in CURVES:
        for one in curves(models, probe):
            if one.first.name == finding:
                name = f"probe-{probe}"
                plots.figures[name] = curve_plot(one, style)
                plots.curves.append((name, one.title))
    return plots
