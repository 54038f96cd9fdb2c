"""Training: the optimizer step, the validation loss, determinism, and how a trial ends."""

import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional

from depthbench.data.dataset import Dataset
from depthbench.errors import DepthbenchError
from depthbench.machine import choose_dtype
from depthbench.nn.model import Model
from depthbench.train.config import TrainConfig
from depthbench.train.loop import Trial
from depthbench.train.outcome import Divergence, Outcome
from tests.small import SHAPE, TRAIN, make_dataset, trial_config


def train(dataset: Dataset, folder: Path, **changes: Any) -> tuple[Trial, Outcome]:
    trial = Trial(trial_config(dataset, **changes), dataset, folder)
    return trial, trial.run(lambda steps, tokens: None)


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def double_loss(model: Model, dataset: Dataset, step: int) -> torch.Tensor:
    inputs, targets = dataset.batch(0, step, TRAIN["sequences"], TRAIN["length"])
    return functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def undecayed(name: str) -> bool:
    """Norm gains and `hc`'s own vectors and scalars, by name: what must see no weight decay."""
    return not name.endswith(".weight")


def test_three_steps_are_adamw_with_clipping_written_out_in_float64(
    dataset: Dataset, tmp_path: Path
) -> None:
    recipe = {"weight_decay": 0.3, "max_grad_norm": 0.5, "beta1": 0.8, "beta2": 0.9, "eps": 1e-4}
    trial = Trial(trial_config(dataset, learning_rate=0.02, **recipe), dataset, tmp_path)
    model = copy.deepcopy(trial.learner.model).double()
    named = dict(model.named_parameters())
    first = {name: torch.zeros_like(p) for name, p in named.items()}
    second = {name: torch.zeros_like(p) for name, p in named.items()}
    rates = [0.02, 0.02, 0.02 * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi / 6)))]
    for step, rate in enumerate(rates):
        made = trial.learner.step(step)
        model.zero_grad()
        expected = double_loss(model, dataset, step)
        expected.backward()
        norm = math.sqrt(sum(p.grad.square().sum().item() for p in named.values()))
        assert made.loss == pytest.approx(expected.item(), rel=1e-5)
        assert made.grad_norm == pytest.approx(norm, rel=1e-4)
        assert made.router_penalty is None
        assert norm > 0.5, "nothing is clipped: the test does not see clipping"
        assert made.rate == pytest.approx(rate, rel=1e-12)
        with torch.no_grad():
            for name, p in named.items():
                gradient = p.grad * 0.5 / (norm + 1e-6)
                first[name] = 0.8 * first[name] + 0.2 * gradient
                second[name] = 0.9 * second[name] + 0.1 * gradient.square()
                m = first[name] / (1 - 0.8 ** (step + 1))
                v = second[name] / (1 - 0.9 ** (step + 1))
                decay = 0.0 if undecayed(name) else 0.3
                p.copy_(p * (1 - rate * decay) - rate * m / (v.sqrt() + 1e-4))
    for name, parameter in trial.learner.model.named_parameters():
        torch.testing.assert_close(parameter.double(), named[name], rtol=1e-4, atol=1e-5)


def test_weight_decay_touches_only_what_declares_it(dataset: Dataset, tmp_path: Path) -> None:
    trial = Trial(trial_config(dataset, design="hc", weight_decay=0.5), dataset, tmp_path)
    groups = {
        group["weight_decay"]: group["params"] for group in trial.learner.optimizer.param_groups
    }
    names = {id(p): name for name, p in trial.learner.model.named_parameters()}
    with_decay = {names[id(p)] for p in groups[0.5]}
    without = {names[id(p)] for p in groups[0.0]}
    assert with_decay | without == set(names.values())
    assert not with_decay & without
    assert {"embed.weight", "head.weight", "blocks.0.attention.qkv.weight"} <= with_decay
    assert {"final_norm.gain", "blocks.1.feedforward_connection.norm.gain"} <= without
    assert not [name for name in with_decay if name.endswith((".gain", ".beta", ".alpha"))]


