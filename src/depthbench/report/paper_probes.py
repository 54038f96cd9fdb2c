"""What a paper needs of a study's probes: figures, a table with intervals, drafts of captions."""

from collections.abc import Callable, Iterator

from matplotlib.figure import Figure

from depthbench.probes.result import Number
from depthbench.report.latex import caption, latex, tabular
from depthbench.report.probe_figures import curve_figure, file_name, map_figure
from depthbench.report.probe_groups import curves, matrices, numbers, probes_of
from depthbench.report.study_probes import VERDICT, ProbedStudy
from depthbench.report.style import Mark
from depthbench.study.words import counted, listed


def probe_drawings(
    study: ProbedStudy | None, style: dict[str, Mark]
) -> dict[str, Callable[[], Figure]]:
    """What draws each curve and each row of maps of the deepest shape, by the name of its files."""
    found: dict[str, Callable[[], Figure]] = {}
    if study is None or not study.trials:
        return found
    models = [trial.model for trial in study.deepest]
    for probe in probes_of(models):
        for lines in curves(models, probe):
            name = file_name(f"probe-{probe}", lines.first.name)
            found[name] = lambda one=lines: curve_figure(one, style)
        for maps in matrices(models, probe):
            name = file_name(f"probe-{probe}", maps.first.name)
            found[name] = lambda one=maps: map_figure(one)
    return found


def depth_table(study: ProbedStudy | None) -> str:
    """`depth`'s numbers of every probed trial with their intervals; nothing where none has any."""
    models = [] if study is None else [trial.model for trial in study.trials]
    found = numbers(models, VERDICT)
    own = {
        (id(model), place): number for place, one in enumerate(found) for model, number in one.sides
    }
    lines = [
        [latex(model.name), *(_cell(own.get((id(model), place))) for place in range(len(found)))]
        for model in models
        if model.of(VERDICT)
    ]
    head = ["trial", *(latex(one.title) for one in found)]
    return tabular("l" + "r" * len(found), head, lines) if lines else ""


def probe_captions(study: ProbedStudy | None) -> Iterator[str]:
    """A draft for the table, and for each probe of the deepest shape: definition, blind spot,
    models and tokens."""
    if study is None or not study.trials:
        return
    if any(trial.model.of(VERDICT) for trial in study.trials):
        yield caption(
            "How much of its depth each of the best and the deepest trials uses, with the interval "
            "of each number in brackets: 95 % bootstrap over documents unless said otherwise."
        )
    models = [trial.model for trial in study.deepest]
    for probe in probes_of(models):
        results = [(model.name, result) for model in models if (result := model.of(probe))]
        sizes = {(one.text.tokens, one.text.documents) for _, one in results}
        texts = listed(
            f"{tokens:,} tokens of {counted(many, 'document')}" for tokens, many in sizes
        )
        first = results[0][1]
        yield caption(
            f"{first.title} of {listed(name for name, _ in results)}, on {texts}. "
            f"Definition: {first.definition}. Not seen: {first.blind}"
        )


def _cell(number: Number | None) -> str:
    if number is None or number.value is None:
        return "--"
    unit = f" {latex(number.unit)}" if number.unit else ""
    span = f" ({latex(number.shown_span)})" if number.shown_span else ""
    return f"{number.shown}{unit}{span}"
