"""One self-contained HTML report: no network, nothing from the user executes."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from depthbench.errors import DepthbenchError
from depthbench.files import write_atomic
from depthbench.report import facts, health, study_probes
from depthbench.report.aspect_plot import choices
from depthbench.report.domain_figure import domain_plot, write_domain_figure
from depthbench.report.domain_lines import domains_of
from depthbench.report.figures import write_figures
from depthbench.report.health_plots import health_figures, shown_signals
from depthbench.report.interactive import all_labels, interactive
from depthbench.report.linked_maps import first_pair, linked_maps
from depthbench.report.pareto_plot import SERVING, cost_choices
from depthbench.report.plots import panels
from depthbench.report.readings import FIGURES, Reading, reading_named, readings_of
from depthbench.report.study import StudyData, depths, load, published
from depthbench.report.study_probe_plots import study_plots
from depthbench.report.style import Mark, marks

SCRIPTS = ("report.js", "report_tools.js")
LIVE = "live.js"
SHOWS_PUBLISHED = Markup('<meta name="depthbench-published" content="yes">')
"""In a page with published curves, so that who writes it again can keep them."""


class ReportFiles(NamedTuple):
    """Where a report lies."""

    html: Path
    verdict: Path
    figures: list[Path]


def write_report(
    folder: Path, published: bool | None = None, out: Path | None = None
) -> ReportFiles:
    """Write ``report.html``, ``verdict.json`` and ``figures/*.png|svg`` of the study in ``folder``.

    ``published`` lays the published 400M curves below ours, in a panel of their own; None = as the
    page that is written over did. ``out`` is the folder to write to, the study's own by default.
    Works on a study with some trials missing. Raises `DepthbenchError` when ``folder`` is no study
    or no trial has finished.
    """
    study = load(folder)
    target = out or folder
    if published is None:
        published = _shows_published(target / "report.html")
    files = ReportFiles(
        html=target / "report.html",
        verdict=target / "verdict.json",
        figures=[
            *write_figures(study, target / "figures", published),
            *write_domain_figure(
                study.domain_lines,
                marks(all_labels(study, with_published=False)),
                target / "figures",
                f"{study.name}: loss by domain",
            ),
        ],
    )
    write_atomic(files.verdict, json.dumps(study.verdict.resolved(), indent=2) + "\n")
    write_atomic(files.html, render(study, published, target))
    return files


def render(
    study: StudyData,
    with_published: bool = False,
    target: Path = Path(),
    version: str | None = None,
) -> str:
    """The page as one string, for the folder ``target``; everything from the study is escaped.

    With the ``version`` of what it was made from it asks its server for the version that is now,
    and loads itself again when that is another one.
    """
    style = marks(all_labels(study, with_published))
    probed = study_plots(study.probes, style)
    trials = {one.row.id: one.model for one in study.probes.trials} if study.probes else {}
    drawn = interactive(study, with_published, style)
    figures = drawn.figures | health_figures(study.courses, style)
    costs = cost_choices(figures["pareto"]) if "pareto" in figures else []
    return render_page(
        "template.html",
        figures | probed.figures | domain_plot(study.domain_lines, style),
        style,
        version=version,
        maps=linked_maps(trials),
        readings=readings_of(list(trials.values())),
        pair=first_pair(study.probes),
        axes=choices(figures["aspect"]),
        costs=costs,
        served=any(choice.name in SERVING for choice in costs),
        remarks=drawn.remarks,
        study=study,
        verdict=study.verdict,
        ours={design.label for design in study.verdict.designs},
        published=published() if with_published else None,
        shows_published=SHOWS_PUBLISHED,
        depths=depths(study.verdict),
        panels=panels(study),
        domains=facts.domains(study.rows),
        evaluated_domains=domains_of(study.domain_lines),
        facts=facts,
        health=health,
        signals=shown_signals(study.courses),
        study_probes=study_probes,
        probed=probed,
        target=target,
    )


def render_page(
    template: str,
    figures: dict[str, Any],
    styles: Mapping[str, Mark],
    *,
    maps: Sequence[dict[str, Any]] = (),
    readings: Mapping[str, Reading] = FIGURES,
    version: str | None = None,
    **values: Any,
) -> str:
    """A page of the package as one string: ``figures`` by the names that its plots have."""
    plotly = _inline(get_plotlyjs())
    scripts = SCRIPTS if version is None else (*SCRIPTS, LIVE)
    script = _inline("".join(_read(name) for name in scripts))
    looks = {label: mark._asdict() for label, mark in styles.items()}
    try:
        return (
            _environment()
            .get_template(template)
            .render(
                payload={"figures": figures, "marks": looks, "maps": maps},
                version=version,
                maps=maps,
                reading_of=partial(reading_named, readings=readings),
                looks=looks,
                css=Markup(_read("report.css")),
                plotly=plotly,
                script=script,
                script_hashes=[_csp_hash(plotly), _csp_hash(script)],
                **values,
            )
        )
    except ValueError:
        broken = _not_finite(figures, maps)
        if broken is None:
            raise
        raise DepthbenchError(
            f"the page's figure '{broken}' holds a number that is not finite, which no browser "
            "reads: a file that it comes from has NaN or Infinity in it. Look in the study's "
            "results.jsonl, trials, probes and serving.json"
        ) from None


def render_plain(template: str, version: str, **values: Any) -> str:
    """A page of the package without figures, which follows its server as `render` says."""
    script = _inline(_read(LIVE))
    page = _environment().get_template(template)
    return page.render(
        version=version,
        css=Markup(_read("report.css")),
        script=script,
        script_hash=_csp_hash(script),
        **values,
    )


def _shows_published(page: Path) -> bool:
    try:
        return SHOWS_PUBLISHED in page.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def _not_finite(figures: Mapping[str, Any], maps: Sequence[dict[str, Any]]) -> str | None:
    """The figure that holds what JSON has no word for."""
    named = {**figures, **{f"map {one['name']}": one for one in maps}}
    for name, figure in named.items():
        try:
            json.dumps(figure, allow_nan=False)
        except ValueError:
            return name
    return None


@cache
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("depthbench.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # a list keeps the order in which a page offers it
    found.policies["json.dumps_kwargs"] = {"allow_nan": False}
    return found


def _read(name: str) -> str:
    file = resources.files("depthbench.report") / name
    return file.read_text(encoding="utf-8")


def _inline(code: str) -> Markup:
    """Our own or plotly's code for a script element, which only ``</script`` could leave."""
    if "</script" in code.lower():
        raise ValueError("code with '</script' cannot be inlined")
    return Markup(code)


def _csp_hash(code: str) -> str:
    """Source expression of a content security policy that allows just this script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}"
