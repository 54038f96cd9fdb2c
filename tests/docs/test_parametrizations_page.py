"""The page ``docs/parametrizations.md``: its designs and its settings are there."""

import re
import tomllib

import pytest

from depthbench.designs import REGISTRY
from depthbench.nn.parametrization import Parametrization
from depthbench.shapes import Shape
from tests.docs.blocks import ROOT, blocks_of

PAGE = (ROOT / "docs" / "parametrizations.md").read_text(encoding="utf-8")
SECTION = PAGE.split("## Which designs")[1].split("## Measured")[0]
TAKERS, REFUSED = SECTION.split("The others are refused by name")


@pytest.mark.parametrize("name", REGISTRY)
def test_every_design_is_named_where_it_belongs(name: str) -> None:
    side = TAKERS if REGISTRY[name].sums_branches else REFUSED
    assert f"`{name}`" in side


def test_slopes_are_shown_of_every_design_that_takes_the_factor() -> None:
    shown = re.findall(r"^\| `(\w+)` \| \+\d", PAGE, re.MULTILINE)
    assert set(shown) == {name for name, kind in REGISTRY.items() if kind.sums_branches}


def test_settings_and_table() -> None:
    (settings,) = (one for one in blocks_of("parametrizations.md") if one.language == "toml")
    given = tomllib.loads(settings.text)["parametrization"]
    shape = Shape(layers=16, width=256, heads=8, kv_heads=8, ffn=512, vocab=99)
    scaling = Parametrization.parse(given).at(shape)
    assert (scaling.branch, scaling.head, scaling.std) == (1 / 4, 1 / 2, 2**-0.5)
