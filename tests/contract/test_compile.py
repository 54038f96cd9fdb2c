"""Any design compiles, as one graph a model or a kind of block, and then computes the same."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from depthbench.nn.backbones import BACKBONES
from tests.contract.variants import DEFAULTS, VARIANTS

ROOT = Path(__file__).parents[2]


def reports_of(what: str, sizes: list[str], labels: list[str]) -> list[dict[str, Any]]:
    """In a process of its own: there the package runs without run-time shape checks."""
    command = [sys.executable, "-W", "error", "-m", "tests.contract.compiled", what]
    result = subprocess.run(
        [*command, ",".join(sizes), *labels], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    reports = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(r["label"], r["size"]) for r in reports] == [(n, s) for n in labels for s in sizes]
    return reports


def assert_compiles_once(sizes: list[str], labels: list[str]) -> None:
    for report in reports_of("model", sizes, labels):
        assert report["compilations"] == 1, report
        assert report["distance"] < 1e-12, report


def assert_blocks_share_graphs(sizes: list[str], labels: list[str]) -> None:
    """Two kinds of block, or both branches, at most, at any depth; twice that for any length."""
    for report in reports_of("blocks", sizes, labels):
        assert 1 <= report["compilations"] <= 2, report
        assert report["longer"] <= 2 * report["compilations"], report
        assert report["distance"] < 1e-12, report


@pytest.mark.slow
def test_every_variant_compiles_once_at_every_shape() -> None:
    assert_compiles_once(["2x16", "3x32", "6x32"], list(VARIANTS))


@pytest.mark.slow
def test_every_design_compiles_once() -> None:
    assert_compiles_once(["2x16"], list(DEFAULTS))


@pytest.mark.slow
def test_every_backbone_compiles_once() -> None:
    others = [name for name in BACKBONES if name != "dense"]
    labels = [f"{design} on {name}" for name in others for design in ("prenorm", "hc", "attnres")]
    assert_compiles_once(["2x16"], labels)


@pytest.mark.slow
def test_blocks_share_graphs() -> None:
    few = ["prenorm", "lns", "keel", "hc", "attnres", "moda", "value_residual", "cascade"]
    assert_blocks_share_graphs(["6x16"], [*few, "hc on moe", "hc on hybrid", "attnres on moe"])


@pytest.mark.slow
def test_blocks_of_every_variant_share_graphs_at_every_depth() -> None:
    assert_blocks_share_graphs(["2x16", "3x32", "12x32"], list(VARIANTS))
