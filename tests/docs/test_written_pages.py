"""Pages that are made from the code: as the code is now, and complete."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from pydantic import BaseModel

from depthbench.cli.app import COMMANDS
from depthbench.docs.commands import every_command
from depthbench.docs.concepts import PROGRAMS, figures
from depthbench.docs.configs import every_config
from depthbench.docs.fields import docstrings_of, fields_of
from depthbench.docs.markdown import COMMAND, cell
from depthbench.docs.pages import PAGES, write_pages
from depthbench.docs.probes import every_probe
from depthbench.families import family
from depthbench.probes import REGISTRY as PROBES
from depthbench.redundancy import REGISTRY as REDUNDANCY
from depthbench.streams import ORDER
from depthbench.study.config import Sizes, StudyConfig
from depthbench.train.config import TrainConfig
from tests.docs.blocks import ROOT

DOCS = ROOT / "docs"
WRITE = f"run: {COMMAND}"


@pytest.mark.parametrize("name", PAGES)
def test_page_in_the_repository_is_what_the_code_says(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name](), WRITE


def test_every_command_and_option_is_there() -> None:
    text = (DOCS / "commands.md").read_text(encoding="utf-8")
    words = [" ".join(one.words) for one in every_command()]
    assert re.findall(r"^#{2,3} depthbench (.+)$", text, re.MULTILINE) == words
    assert {name.split()[0] for name in words} == set(COMMANDS)
    assert words.count("streams merge") == 1
    section = text.split("## depthbench convert\n")[1].split("\n## ")[0]
    row = next(line for line in section.splitlines() if line.startswith("| `--design` "))
    assert row.count("|") == 5
    assert "depthbench convert SmolLM2-135M.gguf" in section


@pytest.mark.parametrize("config", every_config(), ids=lambda one: one.__name__)
def test_every_field_says_what_it_means(config: type[BaseModel]) -> None:
    silent = [one.name for one in fields_of(config) if not one.meaning]
    assert not silent, f"write a docstring below these fields of {config.__name__}"


def test_what_is_said_of_a_field() -> None:
    fields = {one.name: one for one in fields_of(TrainConfig)}
    assert fields["sequences"] == (
        "sequences",
        "whole number, ≥ 1",
        "`16`",
        "Sequences in a batch.",
    )
    assert fields["loss_chunk"].default == ""
    assert fields["dtype"].kind == "`auto` or `float32` or `bfloat16`"
    study = {one.name: one for one in fields_of(StudyConfig)}
    assert study["seeds"].kind == "list of whole number, ≥ 0, < 2^63, not empty"
    assert study["name"].default == "needed"
    assert study["shapes"].kind == "[ShapesConfig](#shapesconfig)"
    assert docstrings_of(Sizes)["kv_heads"] == "None = ``heads``."


def test_configs_that_hold_others_bring_them() -> None:
    names = [one.__name__ for one in every_config()]
    assert len(set(names)) == len(names), "two sections have one anchor"
    assert {"HealthConfig", "Resources", "MoEBackbone", "TrialConfig", "TaskConfig"} <= {*names}


def test_every_probe_is_there_with_what_to_know_of_it() -> None:
    probes = {one.name: one for one in every_probe()}
    assert probes.keys() == {*PROBES, *REDUNDANCY, *ORDER} - {"merge"}
    text = (DOCS / "every-probe.md").read_text(encoding="utf-8")
    for probe in probes.values():
        for words in (probe.definition, probe.reading, probe.blind):
            assert len(words) > 30
            assert cell(words) in text, WRITE


def test_figures_in_the_repository_say_what_the_code_draws() -> None:
    drawn = figures()
    assert {path.name for path in (DOCS / "concepts").iterdir()} == set(drawn)
    for name, figure in drawn.items():
        assert texts((DOCS / "concepts" / name).read_bytes()) == texts(figure), WRITE


def texts(svg: bytes) -> list[str]:
    return [node.text.strip() for node in ElementTree.fromstring(svg).iter() if node.text]


def test_figures_show_what_they_are_of() -> None:
    drawn = figures()
    shown = texts(drawn["shapes.svg"])
    for shape in family("400m"):
        assert {str(shape.layers), str(shape.width)} <= {*shown}
    rows = texts(drawn["programs.svg"])
    blocks = [str(block) for program in PROGRAMS.values() for block in program]
    assert [text for text in rows if text in "0123" and text] == blocks
    assert drawn == figures()


def test_pages_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(PAGES, "config.md")
    monkeypatch.delitem(PAGES, "every-probe.md")
    assert write_pages(tmp_path) == [tmp_path / "commands.md"]
    assert (tmp_path / "concepts" / "site.svg").read_bytes() == figures()["site.svg"]
