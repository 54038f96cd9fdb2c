"""The pages that need no measurement: commands, configs, probes, and the figures of concepts."""

from collections.abc import Callable
from pathlib import Path

from depthbench.docs.commands import commands_page
from depthbench.docs.concepts import figures
from depthbench.docs.configs import config_page
from depthbench.docs.probes import probes_page
from depthbench.files import write_atomic

PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands_page,
    "config.md": config_page,
    "every-probe.md": probes_page,
}


def write_pages(folder: Path) -> list[Path]:
    """Write each page, and the figures of concepts, to ``folder``; the pages' paths."""
    for name, figure in figures().items():
        write_atomic(folder / "concepts" / name, figure)
    for name, make in PAGES.items():
        write_atomic(folder / name, make())
    return [folder / name for name in PAGES]
