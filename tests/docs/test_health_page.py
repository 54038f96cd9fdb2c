"""docs/health.md names every signal and finding, and the defaults that the code has."""

import re
from pathlib import Path
from typing import get_args

from depthbench.train.health.config import HealthConfig
from depthbench.train.health.history import Kind
from depthbench.train.health.measure import Health

PAGE = (Path(__file__).parents[2] / "docs" / "health.md").read_text(encoding="utf-8")


def test_every_signal_and_every_finding_is_explained() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    explained = {name for row in rows for name in re.findall(r"`(\w+)`", row.split(" | ")[0])}
    assert explained == {*Health.model_fields, *get_args(Kind)}


def test_named_defaults_are_those_of_the_config() -> None:
    defaults = HealthConfig().resolved()
    named = re.findall(r"`(?:train\.health\.|z ≥ )?(\w+) = ([\d.e-]+)`", PAGE)
    named += re.findall(r"z ≥ (spike_z) = (\d+)", PAGE)
    assert {name for name, _ in named} == {
        "every",
        "sequences",
        "update_every",
        "window",
        "lasting",
        "spike_z",
        "loss_floor",
        "norm_floor",
    }
    for name, value in named:
        assert defaults[name] == float(value), name
    fields = {
        name
        for row in re.findall(r"^\| `.*\| (`.*`) \|$", PAGE, re.M)
        for name in re.findall(r"`(\w+)`", row)
    }
    assert fields <= defaults.keys()
    assert len(fields) > 10
