"""Every law can fail: on a design that breaks it, and it holds where nothing is wrong."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from depthbench.check.law import Finding, Outcome, held, within
from depthbench.check.laws import LAWS
from depthbench.check.run import asked_for, check
from depthbench.check.signal import DEPTHS, Signal
from depthbench.check.subject import Subject
from depthbench.designs import REGISTRY, parse_design
from depthbench.designs.base import Design
from depthbench.nn.backbones import parse_backbone
from tests.check.broken_function import (
    WRONG_FUNCTION,
    CountsItsCalls,
    IgnoresOneBranch,
    LooksAhead,
    TouchesNeighbours,
    TouchesTheMirrored,
)
from tests.check.broken_model import WRONG_MODEL, ConstantInBuffer, DependsOnDevice, Explodes

ROOT = Path(__file__).parents[2]
OWN = Path(__file__).parent / "own"
BROKEN = WRONG_FUNCTION | WRONG_MODEL
ALSO: dict[type[Design[Any]], set[str]] = {
    LooksAhead: {"decoding"},
    TouchesNeighbours: {"decoding"},
    TouchesTheMirrored: {"decoding"},
    IgnoresOneBranch: {"training"},
    CountsItsCalls: set(LAWS),
    ConstantInBuffer: set(LAWS),
    DependsOnDevice: {"seeds"},
    Explodes: {"programs", "taps"},
}
"""What else cannot hold; a buffer of the meta device holds whatever memory held."""
COMPILING = {
    "reading.py": "numbers are read out of tensors, as by .item()",
    "branching.py": "Unsupported: Data-dependent branching (branching.py, line ",
    "counting.py": "compilations of 2 layers of width 16, not one",
    "unrolled.py": "compilations over 4 shapes of tokens",
    "otherwise.py": "logits and gradients, compiled and plain",
}
"""Files of designs that break `compiling`, and what the finding says."""
CASES = [
    pytest.param(law, kind, said, id=f"{law}-{kind.__name__}")
    for law, cases in BROKEN.items()
    for kind, said in cases
]


def finding(name: str, law: str) -> Finding:
    """Of one law about one registered design."""
    return check(asked_for(name, "dense", [law])).findings[0]


def test_every_law_has_a_broken_design() -> None:
    assert {*BROKEN, "compiling"} == LAWS.keys()
    assert {path.name for path in OWN.glob("*.py")} == COMPILING.keys()


@pytest.mark.parametrize(("law", "kind", "said"), CASES)
def test_a_broken_design_breaks_the_law(
    law: str, kind: type[Design[Any]], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = kind.Config.model_fields["name"].default
    monkeypatch.setitem(REGISTRY, name, kind)
    found = finding(name, law)
    assert found.status == "broken", found
    assert said in found.detail
    # where a number decided, it is the number that is too large
    if found.measured is not None and found.limit is not None:
        assert found.measured > found.limit


@pytest.mark.slow
@pytest.mark.parametrize(("law", "kind", "said"), CASES)
def test_a_broken_design_breaks_that_law_alone(
    law: str, kind: type[Design[Any]], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = kind.Config.model_fields["name"].default
    monkeypatch.setitem(REGISTRY, name, kind)
    others = [other for other in LAWS if other not in ("compiling", "signal", law)]
    found = check(asked_for(name, "dense", others)).broken
    assert {one.law for one in found} <= ALSO.get(kind, set()), found


@pytest.mark.parametrize("law", [law for law in LAWS if law != "compiling"])
def test_a_sound_design_keeps_the_law(law: str) -> None:
    name = "mhc" if law == "mixing" else "prenorm"
    found = finding(name, law)
    assert found.status == "held", found
    assert found.detail


def test_nothing_is_held_to_what_it_does_not_claim() -> None:
    assert finding("prenorm", "mixing").status == "none"
    start = finding("sandwich", "start")
    assert start.status == "none"
    assert start.measured is not None
    assert start.measured > 0.1
    assert start.limit is None


@pytest.mark.slow
def test_compiling_breaks_where_it_must() -> None:
    """In a process of its own: there the package runs without run-time shape checks."""
    files = [str(OWN / name) for name in COMPILING]
    command = [sys.executable, "-W", "error", "-m", "depthbench", "check", *files, "prenorm"]
    result = subprocess.run(
        [*command, "--law", "compiling", "--workers", "1", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1, result.stderr
    assert result.stderr == ""
    *broken, prenorm = (one["findings"][0] for one in json.loads(result.stdout))
    for found, said in zip(broken, COMPILING.values(), strict=True):
        assert found["status"] == "broken", found
        assert said in found["detail"], found
    assert prenorm["status"] == "held", prenorm
    assert prenorm["measured"] < 1e-12


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_is_not_within(value: float) -> None:
    assert within(value, 1.0, "seen") == Outcome("broken", None, 1.0, "seen: not finite")


def test_within() -> None:
    assert within(1.0, 1.0).status == "held"
    assert within(1.1, 1.0).status == "broken"
    assert held("so") == Outcome("held", None, None, "so")


def test_ratios_of_a_signal_that_is_not_finite() -> None:
    signal = Signal(layers=2, forward=[0.0, 1.0, 2.0], backward=[1.0, None], gradient=[6.0, 3.0])
    assert signal.forward_growth is None
    assert signal.backward_ratio is None
    assert signal.gradient_ratio == 2.0


def test_a_signal_has_every_depth() -> None:
    checked = check(asked_for("rezero", "dense", ["signal"]))
    assert [one.layers for one in checked.signals] == list(DEPTHS)
    for one in checked.signals:
        lengths = [len(values) for values in (one.forward, one.backward, one.gradient)]
        assert lengths == [one.layers + 1, one.layers, one.layers]
        # its scalars start at 0: the state passes unchanged
        assert one.forward_growth == 1.0


@pytest.mark.parametrize("backbone", ["moe", "hybrid"])
@pytest.mark.parametrize("law", ["operations", "parameters", "causality", "decoding"])
def test_laws_hold_on_other_backbones(backbone: str, law: str) -> None:
    found = check(asked_for("hc", backbone, [law])).findings[0]
    assert found.status == "held", found


def test_hidden_work_is_seen_on_routed_experts(monkeypatch: pytest.MonkeyPatch) -> None:
    kind, _ = BROKEN["operations"][0]
    monkeypatch.setitem(REGISTRY, "hides_its_work", kind)
    subject = Subject(parse_design("hides_its_work"), parse_backbone("moe"))
    assert LAWS["operations"].check(subject).status == "broken"
