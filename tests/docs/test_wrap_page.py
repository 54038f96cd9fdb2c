"""The page ``docs/wrap.md``: every block is run, and prints what stands below it."""

import re
from pathlib import Path

import pytest

from depthbench.designs import REGISTRY
from tests.docs.blocks import Block, block, blocks_of, run

PAGE = "wrap.md"
BLOCKS = blocks_of(PAGE)


def split(line: str) -> tuple[list[str], list[float]]:
    """Words, and numbers with a point."""
    number = r"\d+\.\d+"
    return re.split(number, line), [float(found) for found in re.findall(number, line)]


@pytest.mark.parametrize("one", BLOCKS, ids=lambda one: one.title)
def test_block_prints_what_the_page_says(one: Block, tmp_path: Path) -> None:
    (tmp_path / one.title).write_text(one.text, encoding="utf-8")
    code, printed = run(f"python {one.title}", tmp_path)
    assert code == 0, printed
    lines, expected = printed.strip().splitlines(), one.output.strip().splitlines()
    assert len(lines) == len(expected), printed
    for line, wanted in zip(lines, expected, strict=True):
        (words, numbers), (wanted_words, wanted_numbers) = split(line), split(wanted)
        assert words == wanted_words
        assert numbers == pytest.approx(wanted_numbers, abs=0.06)


def test_the_first_block_is_under_ten_lines() -> None:
    assert len(block(PAGE, "short").text.splitlines()) < 10


def test_every_page_block_is_run() -> None:
    assert [one.title for one in BLOCKS] == ["short", "vit.py", "mixer.py", "rezero.py"]


def test_refused_designs_are_named() -> None:
    text = (Path(__file__).parents[2] / "docs" / PAGE).read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if "change attention itself" in line]
    named = set(re.findall(r"`(\w+)`", line))
    assert named == {name for name, kind in REGISTRY.items() if kind.in_attention}
