"""The first hundred losses of every design are those on file."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from depthbench.designs import REGISTRY

ROOT = Path(__file__).parents[2]
TABLE = json.loads(Path(__file__).with_name("losses.json").read_text(encoding="utf-8"))

TOLERANCE = 2e-5
"""Another processor sums in another order. Here, an embedding scaled by 1 + 1.2e-7 moves no loss of
any design by more than 1.5e-6, and one scaled by 1 + 3e-6 by no more than 3e-6; the designs that
start as pre-norm are apart from it, and from each other, by 3.7e-3 and more."""


def test_every_design_is_on_file() -> None:
    assert TABLE.keys() == REGISTRY.keys()


@pytest.fixture(scope="module")
def losses() -> dict[str, list[float]]:
    """From a process of its own, where the package runs without run-time shape checks: faster."""
    command = [sys.executable, "-W", "error", "-m", "tests.golden.losses"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("name", REGISTRY)
def test_losses(name: str, losses: dict[str, list[float]]) -> None:
    assert losses[name] == pytest.approx(TABLE[name], abs=TOLERANCE)


def test_tolerance_tells_designs_apart() -> None:
    rows = list(TABLE.values())
    for a, one in enumerate(rows):
        for other in rows[:a]:
            assert max(abs(x - y) for x, y in zip(one, other, strict=True)) > 20 * TOLERANCE
