"""The laws of any model on backbones other than the dense one, with a few designs of each family.

Decoding on every backbone is in `test_decode`, compilation in `test_compile`.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from depthbench.cost.flops import count_flops
from depthbench.nn.backbones import BACKBONES, backbone_kind
from depthbench.nn.block import Trace
from depthbench.nn.count import count_parameters
from depthbench.nn.model import Model, ModelConfig
from depthbench.nn.parameters import initialise
from tests.oracles import GQA, config_of, random_model, tokens_of

CONFIGS = {
    f"{design} on {name}": config_of(design, name=name)
    for name in BACKBONES
    if name != "dense"
    for design in ("prenorm", "hc", "attnres")
}
every = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())


@every
def test_causal(config: ModelConfig) -> None:
    model, tokens = random_model(config), tokens_of(GQA, length=10)
    before = model(tokens)
    for changed in (0, 5, 9):
        other = tokens.clone()
        other[:, changed] = (tokens[:, changed] + 1) % 99
        difference = (before - model(other)).abs().amax((0, 2))
        assert difference[:changed].sum() < 1e-12
        assert (difference[changed:] > 1e-6).all()


@every
def test_sequences_of_a_batch_are_apart(config: ModelConfig) -> None:
    model, tokens = random_model(config), tokens_of(GQA, batch=3)
    torch.testing.assert_close(model(tokens)[1:2], model(tokens[1:2]), rtol=1e-11, atol=1e-12)


@every
def test_programs(config: ModelConfig) -> None:
    model, tokens = random_model(config), tokens_of(GQA)
    plain = model(tokens)
    assert torch.equal(model(tokens, program=[0, 1, 2]), plain)
    for program in ([0, 2], [0, 2, 1], [0, 1, 1, 2], []):
        other = model(tokens, program=program)
        assert other.isfinite().all(), program
        assert (plain - other).abs().max() > 0.01 * plain.abs().max(), program


@every
def test_built_on_meta_saved_and_loaded(config: ModelConfig, tmp_path: Path) -> None:
    fresh, built = Model(config), Model.build(config, seed=4)
    for parameter in fresh.parameters():
        nn.init.constant_(parameter, float("nan"))
    initialise(fresh, seed=4)
    same = dict(built.named_parameters())
    for name, parameter in fresh.named_parameters():
        assert torch.equal(parameter, same[name]), name
    assert list(built.buffers()) == []
    save_file(built.state_dict(), tmp_path / "model.safetensors")
    empty = Model.on_meta(config)
    empty.load_state_dict(load_file(tmp_path / "model.safetensors"), assign=True)
    assert torch.equal(empty(tokens_of(GQA)), built(tokens_of(GQA)))


def step(model: Model) -> tuple[Tensor, dict[str, Tensor | None], int]:
    """Logits, gradients of loss and penalty, and the values saved for the backward pass."""
    tokens = tokens_of(GQA, length=16)
    storages: dict[int, int] = {}
    loads: list[Any] = []

    def pack(tensor: Tensor) -> Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    model.zero_grad()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        logits = model(tokens, loads=loads)
        penalty = backbone_kind(model.config.backbone).penalty(loads)
    noted = len(loads)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
    (loss + penalty).backward()
    assert len(loads) == noted, "recomputation notes no loads"
    return logits, {n: p.grad for n, p in model.named_parameters()}, sum(storages.values())


@every
def test_checkpointed_equals_not_checkpointed(config: ModelConfig) -> None:
    model = random_model(config)
    logits, gradients, saved = step(model)
    model.checkpointing = True
    again, recomputed, less = step(model)
    assert torch.equal(logits, again)
    for name, gradient in gradients.items():
        torch.testing.assert_close(recomputed[name], gradient, rtol=1e-12, atol=1e-14, msg=name)
    assert less < 0.7 * saved


@every
def test_every_parameter_trains(config: ModelConfig) -> None:
    """Streams that are equal before the first mix, and a mean after the last, hide those mixes."""
    model = Model.build(config, seed=0, dtype=torch.float64)
    for _ in range(2):
        _, gradients, _ = step(model)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= torch.zeros(()) if parameter.grad is None else parameter.grad
    ends = ("blocks.0.attention_connection.", "blocks.2.feedforward_connection.")
    for name, gradient in gradients.items():
        if config.design.name != "hc" or not name.startswith(ends):
            assert gradient is not None, name
            assert gradient.abs().max() > 1e-14, name


@every
def test_a_trace_collects_loads_of_every_router(config: ModelConfig) -> None:
    model, tokens, trace = random_model(config), tokens_of(GQA), Trace()
    assert torch.equal(model(tokens, trace=trace), model(tokens))
    assert len(trace.loads) == (3 if config.backbone.name == "moe" else 0)


@every
def test_counts(config: ModelConfig) -> None:
    counts = count_parameters(config)
    dense = count_parameters(config.model_copy(update={"backbone": config_of("prenorm").backbone}))
    assert counts.total == sum(p.numel() for p in Model.build(config, seed=0).parameters())
    assert counts.own == dense.own
    assert counts.embedding_and_head == dense.embedding_and_head
    assert dense.active == dense.total < counts.total
    assert counts.active < counts.total if config.backbone.name == "moe" else True
    flops, plain = (count_flops(c, 16) for c in (config, config_of(config.design)))
    assert flops.own == plain.own
    assert flops.projections > plain.projections
