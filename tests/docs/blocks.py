"""Code blocks of a page in ``docs/``, and running them as a reader would."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    language: str
    title: str
    text: str
    output: str
    """The ``text`` block that follows a command, or nothing."""


def blocks_of(page: str) -> list[Block]:
    """All blocks of ``docs/<page>`` but those that are another's output."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = [match.groups(default="") for match in FENCE.finditer(text)]
    following = [*found[1:], ("", "", "")][: len(found)]
    return [
        Block(language, title, code, after if kind == "text" else "")
        for (language, title, code), (kind, _, after) in zip(found, following, strict=True)
        if language != "text"
    ]


def block(page: str, title: str) -> Block:
    """The one block with this title."""
    (found,) = [one for one in blocks_of(page) if one.title == title]
    return found


def run(
    command: str, folder: Path, package: Path = ROOT / "src", timeout: float = 300.0
) -> tuple[int, str]:
    """Exit code, and what a shell prints in ``folder`` with this environment's commands."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {
        **os.environ,
        "PATH": path,
        "PYTHONPATH": str(package),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "180",
    }
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def assert_shown(expected: str, printed: str) -> None:
    """Every expected line is a line of what was printed; ``…`` and wide gaps stand for anything."""
    assert expected.strip()
    for line in expected.strip().splitlines():
        parts = [re.escape(part.strip()) for part in re.split(r"…|\s{2,}", line) if part.strip()]
        pattern = ".*".join(parts)
        assert re.search(pattern, printed), f"{line!r} is not in:\n{printed}"
