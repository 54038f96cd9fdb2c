"""The README and the first page of the tutorial, followed to the letter in one folder.

Blocks of `sh` are run in order as they stand, files in blocks with a name are saved first, and the
`text` behind a block is what must be printed. A block that cannot run in a test has the reason as
its title, which is one of `REASONS`.
"""

import shutil
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, Block, assert_shown, blocks_of, run

REASONS = (
    "needs the network",
    "needs several GPUs",
    "needs Slurm",
    "needs a Ray cluster",
    "takes hours",
    "runs the tests",
)
"""Why a block is shown and not run."""
PAGES = {"../README.md": 2, "start.md": 11}
"""Pages that are followed, with the number of blocks that are run."""
HOURS = 3600.0


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What a reader has after the set-up: a copy of the package, and this environment in .venv."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    # `activate` and the programs know their own place, so links do what the reader's own would
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for program in Path(sys.executable).parent.iterdir():
        (programs / program.name).symlink_to(program)
    (tmp_path / ".venv" / ".installed").touch()
    return tmp_path


def steps(page: str) -> list[Block]:
    """What is saved or run, in order."""
    return [
        one
        for one in blocks_of(page)
        if (one.language == "sh" and not one.title)
        or (one.language == "python" and one.title.endswith(".py"))
    ]


@pytest.mark.longest
def test_every_command_runs_as_written(checkout: Path) -> None:
    """One page after the other, as by a reader of both: the demo of the first is there then."""
    for page in PAGES:
        for one in steps(page):
            follow(one, checkout)


def follow(one: Block, folder: Path) -> None:
    """Save a file, or run a block and compare what it prints."""
    if one.title:
        (folder / one.title).write_text(one.text, encoding="utf-8")
        return
    script = f"set -euo pipefail\n{one.text}"
    code, printed = run(script, folder, folder / "src", timeout=HOURS)
    assert code == 0, f"{one.text}\n{printed}"
    if one.output:
        assert_shown(one.output, printed)


@pytest.mark.parametrize("page", PAGES)
def test_what_is_not_run_says_why(page: str) -> None:
    titles = [one.title for one in blocks_of(page) if one.language == "sh" and one.title]
    assert {*titles} <= {*REASONS}
    assert len([one for one in steps(page) if not one.title]) == PAGES[page]


def test_titles_elsewhere_are_reasons_or_names_that_another_test_runs() -> None:
    known = {*REASONS, "broken", "registered", "tested"}
    for page in sorted((ROOT / "docs").glob("*.md")):
        for one in blocks_of(page.name):
            if one.language in ("sh", "console") and one.title:
                assert one.title in known, f"{page.name}: {one.title}"


def test_blocks_are_saved_run_and_compared(tmp_path: Path) -> None:
    follow(Block("python", "made.py", "print('made', 3)\n", ""), tmp_path)
    follow(Block("sh", "", "python made.py | tee said\n", "made …\n"), tmp_path)
    assert (tmp_path / "said").read_text() == "made 3\n"
    for wrong in (
        Block("sh", "", "python made.py\n", "made 4\n"),
        Block("sh", "", "false\npython made.py\n", ""),
        Block("sh", "", "false | cat\n", ""),
    ):
        with pytest.raises(AssertionError):
            follow(wrong, tmp_path)
