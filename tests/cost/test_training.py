"""A training step and a trial, by hand."""

import pytest

from depthbench.cost.devices import constant, find_device
from depthbench.cost.memory import memory_of
from depthbench.cost.serving import served, serving
from depthbench.cost.training import products_on, step_cost, training_cost
from depthbench.nn.count import count_parameters
from depthbench.nn.model import ModelConfig
from depthbench.shapes import Shape
from depthbench.train.config import TrainConfig, TrialConfig

SHAPE = Shape(layers=2, width=32, heads=2, kv_heads=2, ffn=64, vocab=64)
MODEL = ModelConfig.parse({"shape": SHAPE, "design": "prenorm"})
GPU = find_device("a100")


def trial(**changes: object) -> TrialConfig:
    train = TrainConfig.parse(
        {"tokens": 1000, "sequences": 4, "length": 16, "dtype": "float32", **changes}
    )
    return TrialConfig(model=MODEL, train=train, data_hash="x", learning_rate=1e-3, seed=0)


def test_memory_is_four_times_the_parameters_and_shared() -> None:
    count = count_parameters(MODEL).total
    memory = memory_of(MODEL, "bfloat16")
    assert memory.weights == 2 * count
    assert memory.training == 16 * count
    assert memory.sharded(3) == -(-16 * count // 3)
    one = step_cost(MODEL, GPU, length=16, sequences=4, products="float32")
    own = one.step.peak_bytes - memory.parameters
    assert one.bytes_on(1) == 16 * count + own
    assert one.bytes_on(4) == 4 * count + own
    assert own > one.step.kept_bytes - 1


def test_the_optimizer_reads_and_writes_seven_numbers_a_parameter() -> None:
    slow = GPU.model_copy(update={"bandwidth": constant(1e6)})
    one = step_cost(MODEL, slow, length=16, sequences=4, products="float32")
    assert one.optimizer == pytest.approx(7 * 4 * count_parameters(MODEL).total / 1e6)
    assert one.seconds == one.times.seconds + one.optimizer


def test_a_trial_is_its_steps() -> None:
    # 1000 tokens are 16 steps of 64
    one = step_cost(MODEL, GPU, length=16, sequences=4, products="float32")
    whole = training_cost(trial(), GPU)
    assert whole.seconds == pytest.approx(16 * one.seconds)
    parts = training_cost(trial(micro_sequences=2), GPU)
    half = step_cost(MODEL, GPU, length=16, sequences=2, products="float32")
    assert parts.seconds == pytest.approx(16 * (2 * half.times.seconds + half.optimizer))
    assert parts.memory_bytes < whole.memory_bytes
    assert whole.flops == parts.flops


def test_backward_is_twice_the_forward() -> None:
    one = step_cost(MODEL, GPU, length=64, sequences=4, products="float32")
    stated = training_cost(trial(length=64, sequences=4, tokens=256, evaluations=1), GPU).flops
    # attention's backward is 2.5 times its forward, and sums are no products
    assert one.step.total.flops == pytest.approx(stated, rel=0.12)


def test_auto_is_the_faster_number() -> None:
    assert products_on(GPU, "auto") == "bfloat16"
    assert products_on(GPU, "float32") == "float32"
    only = GPU.model_copy(update={"products": {"float32": constant(1.0)}})
    assert products_on(only, "auto") == "float32"


def test_serving_adds_the_time_of_a_step_and_shares_memory() -> None:
    one = served(MODEL, GPU, context=64, dtype="bfloat16")
    assert one.tpot == one.decode.seconds + GPU.step
    assert one.tokens_per_second == pytest.approx(1 / one.tpot)
    figures = serving(MODEL, GPU, context=64, batch=1, dtype="bfloat16")
    assert figures.kv_bytes == 2 * 2 * 32 * 64 * 2
    assert figures.memory_bytes == one.memory
    assert figures.state_bytes == 64 * 32 * 2
