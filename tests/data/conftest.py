"""Seeded text of the tests' own."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

WORDS = ("depth", "width", "stream", "token", "branch", "norm", "gate", "naïve", "∑", "café")


def make_text(seed: int, words: int) -> str:
    chosen = random.Random(seed)
    return " ".join(
        chosen.choice(WORDS) + ("\n" if chosen.random() < 0.1 else "") for _ in range(words)
    )


@pytest.fixture
def text() -> Callable[[int, int], str]:
    """``text(seed, words)``: words with characters of one, two and three bytes, and lines."""
    return make_text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder ``words`` of 40 documents, five of them twice."""
    root = tmp_path / "words"
    root.mkdir()
    for number in range(40):
        (root / f"{number:02d}.txt").write_bytes(make_text(number, 60).encode())
    for number in range(5):
        (root / f"copy-{number}.txt").write_bytes(make_text(number, 60).encode())
    return root
