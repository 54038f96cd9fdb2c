"""Any design compiles as one graph, once a model, and then computes the same."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from depthbench.nn.backbones import BACKBONES
from tests.contract.variants import DEFAULTS, VARIANTS

ROOT = Path(__file__).parents[2]


def assert_compiles_once(sizes: list[str], labels: list[str]) -> None:
    """In a process of its own: there the package runs without run-time shape checks."""
    command = [sys.executable, "-W", "error", "-m", "tests.contract.compiled", ",".join(sizes)]
    result = subprocess.run(
        [*command, *labels], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    reports = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(r["label"], r["size"]) for r in reports] == [(n, s) for n in labels for s in sizes]
    for report in reports:
        assert report["compilations"] == 1, report
        assert report["distance"] < 1e-12, report


@pytest.mark.slow
def test_every_variant_compiles_once_at_every_shape() -> None:
    assert_compiles_once(["2x16", "3x32", "6x32"], list(VARIANTS))


def test_every_design_compiles_once() -> None:
    assert_compiles_once(["2x16"], list(DEFAULTS))


def test_every_backbone_compiles_once() -> None:
    others = [name for name in BACKBONES if name != "dense"]
    labels = [f"{design} on {name}" for name in others for design in ("prenorm", "hc", "attnres")]
    assert_compiles_once(["2x16"], labels)
