"""Python blocks of the pages run, in order, in a folder that holds what the page speaks of."""

import re
from pathlib import Path

import pytest

from depthbench.cli.app import execute
from tests.docs.blocks import ROOT, blocks_of
from tests.small import write_text

QUICK = ("api.md",)
WITH_A_RUN = ("probes.md", "redundancy.md", "hub.md")
"""Pages that speak of `runs/run`, and of `model`, which it was converted to."""
ELSEWHERE = {"add-a-design.md", "wrap.md", "start.md"}
"""Pages whose blocks have a test of their own."""


def run_blocks(page: str) -> None:
    names: dict[str, object] = {}
    for one in blocks_of(page):
        if one.language == "python":
            exec(compile(one.text, page, "exec"), names)


@pytest.mark.parametrize("page", QUICK)
def test_blocks_run(page: str) -> None:
    run_blocks(page)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small run and the model that transformers opens."""
    place = tmp_path_factory.mktemp("pages")
    text = write_text(place)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("DEPTHBENCH_CACHE", str(place / "cache"))
        sizes = ("layers=3", "width=32", "heads=2", "ffn=48")
        settings = [f"shape.{size}" for size in sizes]
        settings += ["train.tokens=2048", "train.sequences=4", "train.length=32"]
        settings += ["train.validation_tokens=512", f'data.paths=["{text}"]', "design=prenorm"]
        assert execute(["train", *settings]) == 0
        assert execute(["convert", "runs/run", "model", "--to", "hf"]) == 0
    return place


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", WITH_A_RUN)
def test_blocks_of_a_page_about_a_run(
    page: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(folder / "cache"))
    run_blocks(page)


def test_every_page_with_python_is_run() -> None:
    having = {
        page.name
        for page in (ROOT / "docs").glob("*.md")
        if re.search(r"^```python", page.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert having == {*QUICK, *WITH_A_RUN, *ELSEWHERE}