def test_the_same_config_gives_the_same_bits(dataset: Dataset, tmp_path: Path) -> None:
    _, one = train(dataset, tmp_path / "a")
    _, two = train(dataset, tmp_path / "b")
    _, other = train(dataset, tmp_path / "c", seed=1)
    a, b, c = (metrics(tmp_path / name) for name in "abc")
    assert a == b
    assert one.domains == two.domains
    assert other.domains != one.domains
    assert [r["train_loss"] for r in c] != [r["train_loss"] for r in a]


def test_metrics_name_each_step_once_with_tokens_and_rate(dataset: Dataset, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 999}\n')
    _, outcome = train(dataset, tmp_path, learning_rate=0.02)
    records = metrics(tmp_path)
    assert [r["step"] for r in records] == list(range(1, 9))
    assert [r["tokens"] for r in records] == [64 * step for step in range(1, 9)]
    assert records[0]["learning_rate"] == 0.02
    assert records[-1]["learning_rate"] == pytest.approx(0.002, rel=1e-12)
    assert [r["step"] for r in records if "loss" in r] == [4, 8]
    assert (outcome.status, outcome.steps, outcome.tokens) == ("done", 8, 512)
    assert outcome.final_train_loss == records[-1]["train_loss"]
    config = json.loads((tmp_path / "config.json").read_text())
    assert config == trial_config(dataset, learning_rate=0.02).resolved()


def test_the_loss_starts_at_the_logarithm_of_the_vocabulary_and_falls(
    dataset: Dataset, tmp_path: Path
) -> None:
    train(dataset, tmp_path, tokens=64 * 40, learning_rate=2e-2)
    losses = [r["train_loss"] for r in metrics(tmp_path)]
    assert losses[0] == pytest.approx(math.log(257), abs=0.05)
    assert losses[-1] < 3.6


def rms(x: np.ndarray, gain: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * gain


def numpy_logits(weights: dict[str, np.ndarray], tokens: np.ndarray) -> np.ndarray:
    """`prenorm` at `SHAPE` in float64, without torch."""
    time, heads, n = tokens.shape[1], SHAPE.heads, SHAPE.head_dim
    angles = np.arange(time)[:, None] * 10000.0 ** (-np.arange(n // 2) * 2 / n)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]

    def turn(x: np.ndarray) -> np.ndarray:
        a, b = np.split(x, 2, -1)
        return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)

    h = weights["embed.weight"][tokens]
    mask = np.triu(np.full((time, time), -np.inf), 1)
    for number in range(SHAPE.layers):
        block = f"blocks.{number}"
        x = rms(h, weights[f"{block}.attention_connection.norm.gain"])
        qkv = x @ weights[f"{block}.attention.qkv.weight"].T
        q, k, v = (part.reshape(*tokens.shape, heads, n) for part in np.split(qkv, 3, -1))
        scores = np.einsum("bqhn,bkhn->bhqk", turn(q), turn(k)) / math.sqrt(n) + mask
        share = np.exp(scores - scores.max(-1, keepdims=True))
        share /= share.sum(-1, keepdims=True)
        y = np.einsum("bhqk,bkhn->bqhn", share, v).reshape(h.shape)
        h = h + y @ weights[f"{block}.attention.o.weight"].T
        x = rms(h, weights[f"{block}.feedforward_connection.norm.gain"])
        gate, up = np.split(x @ weights[f"{block}.feedforward.gate_up.weight"].T, 2, -1)
        h = h + (gate / (1 + np.exp(-gate)) * up) @ weights[f"{block}.feedforward.down.weight"].T
    return rms(h, weights["final_norm.gain"]) @ weights["head.weight"].T


def test_the_validation_loss_is_that_of_the_saved_weights_computed_without_torch(
    dataset: Dataset, tmp_path: Path
) -> None:
    _, outcome = train(dataset, tmp_path)
    path = tmp_path / "checkpoints" / "step-000008" / "model.safetensors"
    weights = {name: p.double().numpy() for name, p in load_file(path).items()}
    [name] = outcome.domains
    texts = dataset.validation(TRAIN["length"], TRAIN["validation_tokens"])[name]
    logits = numpy_logits(weights, texts.inputs.numpy())
    top = logits.max(-1, keepdims=True)
    logarithms = logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))
    targets = texts.targets.numpy()[..., None]
    nats = -np.take_along_axis(logarithms, targets, -1).sum()
    size = int(texts.target_bytes.sum())
    found = outcome.domains[name].domain_loss()
    assert (found.tokens, found.bytes) == (256, size)
    assert found.nats_per_token == pytest.approx(nats / 256, rel=1e-6)
    assert found.bits_per_byte == pytest.approx(nats / math.log(2) / size, rel=1e-6)
    assert metrics(tmp_path)[-1]["loss"] == found.resolved()
    assert metrics(tmp_path)[-1]["domains"] == {name: found.resolved()}


