"""The study's report on the probes of its best trials, and on those that it cannot use."""

import json
from pathlib import Path

import pytest
import torch

from depthbench.nn.model import Model
from depthbench.probes.study import chosen_trials
from depthbench.probes.weights import hash_of
from depthbench.report import write_report
from depthbench.report.html import render
from depthbench.report.linked_maps import first_pair
from depthbench.report.probes import write_probes
from depthbench.report.study import load
from depthbench.report.study_probes import probed_study
from depthbench.study.store import Row, Store
from depthbench.train.checkpoint import save
from depthbench.train.config import TrialConfig
from tests.report.page import Page
from tests.report.probe_results import group, write_results
from tests.report.synthetic import rich_rows, write_study
from tests.small import TRAIN

SHAPES = {"prenorm": {4, 16}, "hc": {16}, "attnres": {8, 16}, "deepnorm": {4, 16}}
"""Where the made-up losses are least, and the deepest."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_study(tmp_path / "study", rich_rows())


def chosen(folder: Path) -> list[Row]:
    return chosen_trials(Store(folder).rows())


def page_of(folder: Path) -> Page:
    return Page(render(load(folder), target=folder))


def test_a_study_without_probes_has_no_section(folder: Path) -> None:
    assert load(folder).probes is None
    assert "Depth that is used" not in page_of(folder).words


def test_probes_of_the_best_trials_are_shown_side_by_side(folder: Path) -> None:
    rows = chosen(folder)
    assert {label: {r.shape.layers for r in rows if r.label == label} for label in SHAPES} == SHAPES
    for number, row in enumerate(rows):
        write_results(folder, row, unit=1.0 + number)
    write_probes([group("hc", 3)], folder / "probes")
    page = Page(write_report(folder).html.read_text(encoding="utf-8"))
    assert "Depth that is used" in page.words
    figures = page.payload["figures"]
    effect = page.payload["maps"][0]
    maps = [effect["figures"][row.id]["data"][0] for row in rows]
    deepest = [(number, row) for number, row in enumerate(rows) if row.shape.layers == 16]
    assert [one["meta"]["label"] for one in maps] == [row.label for row in rows]
    assert [one["z"][0][1] for one in maps] == [1.0 + number for number in range(len(rows))]
    assert first_pair(load(folder).probes) == (deepest[0][1].id, deepest[1][1].id)
    assert effect["definition"] == "C(s, l) = ‖u‖ < 1"
    assert len({(one["zmin"], one["zmax"]) for one in maps}) == 1
    lines = figures["probe-lens"]["data"]
    assert [line["y"][0] for line in lines] == [16 * (1.0 + number) for number, _ in deepest]
    assert "At 16 layers, the best trial of prenorm, hc, attnres and deepnorm." in page.words
    assert page.addresses == ["probes/report.html"] + [f"probes/{r.id}/report.html" for r in rows]
    for number, row in enumerate(rows):
        name = f"{row.label}, {row.shape.layers} layers"
        assert f"{name} 2 blocks 1 to 3 {0.25 * (1 + number):.4g} share all 3" in page.words
        assert f"{name}: 2 of {row.shape.layers} blocks keep the loss." in page.words


def test_links_fit_a_report_that_lies_elsewhere(folder: Path, tmp_path: Path) -> None:
    row = chosen(folder)[0]
    write_results(folder, row)
    html = render(load(folder), target=tmp_path / "a b" / "c")
    assert Page(html).addresses == [f"../../study/probes/{row.id}/report.html"]
    html = render(load(folder), target=folder)
    assert Page(html).addresses == [f"probes/{row.id}/report.html"]


def test_what_cannot_be_used_is_said_and_breaks_nothing(folder: Path) -> None:
    rows = chosen(folder)
    shown, broken, *others = rows
    for row in (shown, broken):
        write_results(folder, row)
    for path in (folder / "probes" / broken.id).glob("*.json"):
        path.write_text("{", encoding="utf-8")
    beaten = next(r for r in Store(folder).rows() if r.status == "done" and r not in rows)
    write_results(folder, beaten)
    write_results(folder, shown.model_copy(update={"id": "0123456789ab"}))
    page = page_of(folder)
    assert "probes/0123456789ab is of no trial of this study: left out." in page.words
    assert f"probes/{beaten.id} is of {beaten.label} at" in page.words
    assert f"{broken.id}/causal.json cannot be read" in page.words
    for row in others:
        assert f"(trial {row.id}) is not probed yet." in page.words
    study = load(folder).probes
    assert study is not None
    assert [trial.row for trial in study.trials] == [shown]
    # the synthetic trials have no weights
    assert "whether its probes are of its weights is not known" in page.words


def test_only_broken_results_are_said_too(folder: Path) -> None:
    row = chosen(folder)[0]
    write_results(folder, row)
    for path in (folder / "probes" / row.id).glob("*.json"):
        path.write_text(json.dumps({"probe": 3}), encoding="utf-8")
    page = page_of(folder)
    assert "Depth that is used" in page.words
    assert f"{row.id}/lens.json" in page.words
    assert not any(name.startswith("probe-") for name in page.payload["figures"])


def test_results_of_other_weights_are_left_out(folder: Path) -> None:
    row = chosen(folder)[0]
    shape = row.shape.resolved()
    config = TrialConfig.parse(
        {
            "model": {"shape": shape, "design": "prenorm", "backbone": "dense"},
            "train": TRAIN,
            "learning_rate": 1e-3,
            "seed": 0,
            "data_hash": "a",
        }
    )
    model = Model(config.model)
    trial = folder / "trials" / row.id
    (trial / "config.json").write_text(config.model_dump_json(), encoding="utf-8")
    save(trial / "checkpoints", 1, config.digest(), {"model": model.state_dict()}, {})
    write_results(folder, row, weights_hash=hash_of(model))
    study = probed_study(folder, [row])
    assert study is not None
    assert study.remarks == []
    assert [len(trial.model.results) for trial in study.trials] == [3]
    causal = folder / "probes" / row.id / "causal.json"
    causal.write_text(causal.read_text().replace(hash_of(model), "0" * 12), encoding="utf-8")
    study = probed_study(folder, [row])
    assert study is not None
    assert [one.probe for one in study.trials[0].model.results] == ["depth", "lens"]
    assert study.remarks == [
        f"{row.label}, {row.shape.layers} layers: causal measured other weights than the trial's "
        "last checkpoint: left out. Probe the study again."
    ]
    # what was hashed is known until a file is touched
    with torch.no_grad():
        model.embed.weight.add_(1)
    save(trial / "checkpoints", 2, config.digest(), {"model": model.state_dict()}, {})
    study = probed_study(folder, [row])
    assert study is not None
    assert study.trials == []
    assert "causal, depth and lens measured other weights" in study.remarks[0]
