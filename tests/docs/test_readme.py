"""The README's table of designs says what their cards say."""

from pathlib import Path

import pytest

from depthbench.designs import REGISTRY

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", REGISTRY)
def test_row_of_a_design(name: str) -> None:
    card = REGISTRY[name].card
    cells = [f"`{name}`", f"`{card.equation}`", card.weights, f"`{card.own}`", card.paper]
    assert f"| {' | '.join(cells)} |\n" in README
