"""What is built for users: small, whole, and installable by its metadata."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DATA = (".html", ".css", ".js", ".toml", ".json", ".typed")
MOST = 1_000_000


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel and a sdist, built from a copy of the sources."""
    place = tmp_path_factory.mktemp("package")
    source = place / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", source / "src", ignore=ignored)
    program = (
        "from setuptools import build_meta as b; b.build_wheel('../out'); b.build_sdist('../out')"
    )
    (place / "out").mkdir()
    subprocess.run([sys.executable, "-c", program], cwd=source, check=True, capture_output=True)
    return place / "out"


@pytest.mark.slow
def test_the_wheel_is_small_and_whole(built: Path) -> None:
    [wheel] = built.glob("*.whl")
    assert wheel.stat().st_size < MOST
    names = set(zipfile.ZipFile(wheel).namelist())
    package = ROOT / "src" / "depthbench"
    wanted = {
        path.relative_to(ROOT / "src").as_posix()
        for path in package.rglob("*")
        if path.suffix in (".py", *DATA) and "__pycache__" not in path.parts
    }
    assert wanted - names == set()
    assert {name for name in names if not name.startswith("depthbench")} == set()


@pytest.mark.slow
def test_the_source_has_what_the_wheel_is_built_from(built: Path) -> None:
    [sdist] = built.glob("*.tar.gz")
    assert sdist.stat().st_size < 2 * MOST
    with tarfile.open(sdist) as held:
        names = {name.partition("/")[2] for name in held.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE"} <= names
    assert "src/depthbench/report/report.js" in names
