"""Activation checkpointing of any design: same outputs and gradients, fewer saved tensors."""

import pytest
import torch
from torch import Tensor, nn

from depthbench.designs.base import DesignConfig
from depthbench.nn.model import Model
from tests.contract.variants import VARIANTS
from tests.oracles import GQA, config_of, random_model, tokens_of

every = pytest.mark.parametrize("design", VARIANTS.values(), ids=VARIANTS.keys())


def step(model: Model) -> tuple[Tensor, dict[str, Tensor | None], int]:
    """Logits, gradients, and the number of values saved for the backward pass."""
    tokens = tokens_of(GQA, length=16)
    storages: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    model.zero_grad()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        logits = model(tokens)
    nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
    return logits, {n: p.grad for n, p in model.named_parameters()}, sum(storages.values())


@every
def test_checkpointed_equals_not_checkpointed(design: DesignConfig) -> None:
    model = random_model(config_of(design))
    logits, gradients, saved = step(model)
    model.checkpointing = True
    again, recomputed, less = step(model)
    assert torch.equal(logits, again)
    for name, gradient in gradients.items():
        other = recomputed[name]
        assert (gradient is None) == (other is None), name
        if gradient is not None and other is not None:
            torch.testing.assert_close(other, gradient, rtol=1e-12, atol=1e-14, msg=name)
    assert less < 0.7 * saved
