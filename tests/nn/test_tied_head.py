"""A head that shares the embedding's matrix: one parameter, whatever is done with the model."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional

from depthbench.cost.flops import count_flops
from depthbench.data.dataset import Dataset
from depthbench.designs import parse_design
from depthbench.nn.backbones import parse_backbone
from depthbench.nn.count import count_parameters
from depthbench.nn.generate import generate
from depthbench.nn.model import Model, ModelConfig
from depthbench.solve import solve_shapes
from depthbench.train.load import load_trial
from depthbench.train.loop import Trial
from tests.oracles import GQA, tokens_of
from tests.small import make_dataset, trial_config

TIED = {"name": "dense", "tied_head": True}


def config_of(tied: bool, design: str = "prenorm") -> ModelConfig:
    backbone = parse_backbone(TIED if tied else "dense")
    return ModelConfig(shape=GQA, design=parse_design(design), backbone=backbone)


def pair(design: str = "prenorm") -> tuple[Model, Model]:
    """A tied model, and one of its own head whose matrix equals the embedding."""
    tied = Model.build(config_of(True, design), seed=0, dtype=torch.float64)
    own = Model.build(config_of(False, design), seed=0, dtype=torch.float64)
    own.load_state_dict(tied.state_dict() | {"head.weight": tied.embed.weight.detach()})
    return tied, own


@pytest.mark.parametrize("design", ["prenorm", "hc", "attnres"])
def test_logits_and_the_sum_of_both_gradients(design: str) -> None:
    tied, own = pair(design)
    tokens = tokens_of(GQA)
    losses = [
        functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        for model in (tied, own)
    ]
    assert losses[0].item() == losses[1].item()
    for loss in losses:
        loss.backward()
    other = dict(own.named_parameters())
    for name, parameter in tied.named_parameters():
        expected = other[name].grad
        if name == "embed.weight":
            expected = expected + other["head.weight"].grad
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-12, atol=1e-14, msg=name)


def test_decoding_reads_the_same_matrix() -> None:
    tied, own = pair()
    tokens = tokens_of(GQA, length=5)
    assert torch.equal(generate(tied, tokens, 6), generate(own, tokens, 6))


def test_counts() -> None:
    tied, own = (config_of(kind) for kind in (True, False))
    matrix = GQA.vocab * GQA.width
    counts, plain = count_parameters(tied), count_parameters(own)
    assert counts.total == plain.total - matrix
    assert counts.embedding_and_head == matrix
    assert (counts.backbone, counts.own) == (plain.backbone, plain.own)
    assert counts.active == plain.active - matrix
    assert count_flops(tied, 16) == count_flops(own, 16)
    assert count_flops(tied, 16).head == 2 * 16 * matrix


def test_a_budget_counts_the_matrix_once() -> None:
    solved = solve_shapes(500_000, depths=(4,), backbone=TIED)[0]
    total = sum(p.numel() for p in Model.on_meta(solved_config(solved.shape)).parameters())
    assert abs(total / 500_000 - 1) < 0.01


def solved_config(shape: object) -> ModelConfig:
    return ModelConfig.parse({"shape": shape, "design": "prenorm", "backbone": TIED}, "test")


def test_saved_once_loaded_and_trained_on(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path)
    trial = Trial(trial_config(dataset, backbone=TIED), dataset, tmp_path / "run")
    assert trial.run(lambda *_: None).status == "done"
    saved = load_file(tmp_path / "run" / "checkpoints" / "step-000008" / "model.safetensors")
    assert "head.weight" not in saved
    model, _ = load_trial(tmp_path / "run")
    tokens = tokens_of(GQA)
    with torch.no_grad():
        assert torch.equal(model(tokens), trial.learner.model(tokens))
    assert sum(p is model.embed.weight for p in model.parameters()) == 1
    assert trial.learner.model.head.matrix(model.embed.weight) is model.embed.weight


def test_a_resumed_tied_run_is_the_uninterrupted_one(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path)
    config = trial_config(dataset, backbone=TIED)
    whole = run_until(config, dataset, tmp_path / "whole", None)
    run_until(config, dataset, tmp_path / "parts", 3)
    parts = run_until(config, dataset, tmp_path / "parts", None)
    for name, tensor in whole.learner.model.state_dict().items():
        assert torch.equal(tensor, parts.learner.model.state_dict()[name]), name


def run_until(config: object, dataset: Dataset, folder: Path, steps: int | None) -> Trial:
    trial = Trial(config, dataset, folder)
    trial.run(lambda *_: None, resume=True, stop=lambda: trial.done == steps)
    return trial
