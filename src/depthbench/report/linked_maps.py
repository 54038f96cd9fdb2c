"""Heat maps of two models side by side, which the reader chooses: one scale, linked cells."""

from collections.abc import Mapping
from typing import Any

from depthbench.report.probe_groups import Probed, matrices, probes_of, scale_of
from depthbench.report.probe_plots import map_plots
from depthbench.report.study_probes import ProbedStudy

FIRST = "causal"
"""Probe whose maps stand first: what each block does to those above it."""
DIGITS = 4
"""Of a cell: what a reader can use, in a page that holds every model's maps."""


def linked_maps(trials: Mapping[str, Probed]) -> list[dict[str, Any]]:
    """Every matrix that a model has, with its words and a figure for each by its trial's id.

    What a page offers for choice has names that stay when the study gets more of it.
    """
    found: list[dict[str, Any]] = []
    models = list(trials.values())
    for probe in sorted(probes_of(models), key=lambda name: name != FIRST):
        for one in matrices(models, probe):
            first = next(result for model, _ in one.sides if (result := model.of(probe)))
            drawn = {model.name: _short(figure) for model, figure in map_plots(one)}
            figures = {
                trial: drawn[model.name] for trial, model in trials.items() if model.name in drawn
            }
            found.append(
                {
                    "name": f"{probe}.{one.first.name}",
                    "title": " · ".join(dict.fromkeys([first.title, one.title])),
                    "definition": first.definition,
                    "blind": first.blind,
                    "colours": scale_of(one).words,
                    "figures": figures,
                }
            )
    return found


def first_pair(study: ProbedStudy | None) -> tuple[str, str]:
    """Ids of the two trials that are seen first: of the deepest shape, where there are two."""
    if study is None or not study.trials:
        return "", ""
    deepest = [trial.row.id for trial in study.deepest]
    others = [trial.row.id for trial in study.trials if trial.row.id not in deepest]
    pair = [*deepest, *others, deepest[0]]
    return pair[0], pair[1]


def _short(figure: dict[str, Any]) -> dict[str, Any]:
    trace = figure["data"][0]
    trace["z"] = [
        [None if cell is None else float(f"{cell:.{DIGITS}g}") for cell in line]
        for line in trace["z"]
    ]
    return figure
