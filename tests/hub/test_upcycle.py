"""Models of other designs that begin as a trained one (issue: the same logits at step 0)."""

import pytest
import torch

from depthbench.designs import REGISTRY, parse_design
from depthbench.errors import DepthbenchError
from depthbench.hub.upcycle import distance, upcycled
from depthbench.nn.model import Model, ModelConfig
from depthbench.shapes import Shape

SHAPE = Shape(layers=4, width=48, heads=6, kv_heads=2, ffn=64, vocab=50)
EXACT = [name for name, one in REGISTRY.items() if one.start_distance is not None]


def trained(**backbone: object) -> Model:
    """Every weight and gain away from its start."""
    config = ModelConfig.parse(
        {"shape": SHAPE, "design": "prenorm", "backbone": backbone or "dense"}
    )
    model = Model.build(config, seed=0, dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, one in model.named_parameters():
            noise = torch.randn(one.shape, generator=generator, dtype=one.dtype)
            one.add_(noise, alpha=0.3 if "gain" in name else 0.1)
    return model


@pytest.mark.parametrize("design", EXACT)
def test_begins_as_its_source(design: str) -> None:
    source = trained(name="dense", norm_eps=1e-12, tied_head=True)
    made = upcycled(source, parse_design(design), seed=3)
    found = distance(source, made)
    assert made.config.design.name == design
    assert found.promised is not None
    # promised for fresh weights; trained ones are larger, and eps counts for less
    assert found.relative <= max(2 * found.promised, 1e-14)
    assert found.largest < 1e-5


def test_the_usual_eps_and_float32_keep_streams_within_a_thousandth() -> None:
    source = trained().float()
    for design, largest in {"hc": 1e-5, "mhc": 1e-4, "attnres": 1e-3}.items():
        assert distance(source, upcycled(source, parse_design(design))).largest < largest


def test_what_the_design_adds_still_learns() -> None:
    made = upcycled(trained(), parse_design("hc"))
    made(torch.arange(16).view(1, 16)).square().mean().backward()
    own = [one for name, one in made.named_parameters() if "static" in name]
    assert own
    assert all(one.grad is not None and one.grad.abs().sum() > 0 for one in own[:3])


@pytest.mark.parametrize("design", ["rezero", "ngpt", "sandwich", "keel"])
def test_without_a_place_for_a_norm_is_refused(design: str) -> None:
    with pytest.raises(DepthbenchError, match=r"has no place for .*that begin as pre-norm: .*hc"):
        upcycled(trained(), parse_design(design))


@pytest.mark.parametrize("design", ["postnorm", "lns", "layerscale", "plain", "moda"])
def test_others_promise_nothing_and_tell_how_far_they_are(design: str) -> None:
    source = trained()
    found = distance(source, upcycled(source, parse_design(design)))
    assert found.promised is None
    assert found.relative > 0.1


def test_only_pre_norm_can_begin_another() -> None:
    source = upcycled(trained(), parse_design("hc"))
    with pytest.raises(DepthbenchError, match="only a model of 'prenorm'"):
        upcycled(source, parse_design("mhc"))
