"""The report in a real browser: figures, choices, downloads, keyboard, accessibility, speed."""

import csv
import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from depthbench.cli.app import execute
from depthbench.report import write_report
from depthbench.report.study import load
from depthbench.study.store import Store
from tests.report.browser import Opened
from tests.report.probe_results import group
from tests.report.synthetic import write_study
from tests.report.test_study_probes import chosen, write_results

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe-core")
SEEDS = 13


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More than 200 trials, four designs probed at their deepest shape; its title is a script."""
    folder = write_study(
        tmp_path_factory.mktemp("runs") / "study", title="<script>alert(1)</script>", seeds=SEEDS
    )
    for number, row in enumerate(chosen(folder)):
        write_results(folder, row, unit=1.0 + number)
    write_report(folder, published=True)
    return folder


@pytest.fixture(scope="module")
def opened(browser: object, folder: Path) -> Iterator[Opened]:
    one = Opened(browser, folder / "report.html")
    one.paint_all()
    yield one
    # after everything that was done to it: nothing said, nothing asked for but itself
    assert one.said == []
    assert [url for url in one.asked if not url.startswith(("file:", "data:", "blob:"))] == []


def test_axes_are_switched(opened: Opened, folder: Path) -> None:
    page = opened.page
    assert opened.trace("aspect")["x"] == [68, 24, 8.5, 3]
    page.select_option("select.axis[data-for=aspect][data-side=x]", "layers")
    page.select_option("select.axis[data-for=aspect][data-side=y]", "nats")
    trace = opened.trace("aspect")
    assert trace["x"] == [2, 4, 8, 16]
    design = load(folder).verdict.designs[0]
    assert trace["y"] == pytest.approx([point.nats_per_token for point in design.curve])
    title = "() => document.querySelector('#plot-aspect').layout.yaxis.title.text"
    assert page.evaluate(title) == "validation loss, nats per token"
    page.select_option("select.axis[data-for=pareto][data-side=x]", "training")
    assert opened.trace("pareto", 1)["x"] == [31.25, 62.5, 125, 250]
    page.select_option("select.axis[data-for=aspect][data-side=x]", "aspect")
    page.select_option("select.axis[data-for=aspect][data-side=y]", "bits")


def test_a_design_is_highlighted_and_shown_again(opened: Opened) -> None:
    page, chip = opened.page, opened.page.locator(".chip[data-label=hc]")
    opacities = "() => document.querySelector('#plot-aspect').data.map((t) => [t.name, t.opacity])"
    chip.click()
    assert chip.get_attribute("aria-pressed") == "true"
    assert {name for name, opacity in page.evaluate(opacities) if opacity == 1} == {"hc"}
    chip.focus()
    page.keyboard.press("Enter")
    assert {opacity for _, opacity in page.evaluate(opacities)} == {1}


def test_the_table_sorts_and_downloads_as_the_results_are(opened: Opened, folder: Path) -> None:
    page, rows = opened.page, Store(folder).rows()
    button = page.locator("#table-trials th button", has_text="bits per byte").first
    button.click()
    first = "() => document.querySelector('#table-trials tbody tr td:last-child').textContent"
    known = {row.id: row.loss.bits_per_byte for row in rows if row.loss}
    assert known[page.evaluate(first)] == min(known.values())
    text = opened.download("button.tool[data-table=trials]").read_text(encoding="utf-8")
    lines = list(csv.DictReader(io.StringIO(text)))
    assert len(lines) == len(rows) > 200
    for line in lines:
        row = next(row for row in rows if row.id == line["id"])
        assert (line["status"], line["reason"]) == (row.status, row.reason or "")
        bits = line["bits per byte"]
        assert (float(bits) if bits else None) == (row.loss and row.loss.bits_per_byte)
        assert (line["design"], int(line["layers"]), int(line["seed"])) == (
            row.label,
            row.shape.layers,
            row.seed,
        )
        assert int(line["parameters"]) == row.parameters.total
        assert float(line["learning rate"]) == row.learning_rate


def test_figures_download(opened: Opened, folder: Path) -> None:
    text = opened.download("button.tool[data-figure=aspect][data-kind=csv]").read_text()
    lines = list(csv.reader(io.StringIO(text)))
    assert lines[0][:3] == [
        "name",
        "aspect ratio, width / layers, at L layers (← deeper and narrower)",
        "validation loss, bits per byte",
    ]
    hc = next(design for design in load(folder).verdict.designs if design.label == "hc")
    curve = [line for line in lines if line[0] == "hc"][:4]
    assert [float(line[2]) for line in curve] == [point.bits_per_byte for point in hc.curve]
    svg = opened.download("button.tool[data-figure=aspect][data-kind=svg]").read_text()
    assert svg.startswith("<svg")
    assert "validation loss, bits per byte" in svg
    png = opened.download("button.tool[data-figure=map-left][data-kind=png]").read_bytes()
    assert png.startswith(b"\x89PNG")
    assert len(png) > 5000


def test_what_diverged_downloads_without_a_loss_at_its_own_place(opened: Opened) -> None:
    def crosses(figure: str) -> list[list[str]]:
        text = opened.download(f"button.tool[data-figure={figure}][data-kind=csv]").read_text()
        lines = list(csv.reader(io.StringIO(text)))
        return [[line[0], *line[1:3]] for line in lines if line[-1].endswith(" diverged")]

    lost = SEEDS // 3
    assert lost == 4
    assert crosses("search") == [["prenorm", "0.008", ""], ["deepnorm", "0.008", ""]]
    assert crosses("aspect") == [["deepnorm", "3", ""]]
    page, axis = opened.page, "select.axis[data-for=aspect][data-side={}]"
    for x, place in (("layers", "16"), ("seconds", "500")):
        page.select_option(axis.format("x"), x)
        for y in ("nats", "flops", "seconds", "bits"):
            page.select_option(axis.format("y"), y)
            assert crosses("aspect") == [["deepnorm", place, ""]]
    page.select_option(axis.format("x"), "aspect")


def test_what_is_said_of_a_point_is_of_the_chosen_axis(opened: Opened) -> None:
    page = opened.page
    page.select_option("select.axis[data-for=aspect][data-side=y]", "seconds")
    text = opened.download("button.tool[data-figure=aspect][data-kind=csv]").read_text()
    _, *lines = csv.reader(io.StringIO(text))
    measured = [line for line in lines if line[2]]
    assert len(measured) > 100
    for line in measured:
        assert f"training loss after 62.5 s: {float(line[2]):.3f}" in line[-1]
        assert "per byte" not in line[-1]
    page.select_option("select.axis[data-for=aspect][data-side=y]", "bits")


def test_linked_maps_tell_one_cell_of_both_models(opened: Opened) -> None:
    page = opened.page
    names = "() => [...document.querySelectorAll('.map-name')].map((one) => one.textContent)"
    assert page.evaluate(names) == ["prenorm, 16 layers", "hc, 16 layers"]
    left, right = (opened.trace(f"map-{side}")["z"][0][1] for side in ("left", "right"))
    assert left != right
    page.locator(".plot.map").first.focus()
    page.keyboard.press("ArrowRight")
    said = page.locator(".map-said").text_content()
    assert f"prenorm, 16 layers: {left:g}" in said
    assert f"hc, 16 layers: {right:g}" in said
    page.select_option("select.map-side[data-side=right]", label="attnres, 16 layers")
    page.keyboard.press("Tab")
    assert page.evaluate(names)[1] == "attnres, 16 layers"
    box = page.locator("[data-figure=map-right] .nsewdrag").bounding_box()
    place = "() => { const l = document.querySelector('[data-figure=map-right]')._fullLayout;"
    x, y = page.evaluate(place + " return [l.xaxis.l2p(1), l.yaxis.l2p(0)]; }")
    page.mouse.click(box["x"] + x, box["y"] + y)
    playwright.expect(page.locator(".map-said")).to_contain_text("attnres, 16 layers: ")


def test_arrow_keys_reach_every_cell_of_the_side_that_has_them(opened: Opened) -> None:
    page = opened.page
    page.select_option("select.map-side[data-side=left]", label="attnres, 8 layers")
    page.select_option("select.map-side[data-side=right]", label="prenorm, 16 layers")
    right = page.locator(".plot.map").nth(1)
    for _ in range(20):
        right.press("ArrowUp")
        right.press("ArrowRight")
    said = page.locator(".map-said")
    assert "block 15 left out" in said.text_content()
    assert "what block 15 adds" in said.text_content()
    left = page.locator(".plot.map").first
    left.press("ArrowDown")
    # from the last cell that the smaller model has
    assert "block 6 left out" in said.text_content()
    assert "what block 7 adds" in said.text_content()
    page.select_option("select.map-side[data-side=right]", label="hc, 16 layers")
    assert "Click a cell" in said.text_content()


@pytest.mark.parametrize("width", [1600, 375])
def test_a_model_without_the_chosen_map_leaves_the_other_drawn(
    browser: object, tmp_path: Path, width: int
) -> None:
    folder = write_study(tmp_path / "study")
    left, right = [row for row in chosen(folder) if row.shape.layers == 16][:2]
    for row in (left, right):
        write_results(folder, row)
    (folder / "probes" / left.id / "causal.json").unlink()
    one = Opened(browser, write_report(folder).html, width)
    one.paint_all()
    names = "() => [...document.querySelectorAll('.map-name')].map((one) => one.textContent)"
    assert one.page.evaluate(names) == ["prenorm, 16 layers: not measured", "hc, 16 layers"]
    assert one.page.locator(".plot.map .heatmaplayer .hm").count() == 1
    one.page.locator(".plot.map").first.press("ArrowRight")
    assert "prenorm, 16 layers: not measured; hc" in one.page.locator(".map-said").text_content()
    assert one.said == []
    one.context.close()


def test_nothing_from_the_user_runs(opened: Opened) -> None:
    assert "<script>alert(1)</script>" in opened.page.locator(".subtitle").text_content()


@pytest.mark.parametrize(("width", "dark"), [(1600, False), (375, True)])
def test_no_serious_fault_of_accessibility(
    browser: object, folder: Path, width: int, dark: bool
) -> None:
    """By axe-core; and nothing is wider than the screen. The pictures can be looked at."""
    one = Opened(browser, folder / "report.html", width, dark)
    one.paint_all()
    found = axe.Axe().run(one.page).response["violations"]
    bad = [
        (fault["id"], [node["target"] for node in fault["nodes"]][:3])
        for fault in found
        if fault["impact"] in ("serious", "critical")
    ]
    assert bad == []
    # names are as long as users make them
    one.page.evaluate(
        "for (const o of document.querySelectorAll('option')) o.textContent += ' x'.repeat(90);"
    )
    wide = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert one.page.evaluate(wide) <= 0
    if place := os.environ.get("DEPTHBENCH_SCREENSHOTS"):
        name = f"report-{width}-{'dark' if dark else 'light'}.png"
        one.page.screenshot(path=Path(place) / name, full_page=True)
    assert one.said == []
    one.context.close()


def test_prints_every_figure(browser: object, folder: Path) -> None:
    one = Opened(browser, folder / "report.html")
    pdf = one.page.pdf()
    assert pdf.startswith(b"%PDF")
    drawn = "() => window.depthbench.plots.every(window.depthbench.isDrawn)"
    assert one.page.evaluate(drawn)
    one.context.close()


@pytest.mark.slow
def test_a_thousand_trials_load_in_two_seconds(browser: object, tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study", seeds=62)
    assert len(Store(folder).rows()) > 1000
    write_report(folder)
    assert min(Opened(browser, folder / "report.html").seconds for _ in range(3)) < 2


STUDY = """
name = "real"
designs = ["prenorm", "hc"]
[shapes]
params = "100k"
depths = [2, 4]
[search]
learning_rates = [3e-3]
[train]
tokens = 20_000
sequences = 4
length = 64
evaluations = 1
validation_tokens = 2048
[data]
paths = ["text.txt"]
"""


@pytest.mark.slow
def test_a_study_that_was_run_and_probed_opens(
    browser: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the command line alone, as the demo is."""
    monkeypatch.chdir(tmp_path)
    text = "\n\n".join(f"The {n}th line is followed by {n + 1}." for n in range(3000))
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    (tmp_path / "real.toml").write_text(STUDY, encoding="utf-8")
    assert execute(["run", "real.toml", "--workers", "1"]) == 0
    assert execute(["probe", "runs/real", "--probes", "causal,depth,lens", "--tokens", "1k"]) == 0
    one = Opened(browser, tmp_path / "runs" / "real" / "report.html")
    one.paint_all()
    for select in one.page.locator("select").all():
        for option in select.locator("option").all():
            select.select_option(option.get_attribute("value"))
    text = one.download("button.tool[data-table=trials]").read_text(encoding="utf-8")
    lines = {line["id"]: line for line in csv.DictReader(io.StringIO(text))}
    for row in Store(tmp_path / "runs" / "real").rows():
        assert row.loss is not None
        assert float(lines[row.id]["bits per byte"]) == row.loss.bits_per_byte
    assert one.page.locator(".plot.map .heatmaplayer").count() > 0
    assert one.said == []
    one.context.close()


def test_other_pages_work_too(browser: object, tmp_path: Path) -> None:
    from depthbench.report.probes import write_probes

    page = write_probes([group("hc", 3), group("prenorm", 3)], tmp_path)
    one = browser.new_context().new_page()  # pyright: ignore
    said: list[str] = []
    one.on("pageerror", lambda error: said.append(str(error)))
    one.goto(page.resolve().as_uri())
    one.wait_for_selector(".plot .main-svg")
    assert said == []
