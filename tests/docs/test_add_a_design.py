"""The page ``docs/add-a-design.md``, followed to the letter."""

import shutil
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, assert_shown, block, blocks_of, run

PAGE = "add-a-design.md"
IMPORT = "from depthbench.designs.frac import Frac\n"
TABLE = "REGISTRY: dict[str, type[Design[Any]]] = {\n"
"""Lines of the registry behind which those of the page go."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the file of the page has been saved."""
    (tmp_path / "gated.py").write_text(block(PAGE, "gated.py").text, encoding="utf-8")
    return tmp_path


def test_broken_equation_is_seen(folder: Path) -> None:
    broken = block(PAGE, "broken")
    code, printed = run(broken.text, folder)
    assert code == 1
    assert_shown(broken.output, printed)


@pytest.mark.slow
def test_every_law_holds(folder: Path) -> None:
    (check,) = [one for one in blocks_of(PAGE) if one.text == "depthbench check ./gated.py\n"]
    code, printed = run(check.text, folder)
    assert code == 0, printed
    assert_shown(check.output, printed)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package and its tests with the design registered, as the page says."""
    root = tmp_path_factory.mktemp("checkout")
    leave = shutil.ignore_patterns("__pycache__")
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, root / name, ignore=leave)
    shutil.copy(ROOT / "pyproject.toml", root)
    designs = root / "src" / "depthbench" / "designs"
    (designs / "gated.py").write_text(block(PAGE, "gated.py").text, encoding="utf-8")
    test = root / "tests" / "designs" / "test_gated.py"
    test.write_text(block(PAGE, "test_gated.py").text, encoding="utf-8")
    registry = designs / "__init__.py"
    text = registry.read_text(encoding="utf-8")
    for line, title in ((IMPORT, "import"), (TABLE, "registry")):
        assert text.count(line) == 1
        text = text.replace(line, line + block(PAGE, title).text)
    registry.write_text(text, encoding="utf-8")
    return root


def test_registered_it_is_known(checkout: Path) -> None:
    shown = block(PAGE, "registered")
    code, printed = run(shown.text, checkout, checkout / "src")
    assert code == 0, printed
    assert_shown(shown.output, printed)


def test_its_test_passes_and_fails(checkout: Path) -> None:
    tested = block(PAGE, "tested")
    code, printed = run(tested.text, checkout, checkout / "src")
    assert code == 0, printed
    assert_shown(tested.output, printed)
    file = checkout / "src" / "depthbench" / "designs" / "gated.py"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("return state + (", "return state - ("), encoding="utf-8")
    code, printed = run(tested.text, checkout, checkout / "src")
    file.write_text(text, encoding="utf-8")
    assert code == 1
    assert_shown("2 failed", printed)


@pytest.mark.slow
def test_laws_of_a_registered_design(checkout: Path) -> None:
    code, printed = run("pytest -n 0 tests/contract -k gated", checkout, checkout / "src")
    assert code == 0, printed
    assert "passed" in printed


def test_no_block_is_left_out() -> None:
    titles = [one.title for one in blocks_of(PAGE) if one.language in ("python", "sh")]
    own = {"gated.py", "broken", "import", "registry", "registered", "test_gated.py", "tested"}
    assert set(titles) == own | {""}
    assert titles.count("") == 1
