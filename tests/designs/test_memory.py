"""Memory of a forward grows with the number of sources, not with its square.

What is kept for the backward pass at twice the width, less what is kept at the width: softmax
weights and logits, which have no width, drop out, and what is left is linear in depth.
"""

from collections.abc import Callable, Iterable

import pytest
import torch
from torch import Tensor

from depthbench.designs import REGISTRY
from depthbench.designs.attnres import softmax_mean
from tests.oracles import EPS, GQA, config_of, random_model, tokens_of

BATCH, LENGTH, WIDTH = 2, 16, 32
DEPTHS = (3, 6, 12)
KEEPING = [name for name, kind in REGISTRY.items() if kind.checkpoint_unit == "branch"]
"""Designs whose state is a list of sources."""


def kept(forward: Callable[[], Tensor], weights: Iterable[Tensor]) -> int:
    """Bytes of all storages beside the weights that a forward keeps for its backward pass."""
    own = {weight.untyped_storage().data_ptr() for weight in weights}
    found: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = forward()
    assert output.requires_grad
    return sum(found.values())


def of_model(design: str, layers: int, width: int, checkpointing: bool) -> int:
    """What a model of any design keeps."""
    shape = GQA.model_copy(update={"layers": layers, "width": width})
    model = random_model(config_of(design, shape))
    model.checkpointing = checkpointing
    tokens = tokens_of(shape, BATCH, LENGTH)
    return kept(lambda: model(tokens), model.parameters())


def of_stacks(layers: int, width: int) -> int:
    """What depth attention keeps that stacks its sources at every site."""
    first = torch.randn(BATCH, LENGTH, width, requires_grad=True)

    def tower() -> Tensor:
        sources = [first]
        for _ in range(2 * layers):
            sources.append(softmax_mean(sources, torch.zeros(width), EPS))
        return sources[-1]

    return kept(tower, [first])


def growth(measure: Callable[[int, int], int]) -> float:
    """How much more the second doubling of depth adds than the first: 2 if linear, 4 if square."""
    low, middle, high = (measure(n, 2 * WIDTH) - measure(n, WIDTH) for n in DEPTHS)
    return (high - middle) / (middle - low)


@pytest.mark.parametrize("design", ["prenorm", "mhc", *KEEPING])
def test_memory_is_linear_in_depth(design: str) -> None:
    found = growth(lambda layers, width: of_model(design, layers, width, False))
    assert found == pytest.approx(2, abs=0.1)


@pytest.mark.parametrize("design", KEEPING)
def test_memory_beside_recomputed_branches_is_linear_in_depth(design: str) -> None:
    found = growth(lambda layers, width: of_model(design, layers, width, True))
    assert found == pytest.approx(2, abs=0.1)


def test_stacked_sources_are_seen_to_be_quadratic() -> None:
    assert growth(of_stacks) == pytest.approx(4, abs=0.3)