def test_bits_per_byte_differs_from_bits_per_token_where_tokens_are_longer(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path, tokenizer="bpe", vocab=300)
    shape = SHAPE.model_copy(update={"vocab": 300})
    _, outcome = train(dataset, tmp_path / "trial", shape=shape)
    [loss] = [one.domain_loss() for one in outcome.domains.values()]
    assert loss.bytes > 2 * loss.tokens
    bits = loss.nats_per_token * loss.tokens / math.log(2)
    assert loss.bits_per_byte == pytest.approx(bits / loss.bytes, rel=1e-12)


def test_a_checkpoint_gives_the_trained_models_logits(dataset: Dataset, tmp_path: Path) -> None:
    trial, _ = train(dataset, tmp_path, design="hc")
    fresh = Model.build(trial.config.model, seed=99)
    fresh.load_state_dict(load_file(tmp_path / "checkpoints" / "step-000008" / "model.safetensors"))
    tokens, _ = dataset.batch(5, 5, 2, 16)
    assert torch.equal(fresh(tokens), trial.learner.model(tokens))
    train(dataset, tmp_path / "unsaved", save_model=False)
    assert not (tmp_path / "unsaved" / "checkpoints").exists()


def test_a_larger_vocabulary_than_the_tokenizers_trains_and_a_smaller_is_refused(
    dataset: Dataset, tmp_path: Path
) -> None:
    larger = SHAPE.model_copy(update={"vocab": 300})
    train(dataset, tmp_path, shape=larger)
    # 43 rows only pad the vocabulary: they are masked, so the guess is among the tokenizer's 257
    assert metrics(tmp_path)[0]["train_loss"] == pytest.approx(math.log(257), abs=0.01)
    smaller = SHAPE.model_copy(update={"vocab": 256})
    with pytest.raises(DepthbenchError) as caught:
        Trial(trial_config(dataset, shape=smaller), dataset, tmp_path / "refused")
    assert str(caught.value) == (
        "the tokenizer has 257 tokens but shape.vocab = 256. Set vocab to at least 257"
    )
    assert not (tmp_path / "refused").exists()


@pytest.mark.parametrize("design", ["prenorm", "hc", "attnres"])
def test_checkpointing_changes_no_loss(dataset: Dataset, tmp_path: Path, design: str) -> None:
    train(dataset, tmp_path / "kept", design=design)
    trial, _ = train(dataset, tmp_path / "again", design=design, checkpointing=True)
    assert trial.learner.model.checkpointing
    kept, again = (
        [r["train_loss"] for r in metrics(tmp_path / name)] for name in ("kept", "again")
    )
    assert kept == pytest.approx(again, rel=1e-6)


def test_bfloat16_trains_to_about_the_same_loss(dataset: Dataset, tmp_path: Path) -> None:
    _, full = train(dataset, tmp_path / "full", tokens=64 * 16)
    trial, half = train(dataset, tmp_path / "half", tokens=64 * 16, dtype="bfloat16")
    native, _ = choose_dtype("bfloat16", "cpu")
    assert trial.learner.dtype == native
    assert all(p.dtype == torch.float32 for p in trial.learner.model.parameters())
    [a] = [one.nats_per_token for one in full.domains.values()]
    [b] = [one.nats_per_token for one in half.domains.values()]
    assert b == pytest.approx(a, abs=0.03)
    if native == torch.bfloat16:
        assert a != b
    else:
        assert half.notes == [
            "dtype bfloat16: this processor has no native bfloat16 products, float32 is used"
        ]


