"""Evaluations on the page of a study: its tables and its figure against the files they are from."""

import json
import re
import statistics
from pathlib import Path
from typing import Any

import pytest

from depthbench.evals.result import FILE, FOLDER, Evaluation, Measured
from depthbench.nn.model import Model
from depthbench.probes.result import Number
from depthbench.probes.subject import SubjectFacts
from depthbench.probes.weights import hash_of
from depthbench.report import write_report
from depthbench.report.domain_figure import domain_figure
from depthbench.report.domain_lines import domain_lines
from depthbench.report.evaluations import evaluated_study
from depthbench.report.html import render
from depthbench.report.interactive import all_labels
from depthbench.report.study import load
from depthbench.report.style import marks
from depthbench.study.store import Row
from depthbench.train.checkpoint import save
from depthbench.train.config import TrialConfig
from tests.report.page import Page
from tests.report.synthetic import MACHINE, rich_rows, write_study
from tests.small import TRAIN

LABELS = ("prenorm", "hc")
OFFSETS = {"novels": 0.5, "all <domains>": 0.25}


def measured(kind: Any, name: str, numbers: list[Number], **changes: Any) -> Measured:
    given: dict[str, Any] = {
        "kind": kind,
        "name": name,
        "program": "plain",
        "blocks": (0, 1),
        "policy": {"length": 512},
        "data_hash": "abc",
        "counts": {"tokens": 100},
        "numbers": tuple(numbers),
        "machine": MACHINE,
        "finished": "2026-01-01T00:00:00Z",
    }
    return Measured(**given | changes)


def of_row(row: Row, **facts: Any) -> Evaluation:
    """Losses on two domains, on pairs, and a task of the harness, all told apart by their row."""
    layers = row.shape.layers
    base = row.shape.aspect_ratio / 100 + row.seed / 64 + len(row.label) + 90 * row.learning_rate
    given: dict[str, Any] = {
        "label": row.label,
        "kind": "depthbench",
        "source": row.id,
        "model": row.label,
        "layers": layers,
        "width": row.shape.width,
        "streams": 1,
        "vocab": 257,
        "parameters": 1,
        "weights_hash": "0" * 12,
    }
    found = [
        measured("domain", name, [loss(base + offset, 0.125)]) for name, offset in OFFSETS.items()
    ]
    found.append(measured("domain", "novels", [loss(99.0, 1.0)], program="skip 1", blocks=(0,)))
    found.append(measured("pairs", "gsm8k", [loss(base + 1, 0.25)]))
    found.append(measured("lm_eval", "quiz", [Number(name="acc", title="acc", value=base / 9)]))
    return Evaluation(subject=SubjectFacts(**given | facts), measured=tuple(found))


def loss(value: float, half: float) -> Number:
    low, high = value - half, value + half
    return Number(
        name="nats_per_token", title="loss", unit="nats/token", value=value, low=low, high=high
    )


