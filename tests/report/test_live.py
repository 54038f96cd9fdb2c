"""Pages of running studies in a real browser: they follow, and keep what was chosen."""

import threading
from pathlib import Path

import pytest

from depthbench.serve.pages import Pages
from depthbench.serve.server import Server
from depthbench.study.store import Store
from tests.report.synthetic import rich_rows, write_study

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")


@pytest.mark.slow
def test_a_live_page_follows_its_study(browser: object, tmp_path: Path) -> None:
    """A new trial is on the page a few seconds later, and what was chosen stays chosen."""
    folder = write_study(tmp_path / "study", rich_rows()[:6])
    with Server(Pages(tmp_path), 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        page = browser.new_page()  # pyright: ignore
        said: list[str] = []
        page.on("console", lambda one: said.append(one.text))
        page.on("pageerror", lambda one: said.append(str(one)))
        page.goto(f"{server.address}study/")
        playwright.expect(page.locator(".strip")).to_contain_text("5 of 60")
        page.select_option("select.axis[data-for=aspect][data-side=y]", "nats")
        page.wait_for_timeout(500)
        Store(folder).add(rich_rows()[6])
        playwright.expect(page.locator(".strip")).to_contain_text("6 of 60", timeout=20_000)
        chosen = page.locator("select.axis[data-for=aspect][data-side=y]")
        playwright.expect(chosen).to_have_value("nats")
        page.goto(server.address)
        playwright.expect(page.locator("tbody")).to_contain_text("7 of 60")
        page.close()
        server.shutdown()
        thread.join()
    assert said == []
