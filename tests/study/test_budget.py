"""What is an equal budget, and how one is made."""

from typing import Any

import pytest

from depthbench.data.dataset import Dataset
from depthbench.errors import DepthbenchError
from depthbench.nn.count import count_parameters
from depthbench.study.budget import budget_of, check_budgets, excess, fitted
from depthbench.train.config import TrialConfig
from tests.small import SHAPE, make_dataset, trial_config

LABELS = ("one", "other")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_dataset(tmp_path_factory.mktemp("budget"))


def trial(dataset: Dataset, **changes: Any) -> TrialConfig:
    return trial_config(dataset, **changes)


def test_a_budget_in_numbers(dataset: Dataset) -> None:
    found = budget_of(trial(dataset))
    # 2 blocks of 4·16² + 3·16·24 + 2·16, a final gain, embedding and head of 257·16
    total = 2 * (4 * 16**2 + 3 * 16 * 24 + 2 * 16) + 16 + 2 * 257 * 16
    assert (found.tokens, found.sequences, found.length) == (512, 4, 16)
    assert found.parameters == total
    # per token 2 for each entry of a matrix, 2·T·d of attention in each block; backward is twice
    forward = 2 * 2 * (4 * 16**2 + 3 * 16 * 24) + 2 * 2 * 16 * 16 + 2 * 257 * 16
    assert found.flops_per_token == 3 * forward


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tokens": 1024}, "one has 512 training tokens (train.tokens), other 1,024"),
        ({"sequences": 8}, "one has 4 sequences in a batch (train.sequences), other 8"),
        ({"length": 8}, "one has 16 tokens in a sequence (train.length), other 8"),
        (
            {"validation_tokens": 128},
            "one has 256 validation tokens (train.validation_tokens), other 128",
        ),
    ],
)
def test_unequal_training_is_refused_with_both_numbers(
    dataset: Dataset, changes: dict[str, int], words: str
) -> None:
    with pytest.raises(DepthbenchError) as refused:
        check_budgets(trial(dataset), trial(dataset, **changes), LABELS, 0.01)
    [field] = changes
    assert words in str(refused.value)
    assert f"Give both train.{field}=" in str(refused.value)


def test_other_data_is_refused(dataset: Dataset) -> None:
    other = trial(dataset).model_copy(update={"data_hash": "0123456789ab"})
    with pytest.raises(DepthbenchError, match=r"unequal data: one reads .* other 0123456789ab"):
        check_budgets(trial(dataset), other, LABELS, 0.01)


def test_parameters_may_differ_by_the_tolerance(dataset: Dataset) -> None:
    a, b = trial(dataset), trial(dataset, design="hc")
    low, high = (count_parameters(one.model).total for one in (a, b))
    off = high / low - 1
    assert off > 0.01
    assert excess(*check_budgets(a, b, LABELS, off)) == off
    # the order of sides makes no difference
    for sides in ((a, b), (b, a)):
        with pytest.raises(DepthbenchError) as refused:
            check_budgets(*sides, LABELS, 0.99 * off)
        assert f"{low:,}" in str(refused.value)
        assert f"{high:,}" in str(refused.value)
        assert f"{100 * off:.3g} %" in str(refused.value)


@pytest.mark.parametrize("backbone", ["dense", "moe"])
@pytest.mark.parametrize("design", ["hc", "attnres"])
def test_the_fitted_feed_forward_is_the_nearest_of_all(
    dataset: Dataset, design: str, backbone: str
) -> None:
    small = trial(dataset, backbone=backbone)
    large = trial(dataset, backbone=backbone, design=design)
    aim = count_parameters(small.model).total

    def off(ffn: int) -> int:
        shape = SHAPE.model_copy(update={"ffn": ffn})
        return abs(count_parameters(large.model.model_copy(update={"shape": shape})).total - aim)

    found = fitted(large, small)
    assert found is not None
    assert off(found) == min(off(ffn) for ffn in range(1, SHAPE.ffn + 1))


def test_where_no_feed_forward_is_small_enough_nothing_is_fitted(dataset: Dataset) -> None:
    small = trial(dataset, shape=SHAPE.model_copy(update={"layers": 1}))
    deep = trial(dataset, shape=SHAPE.model_copy(update={"layers": 6}))
    assert fitted(deep, small) is None
