"""bfloat16 autocast of any design: close to float32, its coefficients and states in float32."""

from dataclasses import fields

import pytest
import torch
from torch import Tensor

from depthbench.designs.base import DesignConfig
from depthbench.nn.block import Trace
from depthbench.nn.model import Model
from tests.contract.variants import VARIANTS
from tests.oracles import GQA, config_of, tokens_of

every = pytest.mark.parametrize("design", VARIANTS.values(), ids=VARIANTS.keys())


def perturbed(design: DesignConfig) -> Model:
    """A float32 model near its start whose coefficients have left it."""
    model = Model.build(config_of(design), seed=0)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    return model


@every
def test_logits_are_close_to_float32(design: DesignConfig) -> None:
    """Within a few units of bfloat16's 2^-8, which rounds every product of the branches."""
    model = perturbed(design)
    tokens = tokens_of(GQA, length=16)
    exact = model(tokens)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model(tokens).float()
    distance = (rounded - exact).square().mean().sqrt() / exact.square().mean().sqrt()
    assert 1e-4 < distance < model.design.autocast_distance


@every
def test_coefficients_and_states_stay_in_float32(design: DesignConfig) -> None:
    model = perturbed(design)
    plain, rounded = Trace(), Trace()
    tokens = tokens_of(GQA, length=16)
    model(tokens, trace=plain)
    with torch.autocast("cpu", torch.bfloat16):
        model(tokens, trace=rounded)
    for state in rounded.depth_states:
        assert state.dtype == torch.float32
    for (_, one), (_, other) in zip(plain.routes, rounded.routes, strict=True):
        for field in fields(one):
            exact, close = vars(one)[field.name], vars(other)[field.name]
            if isinstance(exact, Tensor):
                assert close.dtype == torch.float32
                assert (close - exact).abs().max() < 0.02


@every
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_weights_in_half_precision(design: DesignConfig, dtype: torch.dtype) -> None:
    """Logits in the weights' dtype, near float32's, in one forward and over the cache.

    Within a few times the rounding of the weights themselves, 2^-8 and 2^-11.
    """
    exact = perturbed(design)
    half = Model.build(config_of(design), seed=0, dtype=dtype)
    half.load_state_dict(exact.state_dict())
    tokens = tokens_of(GQA, length=16)
    expected = exact(tokens)
    for logits in (half(tokens), half.step(tokens, half.cache(2, 16))):
        assert logits.dtype == dtype
        off = (logits.float() - expected).square().mean().sqrt() / expected.square().mean().sqrt()
        assert off < 0.04
    half(tokens).float().sum().backward()
    gradients = [p.grad for p in half.parameters() if p.grad is not None]
    assert all(g.dtype == dtype and g.isfinite().all() for g in gradients)
