"""Every command line in the documentation is one that the command takes; nothing is run."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from typer import TyperException
from typer.core import TyperGroup

from depthbench.cli.app import COMMANDS
from depthbench.cli.lazy import loaded
from depthbench.docs.fields import inner_models
from depthbench.errors import DepthbenchError
from depthbench.nn.backbones import BACKBONES
from depthbench.study.config import StudyConfig
from depthbench.study.single import RunConfig
from tests.docs.blocks import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(?!python|text|toml)[^\n]*\n(.*?)^```$|^((?: {4}[^\n]*\n)+)", re.M | re.S)
START = re.compile(r"(?:^|\s)(?:-m )?depthbench\s+(.*)$")
SETTINGS = {"run": StudyConfig, "demo": StudyConfig, "train": RunConfig, "compare": RunConfig}
"""What `key=value` arguments of a command are settings of."""
FREE = {"design", "model_args"}
"""Settings whose keys are of what they choose."""


def lines_of(page: Path) -> Iterator[str]:
    """Command lines in blocks of a page, those that go on behind a backslash joined."""
    for fenced, indented in BLOCK.findall(page.read_text(encoding="utf-8")):
        for line in (fenced or indented).replace("\\\n", " ").splitlines():
            if re.match(r"\s*(\$ |.*torchrun .*-m )?depthbench (?!-)", line):
                yield line.strip()


def arguments(line: str) -> list[str]:
    """What stands behind ``depthbench``."""
    found = START.search(line)
    assert found is not None
    return [word for word in shlex.split(found[1], comments=True) if word not in ("…", "&")]


def parsed(words: list[str]) -> Any:
    """The context of the command, with its options read; raises for what it does not take."""
    name, *rest = words
    assert name in COMMANDS, f"no command {name}"
    command = loaded(name, COMMANDS[name])
    while isinstance(command, TyperGroup):
        context = command.make_context(name, rest)
        name, command, rest = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
    return command.make_context(name, rest)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_command_takes_every_line(page: Path) -> None:
    refused = {}
    for line in lines_of(page):
        try:
            take(line)
        except (DepthbenchError, TyperException, AssertionError) as error:
            refused[line] = str(error)
    assert not refused


def take(line: str) -> None:
    """Raise for a line with a command, an option or a setting that there is not."""
    words = arguments(line)
    context = parsed(words)
    for word in (context.params.get("overrides") or []) + (context.params.get("settings") or []):
        if "=" in word and words[0] in SETTINGS:
            assert_setting(SETTINGS[words[0]], word.partition("=")[0].split("."))


def assert_setting(config: type[BaseModel], path: list[str]) -> None:
    """Whether ``path`` is a field of ``config``, or of what its fields hold."""
    for depth, key in enumerate(path):
        if key in FREE:
            return
        assert key in every_field(config), f"no setting {'.'.join(path)}"
        if depth + 1 < len(path):
            (config,) = (one for one in inner_models(config) if holds(config, key, one))


def every_field(config: type[BaseModel]) -> set[str]:
    """Of it; of a backbone, those of every kind."""
    kinds = [kind.Config for kind in BACKBONES.values()]
    several = kinds if config is BACKBONES["dense"].Config else [config]
    return {name for one in several for name in one.model_fields}


def holds(config: type[BaseModel], key: str, inner: type[BaseModel]) -> bool:
    return inner.__name__ in str(config.model_fields[key].annotation)


def test_lines_of_all_pages_are_found() -> None:
    found = {page.name: list(lines_of(page)) for page in PAGES}
    bare = {"concepts.md", "faq.md", "design-notes.md", "index.md", "api.md", "config.md"}
    bare |= {"designs.md", "every-probe.md", "health.md", "speed.md", "wrap.md", "redundancy.md"}
    assert {name for name, several in found.items() if not several} == bare
    assert sum(map(len, found.values())) > 150


@pytest.mark.parametrize(
    "line",
    [
        "depthbench probe runs/run --prob all",
        "depthbench streams blend runs/run",
        "depthbench run pocket trian.tokens=2e6",
        "depthbench run pocket train.tokns=2e6",
        "depthbench prob runs/run",
    ],
)
def test_a_line_that_it_does_not_take_is_seen(line: str) -> None:
    with pytest.raises((DepthbenchError, TyperException, AssertionError)):
        take(line)
