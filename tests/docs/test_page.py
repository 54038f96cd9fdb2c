"""``docs/designs.md``: complete, as the code says now, and the same each time."""

import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import typer
from typer.testing import CliRunner

from depthbench.check.signal import Signal
from depthbench.check.subject import Subject
from depthbench.cli import designs as command
from depthbench.cli import shapes
from depthbench.designs import REGISTRY, design_class, parse_design
from depthbench.docs import page
from depthbench.docs.drawing import signal_figure, wiring_figure
from depthbench.docs.page import described, overview, section_of, write_docs
from depthbench.docs.rows import options_of, words_of
from depthbench.docs.start import init_cards
from depthbench.docs.wiring import drawn_config, wiring
from depthbench.errors import DepthbenchError

DOCS = Path(__file__).parents[2] / "docs"
WRITE = "run: depthbench designs --docs docs"
NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


def written() -> str:
    return (DOCS / "designs.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", REGISTRY)
def test_page_in_the_repository_says_what_the_code_says(name: str) -> None:
    text = written()
    assert "\n".join(described(name)) in text, WRITE
    for folder in ("wiring", "init"):
        assert f"({folder}/{name}.svg)" in text, WRITE
        ElementTree.parse(DOCS / folder / f"{name}.svg")


def test_page_in_the_repository_has_every_design_in_order() -> None:
    text = written()
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == list(REGISTRY), WRITE
    assert overview(list(REGISTRY)) in text, WRITE
    assert text.startswith(page.HEAD), WRITE
    for folder in ("wiring", "init"):
        files = sorted(path.stem for path in (DOCS / folder).iterdir())
        assert files == sorted(REGISTRY), WRITE


@pytest.mark.parametrize("name", REGISTRY)
def test_every_option_says_what_it_means(name: str) -> None:
    words = words_of(design_class(name).Config)
    for option in options_of(name):
        told = option["meaning"] or re.search(rf"\b{option['name']}\b", words)
        assert told, f"{name}: write a docstring below the field {option['name']}"


def same_text(one: str, other: str) -> bool:
    """But for numbers, which may differ in their last digits on another processor."""
    if NUMBER.sub("#", one) != NUMBER.sub("#", other):
        return False
    pairs = zip(NUMBER.findall(one), NUMBER.findall(other), strict=True)
    values = ((float(a.replace(",", "")), float(b.replace(",", ""))) for a, b in pairs)
    return all(math.isclose(a, b, rel_tol=0.02, abs_tol=0.011) for a, b in values)


def test_numbers_that_differ_are_seen() -> None:
    assert same_text("| 16 | 1.23e+04 |", "| 16 | 1.24e+04 |")
    assert not same_text("| 16 | 1.23e+04 |", "| 16 | 1.53e+04 |")
    assert not same_text("| 16 | — |", "| 16 | 1 |")


@pytest.mark.slow
@pytest.mark.parametrize("name", REGISTRY)
def test_what_is_measured_now_is_in_the_repository(name: str) -> None:
    _, _, behind = written().partition(f"\n## {name}\n")
    found, *_ = re.split(r"^## ", behind, flags=re.MULTILINE)
    assert same_text(section_of(name).text.strip(), f"## {name}\n{found}".strip()), WRITE


@pytest.fixture
def shallow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two designs, and init cards of few blocks."""
    for name in REGISTRY.keys() - {"prenorm", "hc"}:
        monkeypatch.delitem(REGISTRY, name)
    monkeypatch.setattr(page, "init_cards", lambda subject: init_cards(subject, (2, 5)))


@pytest.mark.slow
@pytest.mark.usefixtures("shallow")
def test_same_bytes_each_time(tmp_path: Path) -> None:
    seen: list[str] = []
    for folder in ("one", "two"):
        write_docs(tmp_path / folder, done=seen.append)
    assert seen == ["prenorm", "hc"] * 2
    one, two = (sorted((tmp_path / folder).rglob("*.*")) for folder in ("one", "two"))
    names = ["designs.md", "hc.svg", "prenorm.svg", "hc.svg", "prenorm.svg"]
    assert [path.name for path in one] == names
    for a, b in zip(one, two, strict=True):
        assert a.read_bytes() == b.read_bytes()
        assert b"<dc:date>" not in a.read_bytes()


@pytest.mark.usefixtures("shallow")
def test_command(tmp_path: Path) -> None:
    app = typer.Typer()
    shapes.register(app)
    command.register(app)
    arguments = ["designs", "--docs", str(tmp_path / "new"), "--workers", "1"]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    assert "2 designs:" in result.stdout
    assert (tmp_path / "new" / "designs.md").exists()
    refused = CliRunner().invoke(app, ["designs", "hc", "--docs", str(tmp_path)])
    assert isinstance(refused.exception, DepthbenchError)


def texts(svg: bytes) -> list[str]:
    return [node.text or "" for node in ElementTree.fromstring(svg).iter() if node.text]


def arcs(svg: bytes) -> int:
    return svg.count(b"C ")


def test_wiring_figure_has_an_arc_for_each_wire() -> None:
    plain, moda = (wiring(drawn_config(name), learned=False) for name in ("plain", "moda"))
    few, many = wiring_figure({"at the start": plain}), wiring_figure({"at the start": moda})
    wires = sum(strength > 0 for row in moda.forward for strength in row)
    stored = sum(strength > 0 for row in moda.stored for strength in row)
    assert (wires, stored) == (45, 2 + 4 + 6)
    assert arcs(many) - arcs(few) == wires + stored - 9
    shown = texts(few)
    fading = wiring(drawn_config("ngpt"), learned=False)
    assert arcs(wiring_figure({"at the start": fading})) - arcs(few) == wires - 9
    assert [t for t in shown if t in (*plain.sources, "out")] == [*plain.sources, "out"]
    assert "at the start" in shown


def test_signal_figure_of_what_is_zero_or_not_finite() -> None:
    signal = Signal(layers=2, forward=[1.0, None, 4.0], backward=[0.0, 0.0], gradient=[1e-3, 1e3])
    shown = texts(signal_figure([signal]))
    assert "0 everywhere" in shown
    assert "2 blocks" in shown


def test_init_card_of_prenorm_and_of_another() -> None:
    (same,) = init_cards(Subject(parse_design("prenorm")), (3,))
    (other,) = init_cards(Subject(parse_design("postnorm")), (3,))
    assert same.distance == 0
    assert other.distance is not None
    assert other.distance > 0.1
    assert len(same.signal.forward) == 4
