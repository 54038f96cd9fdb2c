"""The command `check`: what it answers, refuses and prints, and designs from files."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from depthbench.check.laws import LAWS
from depthbench.check.run import Asked, Checked, all_asked, check_all
from depthbench.check.signal import DEPTHS
from depthbench.cli.app import execute
from depthbench.designs import REGISTRY
from tests.fits import fits

Capture = pytest.CaptureFixture[str]
GOOD = '''
"""Half of every output."""

from torch import Tensor

from depthbench.designs.base import Card, DesignConfig, Route, Site, TensorConnection, TensorDesign
from depthbench.nn.norm import RMSNorm


class MineConfig(DesignConfig):
    name: str = "mine"


class MineConnection(TensorConnection):
    def __init__(self, shape, backbone) -> None:
        super().__init__()
        self.norm = RMSNorm(shape.width, backbone.norm_eps)

    def read(self, state):
        return self.norm(state), Route()

    def write(self, state, y, route, entry):
        return state + 0.5 * y


class Mine(TensorDesign):
    Config = MineConfig
    card = Card(
        family="residual scale",
        sources="state",
        weights="fixed",
        own="0",
        equation="h ← h + y / 2",
        paper="none",
    )

    def connection(self, site: Site) -> MineConnection:
        return MineConnection(self.shape, self.backbone)
'''
SECOND = """

class Other(TensorDesign):
    Config = MineConfig
    card = Mine.card

    def connection(self, site: Site) -> MineConnection:
        return MineConnection(self.shape, self.backbone)
