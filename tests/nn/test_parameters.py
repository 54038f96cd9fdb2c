"""Starts: truncated normals, seeds of their own, decay as declared, nothing left over."""

import math

import pytest
import torch
from torch import nn

from depthbench.nn.model import Model
from depthbench.nn.parameters import decayed, initialise, normal_rows, seed_of
from depthbench.shapes import Shape
from tests.oracles import GQA, config_of, tokens_of


def test_normal_truncated_at_three_std_in_runs_of_rows() -> None:
    weight = torch.empty(600, 500)
    normal_rows([(200, 0.02), (400, 0.5)]).fill(weight, torch.Generator().manual_seed(0))
    # std of a normal cut at 3: 1 - 2·3·φ(3) / (1 - 2·Φ(-3))
    cut = math.sqrt(1 - 6 * math.exp(-4.5) / math.sqrt(2 * math.pi) / math.erf(3 / math.sqrt(2)))
    for rows, std in ((weight[:200], 0.02), (weight[200:], 0.5)):
        assert rows.abs().max() <= 3 * std
        assert rows.abs().max() > 2.9 * std
        assert abs(rows.mean().item()) < 0.01 * std
        assert rows.std().item() == pytest.approx(cut * std, rel=0.01)
        within = (rows.abs() < std).float().mean().item()
        assert within == pytest.approx(0.6827 / 0.9973, abs=0.005)


def test_loss_at_the_start_is_that_of_a_uniform_guess() -> None:
    shape = Shape(layers=4, width=64, heads=4, kv_heads=2, ffn=96, vocab=257)
    tokens = tokens_of(shape, batch=8, length=33)
    logits = Model.build(config_of("prenorm", shape), seed=0)(tokens[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    assert loss.item() == pytest.approx(math.log(257), abs=0.05)


def test_depth_scaled_start_of_outputs() -> None:
    plain = dict(Model.build(config_of("prenorm"), seed=0).named_parameters())
    scaled = dict(
        Model.build(config_of("prenorm", depth_scaled_init=True), seed=0).named_parameters()
    )
    for name, start in plain.items():
        deep = name.endswith(("attention.o.weight", "feedforward.down.weight"))
        torch.testing.assert_close(scaled[name], start * (6**-0.5 if deep else 1.0))


def test_seed_of_a_parameter_does_not_depend_on_the_others() -> None:
    shallow = dict(Model.build(config_of("prenorm"), seed=5).named_parameters())
    deep = dict(
        Model.build(
            config_of("prenorm", GQA.model_copy(update={"layers": 5})), 5
        ).named_parameters()
    )
    assert all(torch.equal(deep[name], start) for name, start in shallow.items())
    assert seed_of(5, "head.weight") != seed_of(6, "head.weight")
    assert not torch.equal(shallow["head.weight"], shallow["embed.weight"])


def test_parameters_without_a_declared_start_are_an_error() -> None:
    with pytest.raises(TypeError, match=r"0 does not declare \['weight'\]"):
        initialise(nn.Sequential(nn.Linear(2, 2, bias=False)), seed=0)


def test_decay_covers_matrices_and_embeddings_and_spares_gains() -> None:
    model = Model.build(config_of("prenorm"), seed=0)
    names = {id(p): name for name, p in model.named_parameters()}
    with_decay, without = decayed(model)
    assert {names[id(p)] for p in without} == {n for n in names.values() if n.endswith("gain")}
    assert {names[id(p)] for p in with_decay} == {n for n in names.values() if n.endswith("weight")}
