"""The command as a whole: help, exit codes, interrupts."""

import os
import subprocess
import sys

import pytest

from depthbench.cli import app as command
from depthbench.cli.app import COMMANDS, execute
from depthbench.cli.lazy import loaded

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_every_command_has_help_with_an_example(capsys: Capture, name: str, flag: str) -> None:
    assert execute([name, flag]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "Example" in out
    assert f"depthbench {name}" in out.partition("Example")[2]


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_the_help_lists_every_command(capsys: Capture, arguments: list[str]) -> None:
    assert execute(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert [name for name in COMMANDS if name not in out] == []


def test_the_help_imports_nothing_that_it_can_do_without() -> None:
    program = (
        "import sys; from depthbench.cli.app import execute; execute(['--help']);"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    heavy = ("torch", "numpy", "pydantic", "matplotlib", "plotly", "jinja2", "transformers", "ray")
    assert [name for name in heavy if name in done.stderr.split()] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_says_what_the_command_says_of_itself(name: str) -> None:
    own = loaded(name, COMMANDS[name])
    assert " ".join(own.help.split("\n\n")[0].split()) == COMMANDS[name].says


@pytest.mark.parametrize(
    ("words", "place", "found"),
    [
        ("depthbench pr", 1, ["probe", "prune"]),
        ("depthbench serve --p", 2, ["--port"]),
        ("depthbench streams ", 2, ["diagnose", "ablate", "merge", "report"]),
    ],
)
def test_the_shell_completes(words: str, place: int, found: list[str]) -> None:
    asked = {"_DEPTHBENCH_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(place)}
    command = [sys.executable, "-c", "from depthbench.cli import main; main()"]
    done = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True)
    assert done.stdout.split() == found


def test_an_unknown_command_names_the_nearest(capsys: Capture) -> None:
    assert execute(["prob"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("depthbench: unknown command 'prob', did you mean 'probe'? Allowed: ")


def test_main_exits_with_the_code(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as caught:
        command.main(["designs", "nothing"])
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith("depthbench: unknown design 'nothing'")


def test_an_interrupt_is_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("depthbench.cli.designs.row_of", interrupted)
    assert execute(["designs"]) == 130
