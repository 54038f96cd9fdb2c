"""A browser for tests, and a page that is open in it."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def browser_path(kinds: object) -> str | None:
    """Of playwright's own browser or one that is installed; tries to install it."""
    own = Path(kinds.chromium.executable_path)  # pyright: ignore
    if own.exists():
        return str(own)
    if found := next((path for name in NAMES if (path := shutil.which(name))), None):
        return found
    install = [sys.executable, "-m", "playwright", "install", "chromium"]
    try:
        subprocess.run(install, check=True, capture_output=True, timeout=120)
    except (subprocess.SubprocessError, OSError):
        return None
    return str(own) if own.exists() else None


class Opened:
    """A page with what it said and asked for."""

    def __init__(self, browser: object, path: Path, width: int = 1600, dark: bool = False) -> None:
        scheme = "dark" if dark else "light"
        self.context = browser.new_context(  # pyright: ignore
            viewport={"width": width, "height": 1000}, color_scheme=scheme, accept_downloads=True
        )
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda one: self.said.append(f"{one.type}: {one.text}"))
        self.page.on("pageerror", lambda one: self.said.append(f"error: {one.stack}"))
        self.page.on("request", lambda one: self.asked.append(one.url))
        self.page.on("dialog", lambda one: self.said.append(f"dialog: {one.message}"))
        start = time.perf_counter()
        self.page.goto(path.resolve().as_uri())
        self.page.wait_for_selector("#plot-aspect .main-svg")
        self.seconds = time.perf_counter() - start

    def download(self, selector: str) -> Path:
        with self.page.expect_download() as waiting:
            self.page.click(selector)
        return Path(waiting.value.path())

    def trace(self, figure: str, number: int = 0) -> dict:
        script = "([f, n]) => { const t = document.querySelector(`[data-figure=${f}]`).data[n];"
        script += "return { name: t.name, x: t.x, y: t.y, z: t.z, visible: t.visible }; }"
        return self.page.evaluate(script, [figure, number])

    def paint_all(self) -> None:
        self.page.evaluate("window.depthbench.plots.forEach(window.depthbench.paint)")
