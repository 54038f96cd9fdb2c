"""The command `coordcheck`: its table, its JSON, its figure and what it refuses."""

import json
from pathlib import Path

import pytest

from depthbench.cli.app import execute
from depthbench.train.coordinates import Grid, coordinate_check
from tests.fits import fits

Capture = pytest.CaptureFixture[str]
SMALL = ["coordcheck", "--layers", "1,2", "--widths", "16,32", "--steps", "2", "--seeds", "1"]


def test_json_is_the_check(capsys: Capture) -> None:
    assert execute([*SMALL, "--json"]) == 0
    grid = Grid(layers=(1, 2), widths=(16, 32), steps=2, seeds=1)
    said = json.loads(capsys.readouterr().out)
    fits("coordinates", said)
    assert said == coordinate_check("prenorm", grid).resolved()


def test_table_and_figure(capsys: Capture, tmp_path: Path) -> None:
    assert execute([*SMALL, "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out.splitlines()
    lines = [line.split() for line in printed]
    found = {tuple(line[:2]) for line in lines if len(line) == 5}
    kinds = ("standard", "depth_mup", "completep")
    assert {(kind, over) for kind in kinds for over in ("layers", "width")} <= found
    assert (tmp_path / "coordinates.png").read_bytes()[:4] == b"\x89PNG"
    svg = (tmp_path / "coordinates.svg").read_text(encoding="utf-8")
    assert "<svg" in svg
    assert f"Figure: {tmp_path / 'coordinates.svg'}" in printed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sandwich"], "design 'sandwich' norms or weighs"),
        (["nonsense"], "design 'nonsense'"),
        (["--layers", "4,2"], "layers = [4, 2] must rise"),
        (["--widths", "16,x"], "'x' is no whole number"),
        (["--widths", "20"], "20 is no multiple of head_dim = 16"),
        (["--layers", "0,2"], "layers"),
    ],
)
def test_refusals_in_one_line(capsys: Capture, arguments: list[str], words: str) -> None:
    assert execute([*SMALL, *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert words in said.err
    assert said.err.count("\n") == 1