"""
CARD = GOOD[GOOD.index("    card = Card(") : GOOD.index("    def connection")]


def altered(old: str, new: str) -> str:
    """`GOOD` with one piece replaced."""
    assert GOOD.count(old) == 1
    return GOOD.replace(old, new)


@pytest.fixture(autouse=True)
def _registry() -> Iterator[None]:
    """Designs of files are there in one test only."""
    before = dict(REGISTRY)
    yield
    REGISTRY.clear()
    REGISTRY.update(before)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with a design of one's own in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(GOOD, encoding="utf-8")
    return tmp_path


@pytest.fixture
def refused(capsys: Capture) -> Callable[..., str]:
    """``refused(*arguments)``: the one line that the command answers with."""

    def run(*arguments: str) -> str:
        assert execute(["check", *arguments]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("depthbench: ")
        assert err.count("\n") == 1
        assert "Traceback" not in err
        return err.removeprefix("depthbench: ").rstrip("\n")

    return run


def answer(capsys: Capture, code: int, *arguments: str) -> list[dict[str, Any]]:
    """The JSON that the command prints."""
    assert execute(["check", *arguments, "--json"]) == code
    out, err = capsys.readouterr()
    assert err == ""
    said = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    for one in said:
        fits("checked", one)
    return said


def in_process(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command as a user runs it."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "depthbench", "check", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_table_of_one_design(capsys: Capture) -> None:
    assert execute(["check", "hc", "--law", "facts", "--law", "mixing"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[0].strip() == "hc"
    assert lines[1].split() == ["law", "says", "measured", "at", "most", "what", "was", "seen"]
    assert [line.split()[:2] for line in lines[2:4]] == [["✓", "facts"], ["·", "mixing"]]
    assert LAWS["facts"].says in lines[2]
    assert "first old stream in last new" in lines[2]
    assert lines[-1] == "1 checked: every law holds"


def test_laws_are_those_that_are_named_each_once(capsys: Capture) -> None:
    arguments = ["prenorm", "--law", "start", "--law", "facts", "--law", "start"]
    (found,) = answer(capsys, 0, *arguments)
    assert [finding["law"] for finding in found["findings"]] == ["start", "facts"]


def test_json_of_one_design(capsys: Capture) -> None:
    (found,) = answer(capsys, 0, "prenorm", "--law", "signal", "--law", "causality")
    assert found["label"] == "prenorm"
    assert found["design"] == {"name": "prenorm"}
    assert found["backbone"]["name"] == "dense"
    assert found["held"] is True
    assert found["refused"] is None
    assert found["seconds"] > 0
    signal, causality = found["findings"]
    assert signal["detail"].startswith("gradient of the bottom block over the top one's: ")
    assert causality == {
        "law": "causality",
        "says": LAWS["causality"].says,
        "status": "held",
        "measured": 0.0,
        "limit": 1e-10,
        "detail": "logits before a changed token",
    }
    assert [signal["layers"] for signal in found["signals"]] == list(DEPTHS)
    for signal in found["signals"]:
        lists = [signal[key] for key in ("forward", "backward", "gradient")]
        assert [len(one) - signal["layers"] for one in lists] == [1, 0, 0]
        assert all(value > 0 for one in lists for value in one)


def test_tables_of_the_init_card(capsys: Capture) -> None:
    assert execute(["check", "rezero", "--law", "signal"]) == 0
    lines = capsys.readouterr().out.splitlines()
    start = next(n for n, line in enumerate(lines) if line.split()[:1] == ["design"])
    assert lines[start].rstrip().endswith("  variance L64  variance L256")
    # its scalars start at 0: what enters leaves
    assert lines[start + 1].split()[5:] == ["1"] * 4
    card = lines[start + 3 :]
    assert card[0].strip() == "start by depth, from the bottom to the top"
    assert card[1].split() == ["blocks", "what", "bottom", "1/4", "1/2", "3/4", "top"]
    rows = [line.split() for line in card[2:14]]
    assert [row[0] for row in rows] == [str(n) for n in DEPTHS for _ in range(3)]
    assert len({*rows[0][-5:], *rows[9][-5:]}) == 1


def test_what_is_not_finite_is_null(capsys: Capture, folder: Path) -> None:
    text = altered("state + 0.5 * y", "1e3 * (state + y)")
    (folder / "mine.py").write_text(text, encoding="utf-8")
    (found,) = answer(capsys, 1, "./mine.py", "--law", "signal")
    assert "is not finite" in found["findings"][0]["detail"]
    assert found["signals"][-1]["forward"][-1] is None
    assert execute(["check", "./mine.py", "--law", "signal"]) == 1
    assert "—" in capsys.readouterr().out


def test_a_design_of_ones_own(capsys: Capture, folder: Path) -> None:
    (found,) = answer(capsys, 0, "./mine.py", "--law", "decoding", "--law", "start")
    assert found["label"] == "mine"
    assert found["held"] is True
    assert [one["status"] for one in found["findings"]] == ["held", "none"]
    # the same file once more, and without a folder in its name
    assert answer(capsys, 0, "mine.py", "--law", "facts")[0]["label"] == "mine"


def test_a_broken_design_of_ones_own(capsys: Capture, folder: Path) -> None:
    text = altered("state + 0.5 * y", "state + y + y.mean(1, keepdim=True)")
    (folder / "mine.py").write_text(text, encoding="utf-8")
    (found,) = answer(capsys, 1, "./mine.py", "--law", "causality", "--law", "seeds")
    assert found["held"] is False
    assert [one["status"] for one in found["findings"]] == ["broken", "held"]
    assert found["findings"][0]["measured"] > found["findings"][0]["limit"]
    assert execute(["check", "./mine.py", "--law", "causality", "--law", "seeds"]) == 1
    out = capsys.readouterr().out
    assert "✗  causality" in out
    assert "logits before a changed token" in out
    assert out.splitlines()[-1] == "1 checked: 1 of 2 laws are broken"


def test_an_error_names_the_line(capsys: Capture, folder: Path) -> None:
    text = altered("        return state + 0.5 * y", "        return state + half * y")
    (folder / "mine.py").write_text(text, encoding="utf-8")
    line = text.splitlines().index("        return state + half * y") + 1
    (found,) = answer(capsys, 1, "mine.py", "--law", "batch")
    said = f"NameError: name 'half' is not defined (mine.py, line {line})"
    assert found["findings"][0]["detail"] == said


@pytest.mark.slow
def test_two_workers_and_a_file_from_another_directory(folder: Path) -> None:
    """The processes that check read the file themselves."""
    (folder / "below").mkdir()
    arguments = ["../mine.py", "prenorm", "--law", "batch", "--workers", "2"]
    result = in_process(folder / "below", *arguments)
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert [line.split()[:2] for line in lines[:3]] == [
        ["design", "batch"],
        ["mine", "✓"],
        ["prenorm", "✓"],
    ]
    assert lines[-1] == "2 checked: every law holds"


@pytest.mark.slow
def test_files_of_one_name_in_two_folders(folder: Path) -> None:
    (folder / "other").mkdir()
    text = altered('name: str = "mine"', 'name: str = "yours"')
    (folder / "other" / "mine.py").write_text(text, encoding="utf-8")
    result = in_process(folder, "mine.py", "other/mine.py", "--law", "facts", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    assert [one["label"] for one in json.loads(result.stdout)] == ["mine", "yours"]


@pytest.mark.slow
def test_a_process_that_dies(folder: Path) -> None:
    text = altered("        return state + 0.5 * y", "        import os; os.abort()")
    (folder / "mine.py").write_text(text, encoding="utf-8")
    arguments = ["mine.py", "prenorm", "--law", "batch", "--workers", "2"]
    result = in_process(folder, *arguments)
    assert result.returncode == 2
    said = result.stderr.splitlines()[-1]
    assert said.startswith("depthbench: a process that checks designs was ended from outside")


FILES = {
    "syntax": (altered("read(self, state):", "read(self, state)"), [", line 19: SyntaxError"]),
    "raises": (GOOD + "raise ValueError('two\\nlines')\n", [", line 39: ValueError: two lines"]),
    "exits": (GOOD + "raise SystemExit(0)\n", [", line 39: SystemExit: 0"]),
    "imports": ("import nonesuch_at_all\n", [", line 1: ModuleNotFoundError", "nonesuch_at_all"]),
    "two": (GOOD + SECOND, ["defines 2 designs (Mine, Other). Keep one in a file"]),
    "none": ("x = 1\n", ["defines no design. Derive one class"]),
    "empty": ("", ["defines no design"]),
    "abstract": (
        altered("def connection(self", "def conection(self"),
        ["defines design Mine without connection. Add these methods"],
    ),
    "part": (
        altered("def write(self", "def wrote(self"),
        [", line 38: TypeError: Can't instantiate abstract class MineConnection", "write"],
    ),
    "taken": (
        altered('name: str = "mine"', 'name: str = "hc"'),
        ["design 'hc' is there already. Give yours another name"],
    ),
    "nameless": (altered('    name: str = "mine"', "    pass"), ["MineConfig names no design"]),
    "cardless": (altered(CARD, ""), ["Mine has no card. Write card"]),
    "bare": (altered("    Config = MineConfig\n", ""), ["Mine has no Config. Write Config = "]),
    "option": (
        altered('    name: str = "mine"', '    name: str = "mine"\n    factor: float'),
        ["design 'mine': 'factor' is missing: add it"],
    ),
}


@pytest.mark.parametrize("case", FILES)
def test_files_that_hold_no_one_design(
    refused: Callable[..., str], folder: Path, case: str
) -> None:
    text, words = FILES[case]
    (folder / f"{case}.py").write_text(text, encoding="utf-8")
    line = refused(f"./{case}.py", "--law", "facts")
    assert [word for word in words if word not in line] == [], line
    # and it is refused the second time as it was the first
    assert refused(f"{case}.py", "--law", "facts") == line


def test_files_that_are_none(refused: Callable[..., str], folder: Path) -> None:
    assert refused("./gone.py").startswith("gone.py: no such file. Name a Python file")
    (folder / "folder.py").mkdir()
    assert refused("folder.py").startswith("folder.py is a folder. Name the Python file in it")
    (folder / "mine.txt").write_text(GOOD, encoding="utf-8")
    assert "mine.txt is no Python file: its name must end in .py" in refused("./mine.txt")
    (folder / "bytes.py").write_bytes(b"x = 1\n\0")
    assert "bytes.py: SyntaxError: source code" in refused("bytes.py")
    (folder / "latin.py").write_bytes(b"x = '\xe9'\n")
    assert "SyntaxError" in refused("latin.py")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["name designs or files, or write --all", "depthbench check hc ./mine.py"]),
        (["hc", "--all"], ["name designs or files, or write --all"]),
        (["hc", "prenorm", "hc"], ["'hc' is named twice: name each design once"]),
        (["hcc"], ["unknown design 'hcc', did you mean 'hc'?"]),
        (["hc", "--law", "fact"], ["unknown law 'fact', did you mean 'facts'?"]),
        (["--all", "--law", "starts"], ["unknown law 'starts', did you mean 'start'?"]),
        (["hc", "--backbone", "hybird"], ["unknown backbone 'hybird', did you mean 'hybrid'?"]),
        (["--all", "--backbone", "mo"], ["unknown backbone 'mo', did you mean 'moe'?"]),
        (["hc", "--workers", "0"], ["--workers", "greater than or equal to 1"]),
        (["moda", "--backbone", "hybrid"], ["design 'moda' on backbone 'hybrid'", "Set backbone"]),
        (["hc", "moda", "--backbone", "hybrid"], ["design 'moda' on backbone 'hybrid'"]),
    ],
    ids=" ".join,
)
def test_command_lines_that_cannot_be(
    refused: Callable[..., str], arguments: list[str], words: list[str]
) -> None:
    line = refused(*arguments)
    assert [word for word in words if word not in line] == [], line


def some(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let these be all designs that there are."""
    for name in set(REGISTRY) - set(names):
        monkeypatch.delitem(REGISTRY, name)


