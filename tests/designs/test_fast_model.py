"""Whole models: the fast versions against the plain ones."""

import pytest
import torch
from torch import Tensor

from depthbench.designs import REGISTRY, parse_design
from depthbench.nn.kernels import plain_kernels
from depthbench.nn.model import Model, ModelConfig
from depthbench.shapes import Shape

SHAPE = Shape(layers=3, width=16, heads=4, kv_heads=2, ffn=10, vocab=19)
OWN_NODES = {
    "prenorm": {"_RMSNormBackward", "_GateBackward", "_TurnPairsBackward"},
    "hc": {"_ReadBackward", "_WriteBackward", "_NormedProjectionBackward"},
    "mhc": {"_ReadBackward", "_WriteBackward", "_NormedProjectionBackward", "_SinkhornBackward"},
    "attnres": {"_AppendBackward", "_MixBackward"},
    "block_attnres": {"_AppendBackward", "_MixBackward"},
    "moda": {"_AttendTimeAndDepthBackward", "_TurnPairsBackward"},
}


def model_of(design: str, dtype: torch.dtype) -> Model:
    """Random in every parameter."""
    model = Model.build(ModelConfig(shape=SHAPE, design=parse_design(design)), 0)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model.to(dtype)


def tokens() -> Tensor:
    return torch.arange(24).view(2, 12) % 19


def loss_and_gradients(model: Model) -> tuple[Tensor, tuple[Tensor, ...]]:
    loss = model(tokens()).pow(2).mean()
    return loss, torch.autograd.grad(loss, list(model.parameters()))


def graph_names(tensor: Tensor) -> set[str]:
    """Names of all nodes behind ``tensor``."""
    seen, waiting = set(), [tensor.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting.extend(after for after, _ in node.next_functions)
    return {node.name() for node in seen}


@pytest.mark.parametrize("design", sorted(REGISTRY))
def test_equals_plain(design: str) -> None:
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-3)):
        model = model_of(design, dtype)
        loss, gradients = loss_and_gradients(model)
        with plain_kernels():
            expected, expected_gradients = loss_and_gradients(model)
        torch.testing.assert_close(loss, expected, rtol=tolerance, atol=0)
        for got, right in zip(gradients, expected_gradients, strict=True):
            bound = tolerance * max(right.abs().max().item(), 1e-3)
            torch.testing.assert_close(got, right, rtol=0, atol=bound)


@pytest.mark.parametrize("design", sorted(OWN_NODES))
def test_the_fast_versions_ran(design: str) -> None:
    model = model_of(design, torch.float32)
    assert graph_names(model(tokens())) >= OWN_NODES[design]
    with plain_kernels():
        plain = graph_names(model(tokens()))
    assert not plain & set().union(*OWN_NODES.values())
