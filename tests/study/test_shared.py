"""Both sides of a comparison start from the same numbers and see the same batches."""

import pytest
import torch

from depthbench.data.dataset import Dataset
from depthbench.designs import REGISTRY
from depthbench.nn.count import count_parameters
from depthbench.nn.model import Model, ModelConfig
from depthbench.study.shared import shared_start
from tests.small import SHAPE, make_dataset


def config(design: str, **shape: int) -> ModelConfig:
    return ModelConfig.parse({"shape": SHAPE.model_copy(update=shape), "design": design})


@pytest.mark.parametrize("design", sorted(set(REGISTRY) - {"prenorm"}))
def test_what_is_said_to_be_shared_is_equal_in_two_built_models(design: str) -> None:
    a, b = config("prenorm"), config(design)
    ours = dict(Model.build(a, 5).named_parameters())
    theirs = dict(Model.build(b, 5).named_parameters())
    both = [name for name in ours if name in theirs and ours[name].shape == theirs[name].shape]
    equal = [name for name in both if torch.equal(ours[name], theirs[name])]
    found = shared_start(a, b, 5)
    assert found.numbers == sum(ours[name].numel() for name in equal) > 0
    assert found.of_a == found.numbers / count_parameters(a).total
    assert found.of_b == found.numbers / count_parameters(b).total
    # deepnorm alone starts the same tensors otherwise: its branches are scaled
    assert bool(found.other_start) == (len(equal) < len(both)) == (design == "deepnorm")
    assert found.other_shape == ()


def test_another_design_adds_to_the_start_and_changes_nothing_of_it() -> None:
    found = shared_start(config("prenorm"), config("hc"), 0)
    assert found.of_a == 1.0
    assert found.only_a == ()
    assert "blocks.*.attention_connection.static_mix" in found.only_b


def test_another_shape_is_named() -> None:
    found = shared_start(config("prenorm"), config("prenorm", ffn=20), 0)
    blocks = ("blocks.*.feedforward.down.weight", "blocks.*.feedforward.gate_up.weight")
    assert found.other_shape == blocks
    changed = 2 * 3 * 16 * 24
    assert found.numbers == count_parameters(config("prenorm")).total - changed


def test_another_seed_shares_only_constants() -> None:
    one, other = (Model.build(config("prenorm"), seed) for seed in (0, 1))
    equal = [
        name
        for name, parameter in one.named_parameters()
        if torch.equal(parameter, other.get_parameter(name))
    ]
    assert equal
    assert all(name.endswith("gain") for name in equal)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_dataset(tmp_path_factory.mktemp("shared"))


def test_a_batch_depends_on_seed_and_step_alone(dataset: Dataset) -> None:
    again = Dataset.open(dataset.folder)
    first = [dataset.batch(3, step, 4, 16) for step in range(6)]
    backwards = [again.batch(3, step, 4, 16) for step in reversed(range(6))][::-1]
    for (inputs, targets), (same, same_targets) in zip(first, backwards, strict=True):
        assert torch.equal(inputs, same)
        assert torch.equal(targets, same_targets)
    starts = {inputs[0].tolist().__repr__() for inputs, _ in first}
    assert len(starts) == 6
    assert not torch.equal(first[0][0], dataset.batch(4, 0, 4, 16)[0])
