"""Curves that share a figure, and numbers as they are read."""

import numpy as np
import pytest

from depthbench.probes.result import Curve, Number, curve
from depthbench.report.probe_figures import curve_figure
from depthbench.report.probe_groups import curves, probed
from depthbench.report.probe_plots import curve_plot
from depthbench.report.style import DASHES, SYMBOLS, marks, varied
from tests.report.probe_results import result, subject


def lines(scale: float) -> list[Curve]:
    hard = curve("hard", "at once", [2 * scale, scale], group="Without stream 0")
    ends = {"low": (0.5 * scale, 0.2 * scale), "high": (1.5 * scale, 0.4 * scale)}
    trained = curve("trained", "trained on", [scale, 0.3 * scale], group="Without stream 0", **ends)
    return [hard, trained, curve("other", "Alone", [1.0, 2.0])]


def test_curves_of_a_group_are_lines_of_one_figure_on_one_scale() -> None:
    models = probed([[result("retrained", *lines(1.0), of=subject("hc", 2))]])
    style = marks(["hc"])
    both, alone = curves(models, "retrained")
    assert (both.title, alone.title) == ("Without stream 0", "Alone")
    figure = curve_plot(both, style)
    hard, trained = figure["data"]
    assert [hard["name"], trained["name"]] == ["at once", "trained on"]
    assert [list(hard["y"]), list(trained["y"])] == [[2.0, 1.0], [1.0, 0.3]]
    assert trained["error_y"]["arrayminus"] == pytest.approx([0.5, 0.1])
    assert hard["line"]["dash"] != trained["line"]["dash"]
    assert hard["marker"]["symbol"] != trained["marker"]["symbol"]
    assert figure["layout"]["showlegend"]
    assert not curve_plot(alone, style)["layout"]["showlegend"]
    drawn = curve_figure(both, style)
    [axes] = drawn.axes
    low, high = axes.get_ylim()
    assert low < 0.2
    assert high > 2.0
    assert {one.get_color() for one in axes.get_lines() if len(one.get_xdata())} == {
        style["hc"].light
    }
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["at once", "trained on"]


def test_lines_of_several_models_say_whose_they_are() -> None:
    groups = [
        [result("retrained", *lines(scale), of=subject(label, 2))]
        for label, scale in (("hc", 1.0), ("mhc", 3.0))
    ]
    both, _ = curves(probed(groups), "retrained")
    figure = curve_plot(both, marks(["hc", "mhc"]))
    assert [one["name"] for one in figure["data"]] == [
        "hc: at once",
        "hc: trained on",
        "mhc: at once",
        "mhc: trained on",
    ]
    assert [one["meta"]["label"] for one in figure["data"]] == ["hc", "hc", "mhc", "mhc"]


def test_varied_marks_go_round_and_keep_the_colour() -> None:
    [mark] = marks(["hc"]).values()
    assert varied(mark, 0) == mark
    assert varied(mark, len(SYMBOLS) * len(DASHES)) == mark
    first = [varied(mark, place) for place in range(len(SYMBOLS))]
    assert len({one.symbol for one in first}) == len(SYMBOLS)
    assert {one.light for one in first} == {mark.light}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (-0.0, "0"),
        (-0.00951, "-0.00951"),
        (1.23456, "1.235"),
        (7301.4, "7,301"),
        (-498160.0, "-498,160"),
        (2.5e13, "2.5e+13"),
        (np.pi * 1e-7, "3.142e-07"),
    ],
)
def test_a_number_is_shown_as_it_is_read(value: float | None, shown: str) -> None:
    assert Number(name="n", title="N", value=value).shown == shown


def test_an_interval_says_what_it_is_unless_it_is_of_documents() -> None:
    told = Number(name="n", title="N", value=1.0, low=-0.0, high=1200.0)
    assert told.shown_span == "0 to 1,200"
    told = told.model_copy(update={"span": "ends over 3 seeds"})
    assert told.shown_span == "0 to 1,200, ends over 3 seeds"
    assert Number(name="n", title="N", value=1.0).shown_span == ""
