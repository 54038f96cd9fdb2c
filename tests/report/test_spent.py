"""What trials spent, losses at equal FLOPs or time, and the front of loss and cost."""

from pathlib import Path

import numpy as np
import pytest

from depthbench.cost.flops import count_flops
from depthbench.report.aspect_plot import aspect_plot, placed
from depthbench.report.pareto_plot import pareto_plot
from depthbench.report.spent import at_equal, spent
from depthbench.report.study import StudyData, TrainingCurve, load
from depthbench.report.style import marks
from depthbench.train.config import TrialConfig
from tests.report.synthetic import CURVES


@pytest.fixture(scope="module")
def study(rich_folder: Path) -> StudyData:
    return load(rich_folder)


def test_training_flops_are_those_of_the_model(study: StudyData) -> None:
    row = next(row for row in study.rows if row.label == "hc" and row.status == "done")
    trial = TrialConfig.parse(row.config)
    length = trial.train.length
    step = count_flops(trial.model, length).training_step
    assert spent(row).flops == step * row.tokens // length
    assert spent(row).seconds == row.tokens * row.shape.layers / 64_000
    old = row.model_copy(update={"config": {"design": "hc"}, "tokens_per_second": None})
    assert (spent(old).flops, spent(old).seconds) == (None, None)


def test_losses_at_equal_time_by_hand(study: StudyData) -> None:
    """Losses fall in a straight line; the slower trial is read where the fast one has ended."""
    rows = [row for row in study.rows if row.status == "done" and row.label == "prenorm"]
    fast = next(row for row in rows if row.shape.layers == 4)
    slow = next(row for row in rows if row.shape.layers == 16)
    tokens = [500_000, 1_000_000, 1_500_000, 2_000_000]
    curves = [TrainingCurve(row, tokens, [4.0, 3.0, 2.0, 1.0]) for row in (fast, slow)]
    costs = {row.id: spent(row) for row in (fast, slow)}
    found = at_equal(curves, costs, "seconds")
    assert found is not None
    assert found.budget == 2_000_000 * 4 / 64_000
    assert found.losses[fast.id] == 1.0
    # a quarter of the tokens: 500k, half way between the middles at 250k and 750k
    assert found.losses[slow.id] == 3.5
    assert at_equal(curves[:1], costs, "seconds") is None
    assert at_equal([curves[0], curves[0]], costs, "seconds") is None


def test_every_axis_of_the_main_figure_has_its_numbers(study: StudyData) -> None:
    figure = aspect_plot(placed(study), marks(CURVES))
    trace = next(t for t in figure["data"] if t["meta"]["label"] == "hc" and t["mode"] != "markers")
    assert list(figure["axes"]["y"]) == ["bits", "nats", "flops", "seconds"]
    assert list(figure["axes"]["x"]) == ["aspect", "layers", "flops", "seconds"]
    meta = trace["meta"]
    assert meta["x"]["layers"] == [2, 4, 8, 16]
    assert meta["x"]["seconds"] == [2e6 * layers / 64_000 for layers in (2, 4, 8, 16)]
    assert meta["y"]["bits"] == trace["y"] == pytest.approx(CURVES["hc"])
    assert meta["y"]["nats"] == pytest.approx(np.array(CURVES["hc"]) * np.log(2))
    assert meta["error"]["bits"] == pytest.approx([0.008] * 4)
    # two layers are the fastest: their loss is that of their end, deeper ones are read earlier
    own = [curve for curve in study.curves if curve.row.label == "hc"]
    ends = [curve.nats_per_token for curve in own if curve.row.shape.layers == 2]
    assert meta["y"]["seconds"][0] == pytest.approx(np.mean([end[-1] for end in ends]))
    assert meta["y"]["seconds"][3] > meta["y"]["seconds"][0] + 0.3
    title = figure["axes"]["y"]["seconds"]["title"]["text"]
    assert title == "training loss after 62.5 s, nats per token"


def test_nothing_beats_the_front(study: StudyData) -> None:
    figure = pareto_plot(placed(study), study.serving, marks(CURVES))
    assert figure is not None
    front, *others = figure["data"]
    for cost in figure["axes"]["x"]:
        points = [
            (x, y)
            for trace in others
            for x, y in zip(trace["meta"]["x"][cost], trace["y"], strict=True)
        ]
        along = front["meta"]["along"][cost]
        chosen = list(zip(along["x"], along["y"], strict=True))
        for x, y in points:
            beaten = any((a <= x and b < y) or (a < x and b <= y) for a, b in points)
            assert ((x, y) in chosen) == (not beaten)
    assert len(others) == 4
    assert list(figure["axes"]["x"]) == ["forward", "total", "training"]