def test_one_bad_gradient_ends_the_trial_and_touches_nothing_else(
    dataset: Dataset, tmp_path: Path
) -> None:
    """Norms are read, never written through: CASES 36."""
    trial = Trial(trial_config(dataset), dataset, tmp_path)
    weight = trial.learner.model.blocks[1].get_parameter("feedforward.down.weight")

    def spoil(gradient: torch.Tensor) -> torch.Tensor:
        spoilt = gradient.clone()
        spoilt[3, 4] = float("nan")
        return spoilt

    weight.register_hook(spoil)
    before = {name: p.detach().clone() for name, p in trial.learner.model.named_parameters()}
    outcome = trial.run(lambda steps, tokens: None)
    assert (outcome.status, outcome.steps) == ("diverged", 1)
    assert outcome.reason == "the gradient is not finite at step 0"
    for name, parameter in trial.learner.model.named_parameters():
        assert torch.equal(parameter, before[name]), name
        assert parameter.grad is not None
        bad = int(parameter.grad.isnan().sum())
        assert bad == (1 if parameter is weight else 0), name
    [record] = metrics(tmp_path)
    assert record["grad_norm"] is None
    assert record["train_loss"] == pytest.approx(math.log(257), abs=0.05)
    assert not (tmp_path / "checkpoints").exists()


def test_a_loss_that_is_not_finite_ends_the_trial_at_once(dataset: Dataset, tmp_path: Path) -> None:
    trial = Trial(trial_config(dataset), dataset, tmp_path)
    with torch.no_grad():
        trial.learner.model.get_parameter("head.weight")[0, 0] = float("inf")
    outcome = trial.run(lambda steps, tokens: None)
    assert (outcome.status, outcome.steps, outcome.tokens) == ("diverged", 1, 64)
    assert outcome.reason == "the loss is not finite at step 0"
    assert outcome.domains == {}
    [record] = metrics(tmp_path)
    assert record["train_loss"] is None


def test_a_trial_above_its_start_for_long_has_diverged(dataset: Dataset, tmp_path: Path) -> None:
    _, outcome = train(dataset, tmp_path, learning_rate=30.0, tokens=64 * 60, divergence_patience=5)
    assert outcome.status == "diverged"
    assert outcome.reason is not None
    assert outcome.reason.startswith("the loss was above its start (5.5")
    assert outcome.reason.endswith(f"for 5 steps, to {outcome.steps - 1}")
    assert metrics(tmp_path)[-1]["step"] == outcome.steps < 60


def watched(losses: list[float], **changes: object) -> list[str | None]:
    config = TrainConfig.parse(
        {"tokens": 100 * 64, "sequences": 4, "length": 16, "divergence_patience": 3} | changes
    )
    watch = Divergence(config)
    return [watch.check(step, loss, 1.0) for step, loss in enumerate(losses)]


def test_the_patience_counts_steps_in_a_row_after_warm_up() -> None:
    reason = "the loss was above its start (5.000) for 3 steps, to"
    # warm-up lasts ten steps: nothing counts before step 10
    assert watched([5.0, *[6.0] * 11])[-1] is None
    assert watched([5.0, *[6.0] * 12])[-1] == f"{reason} 12"
    # a step at or below the start begins the count anew
    ends = watched([5.0, *[6.0] * 11, 5.0, 6.0, 6.0, 6.0])
    assert ends[:-1] == [None] * 15
    assert ends[-1] == f"{reason} 15"
    assert watched([5.0] * 50)[-1] is None


def test_data_too_short_for_validation_is_said_before_training(
    dataset: Dataset, tmp_path: Path
) -> None:
    with pytest.raises(DepthbenchError, match="validation tokens = 8 is less than one sequence"):
        Trial(trial_config(dataset, validation_tokens=8), dataset, tmp_path)