def test_all_says_what_a_backbone_refuses(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    some(monkeypatch, "prenorm", "moda", "plain")
    arguments = ["--all", "--backbone", "hybrid", "--law", "facts", "--workers", "1"]
    found = {one["design"]["name"]: one for one in answer(capsys, 0, *arguments)}
    assert list(found) == [name for name in REGISTRY if name in found]
    moda = found.pop("moda")
    assert moda["refused"].startswith("design 'moda' on backbone 'hybrid'")
    assert (moda["held"], moda["findings"], moda["signals"]) == (None, [], [])
    assert [(one["held"], one["refused"]) for one in found.values()] == [(True, None)] * 2
    assert execute(["check", *arguments]) == 0
    out = capsys.readouterr().out
    assert "– refused: design 'moda' on backbone 'hybrid'" in out
    assert "moda on hybrid" not in out
    assert out.splitlines()[-1] == "2 checked, 1 refused: every law holds"


def test_all_asks_for_every_design() -> None:
    asked = all_asked("dense", [])
    assert all(isinstance(one, Asked) and one.laws == tuple(LAWS) for one in asked)
    assert [one.design["name"] for one in asked if isinstance(one, Asked)] == list(REGISTRY)


def test_each_is_told_once_and_in_the_order_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    some(monkeypatch, "prenorm", "moda", "plain")
    told: list[Checked] = []
    checked = check_all(all_asked("hybrid", ["seeds"]), 1, told.append)
    assert [one.label for one in checked] == [f"{name} on hybrid" for name in REGISTRY]
    assert sorted(one.label for one in told) == sorted(one.label for one in checked)


def test_broken_designs_of_several_are_told(capsys: Capture, folder: Path) -> None:
    text = altered("state + 0.5 * y", "state + y + y.mean(0, keepdim=True)")
    (folder / "mine.py").write_text(text, encoding="utf-8")
    assert execute(["check", "prenorm", "mine.py", "--law", "batch", "--workers", "1"]) == 1
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert [line.split()[:2] for line in lines[1:3]] == [["prenorm", "✓"], ["mine", "✗"]]
    assert lines[3].startswith("✗ mine: batch: a sequence in a batch and alone ")
    assert lines[3].endswith(" (at most 1e-10)")
    assert lines[-1] == "2 checked: 1 of 2 laws are broken"


def test_an_error_in_the_package_itself_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("depthbench.check.subject.Subject.on_meta", failing)
    with pytest.raises(ZeroDivisionError):
        execute(["check", "prenorm"])
