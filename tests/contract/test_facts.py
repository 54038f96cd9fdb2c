"""What every design measures on its own connections is what its equation says."""

import pytest

from depthbench.designs.base import DesignConfig
from depthbench.nn.model import Model
from depthbench.shapes import Shape
from tests.contract.variants import DEFAULTS, VARIANTS
from tests.oracles import GQA, config_of

every = pytest.mark.parametrize("design", VARIANTS.values(), ids=VARIANTS.keys())
SHAPES = {
    "grouped": GQA,
    "one block": GQA.model_copy(update={"layers": 1}),
    "deep": Shape(layers=24, width=64, heads=4, kv_heads=4, ffn=176, vocab=99),
}


@every
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_facts_hold_of_a_design_that_is_on_meta(design: DesignConfig, shape: Shape) -> None:
    facts = Model.on_meta(config_of(design, shape)).design.facts()
    assert facts
    for fact in facts:
        assert abs(fact.measured - fact.expected) <= fact.tolerance, fact


@pytest.mark.parametrize("name", DEFAULTS)
def test_facts_have_names_of_their_own(name: str) -> None:
    names = [fact.name for fact in Model.on_meta(config_of(name)).design.facts()]
    assert len(names) == len(set(names))
