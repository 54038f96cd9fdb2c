"""The report's section on health: which trials it shows, with which numbers, and every finding."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from depthbench.errors import DepthbenchError
from depthbench.report import ReportFiles
from depthbench.report.health import course, findings, representatives, summary, watched
from depthbench.report.html import render
from depthbench.report.study import load
from depthbench.report.thin import evenly, stretches
from depthbench.study.findings import Verdict
from depthbench.study.store import Store
from depthbench.study.verdict import judge
from depthbench.train.health.findings import FILE
from tests.report.page import Page
from tests.report.synthetic import SPIKE, rich_rows, row, write_study


@pytest.fixture(scope="module")
def page(rich_report: ReportFiles) -> Page:
    return Page(rich_report.html.read_text(encoding="utf-8"))


def chosen(verdict: Verdict, label: str) -> list[tuple[int, int, str, str]]:
    [design] = [one for one in verdict.designs if one.label == label]
    return [
        (one.shape.layers, one.seed, one.status, standing)
        for one, standing in representatives(design, rich_rows())
    ]


def test_the_best_and_the_worst_shape_are_shown_and_a_diverged_trial_is_worst() -> None:
    verdict = judge(rich_rows())
    assert chosen(verdict, "hc") == [(16, 0, "done", "best shape"), (2, 0, "done", "worst shape")]
    assert chosen(verdict, "prenorm")[0] == (4, 0, "done", "best shape")
    # two of prenorm's trials diverged in the search, at a rate that its curve does not use
    assert chosen(verdict, "prenorm")[1] == (16, 0, "done", "worst shape")
    assert chosen(verdict, "deepnorm") == [
        (4, 0, "done", "best shape"),
        (16, 1, "diverged", "diverged"),
    ]
    rows = [row("hc", 4, 2.2)]
    [design] = judge(rows).designs
    assert [standing for _, standing in representatives(design, rows)] == ["only shape"]
    lost = [row("hc", 4, None, status="diverged")]
    [design] = judge(lost).designs
    assert [standing for _, standing in representatives(design, lost)] == ["diverged"]


def traces(page: Page, figure: str, trial: str, **meta: str) -> list[dict[str, Any]]:
    found = page.payload["figures"][figure]["data"]
    return [t for t in found if t["meta"]["shown"] == {"trial": trial} | meta]


def trial_of(label: str, layers: int) -> str:
    rows = rich_rows()
    [design] = [one for one in judge(rows).designs if one.label == label]
    [(one, _)] = [p for p in representatives(design, rows) if p[0].shape.layers == layers]
    return one.id


def test_heat_maps_hold_what_was_measured(page: Page) -> None:
    """Block ``b``'s gradient is 10^-b; output norms are the number of the record."""
    trial = trial_of("hc", 16)
    [gradient] = traces(page, "health-depth", trial, signal="gradient_norm")
    assert gradient["x"] == [16 * index for index in range(4, 61, 4)]
    assert [line[0] for line in gradient["z"]] == [-float(block) for block in range(16)]
    assert gradient["colorbar"]["title"]["text"] == "log10 gradient norm"
    [output] = traces(page, "health-depth", trial, signal="output_norm")
    assert len(output["z"]) == 32
    assert output["z"][0][:3] == pytest.approx([0.6021, 0.9031, 1.079], abs=1e-3)
    [cosine] = traces(page, "health-depth", trial, signal="cosine")
    assert cosine["z"] == [[0.5] * 15] * 16
    assert traces(page, "health-depth", trial, signal="mixing") == []
    shown = [t for t in page.payload["figures"]["health-depth"]["data"] if t["visible"]]
    assert [t["meta"]["shown"]["signal"] for t in shown] == ["gradient_norm"]


