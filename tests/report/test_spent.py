"""What trials spent, losses at equal FLOPs or time, and the front of loss and cost."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from depthbench.cost.candidates import Conditions
from depthbench.cost.devices import find_device
from depthbench.cost.flops import count_flops
from depthbench.errors import DepthbenchError
from depthbench.report.aspect_plot import aspect_plot, placed
from depthbench.report.html import render
from depthbench.report.pareto_plot import gaps, pareto_plot
from depthbench.report.plots import search_plot
from depthbench.report.serving import Served, read_served
from depthbench.report.spent import at_equal, key_of, spent
from depthbench.report.study import StudyData, TrainingCurve, load
from depthbench.report.style import marks
from depthbench.study.store import Row
from depthbench.train.config import TrialConfig
from tests.cost.made import made
from tests.report.page import Page
from tests.report.synthetic import CURVES, row


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
    costs = {key_of(row): spent(row) for row in (fast, slow)}
    found = at_equal(curves, costs, "seconds")
    assert found is not None
    assert found.budget == 2_000_000 * 4 / 64_000
    assert found.losses[key_of(fast)] == 1.0
    # a quarter of the tokens: 500k, half way between the middles at 250k and 750k
    assert found.losses[key_of(slow)] == 3.5
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


def curve_of(study: StudyData, label: str) -> dict[str, Any]:
    traces = aspect_plot(placed(study), marks(CURVES))["data"]
    return next(t for t in traces if t["meta"]["label"] == label and t["mode"] != "markers")


def test_words_are_of_what_is_held_equal(study: StudyData) -> None:
    trace = curve_of(study, "hc")
    texts, means = trace["meta"]["text"], trace["meta"]["y"]
    assert list(texts) == ["bits", "nats", "flops", "seconds"]
    assert trace["text"] == texts["bits"]
    assert "2.120 ± 0.008 bits per byte" in texts["bits"][3]
    assert f"{2.12 * np.log(2):.3f} ± {0.008 * np.log(2):.3f} nats per token" in texts["nats"][3]
    for loss, text in zip(means["seconds"], texts["seconds"], strict=True):
        assert f"training loss after 62.5 s: {loss:.3f} ± " in text
        assert "per byte" not in text
    assert f" FLOPs: {means['flops'][3]:.3f} ± " in texts["flops"][3]
    traces = aspect_plot(placed(study), marks(CURVES))["data"]
    dots = next(t for t in traces if t["meta"]["label"] == "hc" and t["mode"] == "markers")
    for loss, text in zip(dots["meta"]["y"]["flops"], dots["meta"]["text"]["flops"], strict=True):
        assert text.endswith(f" FLOPs: {loss:.3f} nats per token")


def test_crosses_keep_where_they_belong(study: StudyData) -> None:
    traces = aspect_plot(placed(study), marks(CURVES))["data"]
    [cross] = [t for t in traces if t["marker"]["symbol"] == "x-thin"]
    # two seeds at 16 layers have finished, and tell what the shape's training takes
    assert cross["meta"]["lost"]["aspect"] == [3.0]
    assert cross["meta"]["lost"]["layers"] == [16]
    assert cross["meta"]["lost"]["seconds"] == [2e6 * 16 / 64_000]
    assert cross["x"] != [3.0]
    search = search_plot(study.verdict, marks(CURVES))
    lost = {t.meta["label"]: t.meta["lost"] for t in search.data if "lost" in t.meta}
    assert lost == {"prenorm": [8e-3], "deepnorm": [8e-3]}


def served(rows: Sequence[Row]) -> Served:
    """Costs by hand: a byte of cache for each layer."""
    models = [
        made(row.label, loss=2.0, kv=row.shape.layers).model_copy(update={"shape": row.shape})
        for row in rows
    ]
    return Served(
        conditions=Conditions(device=find_device("h100"), context=4096), models=tuple(models)
    )


def test_a_model_that_serving_lacks_is_named_and_others_keep_their_costs(study: StudyData) -> None:
    rows = [row for row in study.rows if row.label != "hc" or row.shape.layers != 16]
    some = served(rows)
    figure = pareto_plot(placed(study), some, marks(CURVES))
    assert figure is not None
    assert list(figure["axes"]["x"])[3:] == ["kv", "state", "memory", "ttft", "tpot"]
    hc = next(t for t in figure["data"] if t["meta"]["label"] == "hc")
    assert hc["meta"]["x"]["kv"] == [2, 4, 8, None]
    assert all(x is not None for x in figure["data"][0]["meta"]["along"]["kv"]["x"])
    text = (
        "Not known of hc at 16 layers × width 48: KV cache, state over depth, memory, time to "
        "first token and time per token. Report with --serve-on again, which models what is new "
        "since the last time."
    )
    assert gaps(placed(study), some) == [text]
    page = Page(render(replace(study, serving=some)))
    assert "Costs to serve, modelled for" in page.words
    assert text in page.words
    assert gaps(placed(study), served(study.rows)) == gaps(placed(study), None) == []
    # of other models alone: nothing to choose, and no caption of it
    page = Page(render(replace(study, serving=served([row("other", 2, 2.0)]))))
    assert "Costs to serve, modelled for" not in page.words
    assert "Not known of any model: KV cache" in page.words


def test_configs_that_cannot_be_read_are_counted(study: StudyData) -> None:
    old = [
        row.model_copy(update={"config": {"design": "hc"}}) if row.label == "hc" else row
        for row in study.rows
    ]
    mixed = replace(study, rows=old)
    figure = aspect_plot(placed(mixed), marks(CURVES))
    assert list(figure["axes"]["x"]) == ["aspect", "layers", "seconds"]
    [remark] = placed(mixed).remarks
    # three seeds at four shapes; of 48 trials of all curves two did not finish
    assert remark.startswith("This version cannot read the config of 12 of 46 trials, ")
    words = Page(render(mixed)).words
    assert remark in words
    assert "Not known of hc at 2 layers × width 136, hc at 4 layers × width 96, " in words
    assert "width 48: FLOPs of a token." in words
    assert placed(study).remarks == []


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"{"])
def test_a_serving_file_that_is_none_is_one_line(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "serving.json"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(DepthbenchError) as caught:
        read_served(tmp_path)
    assert str(caught.value).startswith(f"{path} ")
    assert "\n" not in str(caught.value)
    assert "--serve-on" in str(caught.value)
