"""Every interactive figure of a study's report, by its name on the page."""

from typing import Any, NamedTuple

from depthbench.report.aspect_plot import aspect_plot, placed
from depthbench.report.pareto_plot import gaps, pareto_plot
from depthbench.report.plots import published_plot, search_plot, training_plot
from depthbench.report.study import StudyData, published
from depthbench.report.style import Mark


class Interactive(NamedTuple):
    """Figures, and what their readers must know of them."""

    figures: dict[str, Any]
    """Name to plotly figure (``data``, ``layout``), as plain JSON data."""
    remarks: dict[str, list[str]]
    """By the figure's name: what it lacks."""


def all_labels(study: StudyData, with_published: bool) -> list[str]:
    """Every name that has a colour: the study's designs, then published ones."""
    ours = [design.label for design in study.verdict.designs]
    return ours + ([*published().validation_loss] if with_published else [])


def interactive(study: StudyData, with_published: bool, style: dict[str, Mark]) -> Interactive:
    """All that come from the study's own rows and curves."""
    curves = placed(study)
    figures = {"aspect": aspect_plot(curves, style)}
    if with_published:
        figures["published"] = published_plot(style).to_plotly_json()
    if any(design.search.grid for design in study.verdict.designs):
        figures["search"] = search_plot(study.verdict, style).to_plotly_json()
    if study.curves:
        figures["training"] = training_plot(study, style).to_plotly_json()
    pareto = pareto_plot(curves, study.serving, style)
    remarks = {"aspect": curves.remarks}
    if pareto:
        figures["pareto"] = pareto
        remarks["pareto"] = gaps(curves, study.serving)
    return Interactive(figures, remarks)