def write_evaluation(folder: Path, row: Row, evaluation: Evaluation) -> None:
    place = folder / FOLDER / row.id
    place.mkdir(parents=True, exist_ok=True)
    (place / FILE).write_text(evaluation.model_dump_json(), encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every trial of two designs at its design's learning rate; hc at its deepest only once."""
    folder = write_study(tmp_path_factory.mktemp("runs") / "synthetic", rich_rows())
    for row in rich_rows():
        once = (row.label, row.shape.layers) == ("hc", 16) and row.seed > 0
        if row.label in LABELS and row.status == "done" and not once:
            write_evaluation(folder, row, of_row(row))
    return folder


@pytest.fixture(scope="module")
def html(folder: Path) -> str:
    return write_report(folder).html.read_text(encoding="utf-8")


def recorded(folder: Path) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Rows of results.jsonl that were evaluated, with what eval.json holds of them."""
    rows = map(json.loads, (folder / "results.jsonl").read_text(encoding="utf-8").splitlines())
    found = []
    for row in rows:
        path = folder / FOLDER / row["id"] / FILE
        if path.exists():
            found.append((row, json.loads(path.read_text(encoding="utf-8"))["measured"]))
    return found


def table(html: str, title: str) -> dict[tuple[str, float], list[str]]:
    """The table below a heading: its cells by trial and learning rate."""
    part = html[html.index(f"<h3>{title}</h3>") :]
    part = part[: part.index("</table>")]
    lines: dict[tuple[str, float], list[str]] = {}
    for line in re.findall(r"<tr data-label.*?</tr>", part, re.DOTALL):
        cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line, re.DOTALL)
        words = [" ".join(re.sub(r"<[^>]+>", " ", cell).split()) for cell in cells]
        lines[words[0], float(words[2])] = [words[1], *words[3:]]
    return lines


@pytest.mark.parametrize(
    ("title", "kind"),
    [
        ("Loss by domain, against the aspect ratio", "domain"),
        ("Loss on answers", "pairs"),
        ("Tasks of the lm-evaluation-harness", "lm_eval"),
    ],
)
def test_tables_hold_what_the_files_hold(folder: Path, html: str, title: str, kind: str) -> None:
    lines = table(html, title)
    rows = recorded(folder)
    assert len(lines) == len(rows) > 20
    for row, found in rows:
        shape = row["shape"]
        name = f"{row['label']}, {shape['layers']} layers, seed {row['seed']}"
        cells = lines[name, row["learning_rate"]]
        assert float(cells[0]) == pytest.approx(shape["width"] / shape["layers"], rel=5e-3)
        numbers = [
            one["numbers"][0] for one in found if one["kind"] == kind and one["program"] == "plain"
        ]
        assert len(cells) == 1 + len(numbers)
        for cell, number in zip(cells[1:], numbers, strict=True):
            value, *span = cell.split(" ", 1)
            assert float(value) == pytest.approx(number["value"], rel=1e-3)
            ends = [float(end) for one in span for end in one.split(" to ")]
            assert ends == pytest.approx(
                [number[side] for side in ("low", "high") if number[side] is not None], rel=5e-3
            )


@pytest.mark.parametrize("domain", OFFSETS)
def test_the_figure_is_what_the_files_hold(folder: Path, html: str, domain: str) -> None:
    """Read from the page: mean and standard deviation over seeds, or one seed's interval."""
    figure = Page(html).payload["figures"]["domains"]
    assert figure["layout"]["xaxis"]["type"] == "log"
    used = {"prenorm": 4e-3, "hc": 4e-3}
    for label in LABELS:
        [trace] = [
            one
            for one in figure["data"]
            if one["meta"] == {"label": label, "shown": {"domain": domain}}
        ]
        assert trace["visible"] == (domain == "novels")
        values: dict[float, list[dict[str, Any]]] = {}
        for row, found in recorded(folder):
            if row["label"] != label or row["learning_rate"] != used[label]:
                continue
            [number] = [
                one["numbers"][0]
                for one in found
                if (one["name"], one["program"]) == (domain, "plain")
            ]
            aspect = row["shape"]["width"] / row["shape"]["layers"]
            values.setdefault(aspect, []).append(number)
        assert trace["x"] == sorted(values, reverse=True) == [68, 24, 8.5, 3]
        several = [[one["value"] for one in values[x]] for x in trace["x"]]
        assert trace["y"] == pytest.approx([statistics.fmean(one) for one in several])
        errors = [statistics.stdev(one) if len(one) > 1 else 0.125 for one in several]
        assert trace["error_y"]["array"] == pytest.approx(errors)
        assert trace["error_y"]["arrayminus"] == pytest.approx(errors)
        assert [len(one) for one in several][-1] == (1 if label == "hc" else 3)
        assert "95 % over documents" in trace["text"][-1] or label == "prenorm"


def test_the_page_lets_one_choose_the_domain_and_escapes_its_name(html: str) -> None:
    page = Page(html)
    assert '<option value="all &lt;domains&gt;">all &lt;domains&gt;</option>' in html
    assert "all <domains>" in page.words
    hover = page.payload["figures"]["domains"]["data"][-1]["text"][0]
    assert "all &lt;domains&gt;" in hover


def test_the_file_has_the_same_numbers(folder: Path) -> None:
    study = load(folder)
    style = marks(all_labels(study, with_published=False))
    figure = domain_figure(study.domain_lines, style, "a title")
    assert [axes.get_title() for axes in figure.axes] == list(OFFSETS)
    drawn = figure.axes[0].containers[0].lines[0]
    first = study.domain_lines[0]
    assert list(drawn.get_xdata()) == [point.aspect_ratio for point in first.points]
    assert list(drawn.get_ydata()) == [point.value for point in first.points]
    assert (folder / "figures" / "loss_by_domain.svg").exists()
    assert (folder / "figures" / "loss_by_domain.png").stat().st_size > 5000


def test_other_text_is_another_domain(folder: Path, tmp_path: Path) -> None:
    """Losses on other bytes, or in other rows, do not lie on one line."""
    rows = [row for row in rich_rows() if row.label == "hc" and row.status == "done"]
    own = write_study(tmp_path / "study", rich_rows())
    for number, row in enumerate(rows):
        one = of_row(row)
        changed = [
            each.model_copy(update={"data_hash": "other"} if number % 2 else {})
            for each in one.measured
        ]
        write_evaluation(own, row, one.model_copy(update={"measured": tuple(changed)}))
    study = load(own)
    names = {line.domain for line in study.domain_lines}
    assert len(names) == 4
    assert all(re.fullmatch(r"(novels|all <domains>) \([0-9a-f]{12}\)", name) for name in names)


def test_without_evaluations_there_is_no_figure(tmp_path: Path) -> None:
    own = write_study(tmp_path / "study", rich_rows())
    study = load(own)
    assert domain_lines(study.evaluations, study.verdict) == []
    assert "domains" not in Page(render(study, target=own)).payload["figures"]


def test_evaluations_of_other_weights_are_left_out(tmp_path: Path) -> None:
    """A trial that was trained on, or again, after it was evaluated."""
    own = write_study(tmp_path / "study", rich_rows())
    row = next(one for one in rich_rows() if one.label == "hc" and one.status == "done")
    config = TrialConfig.parse(
        {
            "model": {"shape": row.shape.resolved(), "design": "hc", "backbone": "dense"},
            "train": TRAIN,
            "learning_rate": 1e-3,
            "seed": 0,
            "data_hash": "a",
        }
    )
    model = Model.build(config.model, 0)
    trial = own / "trials" / row.id
    (trial / "config.json").write_text(config.model_dump_json(), encoding="utf-8")
    save(trial / "checkpoints", 1, config.digest(), {"model": model.state_dict()}, {})
    write_evaluation(own, row, of_row(row, weights_hash=hash_of(model)))
    fits = evaluated_study(own, rich_rows())
    assert fits is not None
    assert [one.row.id for one in fits.trials] == [row.id]
    assert fits.remarks == ()
    write_evaluation(own, row, of_row(row, weights_hash="f" * 12))
    page = Page(render(load(own), target=own))
    assert "domains" not in page.payload["figures"]
    said = (
        f"hc, {row.shape.layers} layers, seed {row.seed} (trial {row.id}): its evaluations are of "
        "other weights than its last checkpoint: left out. Evaluate the trial again."
    )
    assert said in page.words
    assert "gsm8k" not in page.words


def test_what_was_read_in_other_rows_is_a_column_of_its_own(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "synthetic", rich_rows())
    first, second = [row for row in rich_rows() if row.status == "done"][:2]
    for row, length in ((first, 512), (second, 128)):
        one = measured("domain", "novels", [loss(3.0, 0.1)]).model_copy(
            update={"policy": {"length": length}}
        )
        evaluation = of_row(row).model_copy(update={"measured": (one,)})
        write_evaluation(folder, row, evaluation)
    found = evaluated_study(folder, rich_rows())
    assert found is not None
    [shown] = found.tables()
    assert len(set(shown.headings)) == 2
    assert all(heading.startswith("novels, nats/token (") for heading in shown.headings)
    assert sorted([value is not None for value in values] for _, values in shown.lines) == [
        [False, True],
        [True, False],
    ]
