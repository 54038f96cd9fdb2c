"""What each figure of a report shows, and what it does not."""

from collections.abc import Mapping
from typing import NamedTuple

from depthbench.probes import REGISTRY
from depthbench.report.probe_groups import Probed


class Reading(NamedTuple):
    """What stands below a figure."""

    shows: str
    shows_not: str
    how: str = ""
    """How to read it, where that is not plain."""


FIGURES = {
    "aspect": Reading(
        "The mean loss of every design at every shape of one parameter budget, at the learning "
        "rate that was best for the design at its middle shape. With 'training FLOPs' or 'training "
        "time' held equal, the training loss of every trial where the thriftiest one ended.",
        "Whether more layers compute more: a lower loss is not deeper computation. Held equal in "
        "FLOPs or time, longer trials are read before their learning rate has come down, which "
        "makes them look worse than a shorter schedule would.",
    ),
    "published": Reading(
        "The loss curves that the paper printed.",
        "Anything about these models: other data, tokenizer, budget and code.",
    ),
    "search": Reading(
        "The loss of every learning rate that was tried, at the middle shape.",
        "The best rate of other shapes. A rate chosen at the edge of the grid may not be the best.",
    ),
    "training": Reading(
        "The training loss of every seed as it fell, smoothed over stretches of steps.",
        "The validation loss. Trials with other learning rates of the search are in the table.",
    ),
    "health-curves": Reading(
        "Loss, gradient norm before clipping, and learning rate of one trial.",
        "Other trials: choose them in the list. What happened between two records is averaged.",
    ),
    "health-depth": Reading(
        "One signal by depth and training step of one trial.",
        "Whether a signal is harmful: the findings below say which rules fired.",
    ),
    "pareto": Reading(
        "The loss of every model against what it costs; no model beats one on the dotted line on "
        "both.",
        "Costs that are marked as modelled were not measured. Differences below the noise between "
        "seeds put a model on the line or off it.",
    ),
}


def reading_named(name: str, readings: Mapping[str, Reading]) -> Reading | None:
    """Of the figure ``name``; several of one kind are numbered."""
    return readings.get(name) or readings.get(name.rstrip("0123456789").rstrip("-"))


def readings_of(models: list[Probed]) -> dict[str, Reading]:
    """By figure; those of probes from what the probes say of themselves."""
    found = dict(FIGURES)
    for model in models:
        for one in model.results:
            reading = Reading(_ended(one.definition), one.blind, how_to_read(one.probe))
            found.setdefault(f"probe-{one.probe}", reading)
    return found


def how_to_read(probe: str) -> str:
    """What large and small values of ``probe`` mean; nothing of a probe that is not known."""
    known = REGISTRY.get(probe)
    return known.reading if known else ""


def _ended(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith(".") else f"{text}."