def test_curves_hold_the_loss_with_its_spike_the_gradient_and_the_rate(page: Page) -> None:
    loss, gradient, rate, spike = traces(page, "health-curves", trial_of("hc", 16))
    assert loss["x"] == [16 * index for index in range(1, 61)]
    assert (loss["yaxis"], gradient["yaxis"], rate["yaxis"]) == ("y", "y2", "y3")
    assert set(gradient["y"]) == {1.0}
    assert set(rate["y"]) == {4e-3}
    assert (spike["x"], spike["y"]) == ([SPIKE.step], [SPIKE.value])
    assert spike["text"] == ["spike from step 470: 9.5 against 3.25, z 21.5"]
    # a diverged trial has no loss at its last record
    diverged = traces(page, "health-curves", trial_of("deepnorm", 16))[0]
    assert len(diverged["x"]) == 19


def test_every_finding_of_every_trial_is_told(page: Page, rich_folder: Path) -> None:
    store, rows = Store(rich_folder), rich_rows()
    trials = watched(store, rows)
    assert len(trials) == 59
    found = findings(trials)
    assert [finding.severity for _, finding in found[:3]] == ["problem"] * 3
    assert {row.status for row, _ in found[:3]} == {"diverged"}
    starving = [row for row, finding in found if finding.kind == "second_moment_low"]
    assert {row.label for row in starving} == {"deepnorm"}
    assert len(starving) == sum(row.label == "deepnorm" for row in rows)
    for _, finding in found:
        assert finding.words in page.words
    assert summary(trials) in page.words
    assert summary(trials).startswith("59 trials watched by depth while training; something stood")
    assert "3 problems" in summary(trials)


def test_nothing_found_is_said(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study", rich_rows()[:1])
    for path in folder.glob(f"trials/*/{FILE}"):
        path.write_text('{"format": 1, "step": 8, "loss_slope": null, "findings": []}')
    words = Page(render(load(folder))).words
    assert "1 trial watched by depth while training; nothing stood out in any." in words


def test_a_study_of_before_has_no_such_section(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study", rich_rows()[:6])
    for path in folder.glob(f"trials/*/{FILE}"):
        path.unlink()
    study = load(folder)
    assert study.watched == []
    assert "Health" not in Page(render(study)).words
    assert course(Store(tmp_path), rich_rows()[0], "best shape") is None


def test_a_broken_file_is_one_clear_line(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study", rich_rows()[:2])
    [path, *_] = sorted(folder.glob(f"trials/*/{FILE}"))
    path.write_text("{")
    with pytest.raises(DepthbenchError, match=r"health.json cannot be read"):
        load(folder)


def test_thinning_keeps_the_last() -> None:
    assert stretches([1, 2, 3, 4, 5], 2) == [[1, 2, 3], [4, 5]]
    assert stretches([1, 2, 3], 3) == [[1], [2], [3]]
    assert evenly([1, 2, 3, 4, 5], 3) == [1, 3, 5]
    assert evenly([1, 2, 3, 4, 5, 6], 3) == [2, 4, 6]
    assert evenly(list(range(100)), 32)[-1] == 99
    assert len(evenly(list(range(100)), 32)) == 25


def test_what_is_not_finite_or_not_there_is_missing(tmp_path: Path) -> None:
    """As another program might have written it."""
    folder = write_study(tmp_path / "study", rich_rows())
    trial = trial_of("hc", 16)
    path = folder / "trials" / trial / "metrics.jsonl"
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for record in records:
        del record["learning_rate"]
    records[3]["health"]["output_norm"][0] = math.nan
    records[7]["health"]["output_norm"][0] = math.inf
    path.write_text("".join(f"{json.dumps(one)}\n" for one in records), encoding="utf-8")
    page = Page(render(load(folder)))
    curves = traces(page, "health-curves", trial)
    [rate] = [t for t in curves if t.get("yaxis") == "y3"]
    assert set(rate["y"]) == {None}
    [output] = traces(page, "health-depth", trial, signal="output_norm")
    assert output["z"][0][:3] == [None, None, pytest.approx(1.079, abs=1e-3)]


def test_no_page_holds_what_browsers_cannot_read(rich_folder: Path) -> None:
    study = load(rich_folder)
    first, *others = study.curves
    broken = replace(first, tokens=[math.nan, *first.tokens[1:]])
    with pytest.raises(DepthbenchError, match="figure 'training' holds a number that is not fin"):
        render(replace(study, curves=[broken, *others]))
