"""Pages of running studies in a real browser: they follow, and keep what was chosen."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from depthbench.probes.study import chosen_trials
from depthbench.serve.pages import Pages
from depthbench.serve.server import Server
from depthbench.study.store import Store
from tests.report.probe_results import write_results
from tests.report.synthetic import rich_rows, write_study

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")


@contextmanager
def served(root: Path) -> Iterator[str]:
    """Address of the pages of ``root``."""
    with Server(Pages(root), 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server.address
        server.shutdown()
        thread.join()


@pytest.mark.slow
def test_a_live_page_follows_its_study(browser: object, tmp_path: Path) -> None:
    """A new trial is on the page a few seconds later, and what was chosen stays chosen."""
    folder = write_study(tmp_path / "study", rich_rows()[:6])
    with served(tmp_path) as address:
        page = browser.new_page()  # pyright: ignore
        said: list[str] = []
        page.on("console", lambda one: said.append(one.text))
        page.on("pageerror", lambda one: said.append(str(one)))
        page.goto(f"{address}study/")
        playwright.expect(page.locator(".strip")).to_contain_text("5 of 60")
        page.select_option("select.axis[data-for=aspect][data-side=y]", "nats")
        page.wait_for_timeout(500)
        Store(folder).add(rich_rows()[6])
        playwright.expect(page.locator(".strip")).to_contain_text("6 of 60", timeout=20_000)
        chosen = page.locator("select.axis[data-for=aspect][data-side=y]")
        playwright.expect(chosen).to_have_value("nats")
        page.goto(address)
        playwright.expect(page.locator("tbody")).to_contain_text("7 of 60")
        page.close()
    assert said == []


@pytest.mark.slow
def test_what_changes_before_the_first_question_is_not_missed(
    browser: object, tmp_path: Path
) -> None:
    folder = write_study(tmp_path / "study", rich_rows()[:6])

    def late(route: playwright.Route) -> None:
        Store(folder).add(rich_rows()[6])
        route.continue_()

    with served(tmp_path) as address:
        page = browser.new_page()  # pyright: ignore
        page.route("**/version", late, times=1)
        page.goto(f"{address}study/")
        playwright.expect(page.locator(".strip")).to_contain_text("6 of 60", timeout=20_000)
        page.close()


@pytest.mark.slow
def test_what_was_chosen_stays_where_it_still_is(browser: object, tmp_path: Path) -> None:
    """A deeper shape replaces the best trial that was chosen; the others keep their choice."""
    rows = rich_rows()
    early = [row for row in rows if row.shape.layers <= 8]
    folder = write_study(tmp_path / "study", rows)
    results = folder / "results.jsonl"
    everything = results.read_text(encoding="utf-8")
    results.write_text("".join(f"{json.dumps(row.resolved())}\n" for row in early))
    first = [row for row in chosen_trials(early) if row.label in ("attnres", "deepnorm")]
    for number, row in enumerate(first):
        write_results(folder, row, unit=1.0 + number)
    side = "select.map-side[data-side=left]"
    with served(tmp_path) as address:
        page = browser.new_page()  # pyright: ignore
        said: list[str] = []
        page.on("pageerror", lambda one: said.append(str(one)))
        page.goto(f"{address}study/")
        trial = page.locator("select.panel[data-group=trial]")
        trial.select_option(label="hc, 8 layers (best shape)")
        page.click("button.panel[data-panel='4']")
        page.click("button.panel[data-panel=cosine]")
        page.click(".chip[data-label=attnres]")
        kept = next(row for row in first if row.label == "deepnorm")
        page.select_option(side, kept.id)
        # of prenorm, which stands before the others
        write_results(folder, next(row for row in chosen_trials(rows) if row.label == "prenorm"))
        results.write_text(everything)
        playwright.expect(page.locator(".strip")).to_contain_text("56 of 60", timeout=20_000)
        playwright.expect(page.locator(".chip[data-label=attnres]")).to_have_attribute(
            "aria-pressed", "true"
        )
        for panel in ("4", "cosine"):
            button = page.locator(f"button.panel[data-panel='{panel}']")
            playwright.expect(button).to_have_attribute("aria-pressed", "true")
        assert trial.input_value() != ""
        drawn = "() => document.querySelector('#plot-health-curves').data.map((t) => t.visible)"
        page.evaluate("window.depthbench.plots.forEach(window.depthbench.paint)")
        assert any(page.evaluate(drawn))
        assert page.locator(side).input_value() == kept.id
        name = page.locator(".map-name[data-side=left]")
        playwright.expect(name).to_contain_text("deepnorm, ")
        page.close()
    assert said == []
