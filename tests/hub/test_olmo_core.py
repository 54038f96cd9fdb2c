"""OLMo-core checkpoints: written from our weights and read back to equal logits."""

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import depthbench
from depthbench.check.subject import random_model
from depthbench.designs import parse_design
from depthbench.errors import DepthbenchError
from depthbench.hub.distributed_checkpoint import read_tensors, write_tensors
from depthbench.hub.olmo_core import read_olmo_core, write_olmo_core
from depthbench.hub.olmo_names import NORMS
from depthbench.nn.branch import Backbone
from depthbench.nn.model import Model, ModelConfig
from depthbench.probes.load import Parts, load
from depthbench.probes.own import OwnSubject
from depthbench.shapes import Shape

SHAPE = Shape(layers=3, width=32, heads=4, kv_heads=2, ffn=24, vocab=99)


def random_of(design: Any) -> Model:
    constants = {"rope_base": 500000.0, "norm_eps": 1e-5}
    config = ModelConfig(
        shape=SHAPE, design=parse_design(design), backbone=Backbone.parse(constants)
    )
    return random_model(config).float().eval()


@pytest.mark.parametrize("design", [*NORMS, {"name": "hc", "streams": 2}])
@torch.no_grad()
def test_there_and_back(design: Any, tmp_path: Path) -> None:
    model = random_of(design)
    write_olmo_core(model, tmp_path / "x")
    found = read_olmo_core(tmp_path / "x")
    assert found.config == model.config
    tokens = torch.randint(99, (2, 12), generator=torch.Generator().manual_seed(0))
    assert torch.equal(found(tokens), model(tokens))
    for name, tensor in model.state_dict().items():
        assert torch.equal(found.state_dict()[name], tensor), name


def test_names_are_theirs(tmp_path: Path) -> None:
    """As the published checkpoints have them."""
    write_olmo_core(random_of("attnres"), tmp_path / "a")
    names = set(read_tensors(tmp_path / "a" / "model_and_optim"))
    assert {
        "embeddings.weight",
        "blocks.0.attention.w_q.weight",
        "blocks.2.attention.w_out.weight",
        "blocks.1.attention_norm.weight",
        "blocks.1.feed_forward.w3.weight",
        "blocks.1.attn_res_proj.weight",
        "blocks.0.mlp_res_norm.weight",
        "res_proj.weight",
        "lm_head.norm.weight",
        "lm_head.w_out.weight",
    } <= names
    write_olmo_core(random_of("hc"), tmp_path / "h")
    tensors = read_tensors(tmp_path / "h" / "model_and_optim")
    place = "blocks.1.attention_hyper_connection."
    assert tensors[place + "static_alpha"].shape == (4, 5)
    assert tensors[place + "dynamic_alpha_proj"].shape == (32, 5)
    # keel has no norm behind its first attention
    write_olmo_core(random_of("keel"), tmp_path / "k")
    names = set(read_tensors(tmp_path / "k" / "model_and_optim"))
    assert "blocks.0.post_attention_norm.weight" not in names
    assert "blocks.0.post_feed_forward_norm.weight" in names


def test_the_gate_and_up_and_the_values_lie_where_they_say(tmp_path: Path) -> None:
    model = random_of("prenorm")
    write_olmo_core(model, tmp_path / "x")
    tensors = read_tensors(tmp_path / "x" / "model_and_optim")
    qkv = model.state_dict()["blocks.1.attention.qkv.weight"]
    gate_up = model.state_dict()["blocks.1.feedforward.gate_up.weight"]
    assert torch.equal(tensors["blocks.1.attention.w_k.weight"], qkv[32:48])
    assert torch.equal(tensors["blocks.1.attention.w_v.weight"], qkv[48:])
    assert torch.equal(tensors["blocks.1.feed_forward.w1.weight"], gate_up[:24])
    assert torch.equal(tensors["blocks.1.feed_forward.w3.weight"], gate_up[24:])


def test_optimizer_state_beside_it_is_left_alone(tmp_path: Path) -> None:
    model = random_of("prenorm")
    write_olmo_core(model, tmp_path / "x")
    tensors = read_tensors(tmp_path / "x" / "model_and_optim")
    more = {f"model.{name}": one for name, one in tensors.items()}
    more["optim.state.embeddings.weight.exp_avg"] = torch.zeros(3)
    shutil.rmtree(tmp_path / "x" / "model_and_optim")
    write_tensors(tmp_path / "x" / "model_and_optim", more, prefix="")
    assert read_olmo_core(tmp_path / "x").config == model.config


def test_it_is_a_subject(tmp_path: Path) -> None:
    write_olmo_core(random_of("hc"), tmp_path / "x")
    subject = depthbench.load(tmp_path / "x")
    assert isinstance(subject, OwnSubject)
    assert (subject.facts.kind, subject.facts.streams, subject.layers) == ("olmo-core", 4, 3)
    with pytest.raises(DepthbenchError, match=r"--head lm_head: .* is no Hugging Face model"):
        load(tmp_path / "x", parts=Parts(head="lm_head"))
    subject.smaller([0, 2]).write(tmp_path / "small")
    assert depthbench.load(tmp_path / "small").layers == 2


class Harmful:
    """Its pickle makes a folder when it is read."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.place),)


def test_no_code_of_an_index_runs(tmp_path: Path) -> None:
    write_olmo_core(random_of("prenorm"), tmp_path / "x")
    index = tmp_path / "x" / "model_and_optim" / ".metadata"
    index.write_bytes(pickle.dumps(Harmful(tmp_path / "ran")))
    with pytest.raises(DepthbenchError, match="is not run to find out") as error:
        depthbench.load(tmp_path / "x")
    assert "mkdir" in str(error.value)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c["model"]["block"].update(name="normalized"), "'normalized' is a kind of"),
        (lambda c: c["model"]["block"]["attention"].pop("n_heads"), "n_heads is missing"),
        (lambda c: c.pop("model"), "has no table 'model'"),
        (lambda c: c["model"].update(block="x"), "'block' is no table"),
        (lambda c: c["model"]["block"].update(attention=[1]), "'attention' is no table"),
        (
            lambda c: c["model"]["block"]["attention"]["rope"].update(scaling={"factor": 8}),
            "rotary embedding is scaled",
        ),
        (lambda c: c["model"]["block"].update(name="peri_norm"), "post_attention_norm.weight"),
    ],
)
def test_what_is_refused(change: Any, words: str, tmp_path: Path) -> None:
    write_olmo_core(random_of("prenorm"), tmp_path / "x")
    path = tmp_path / "x" / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))
    with pytest.raises(DepthbenchError, match=words) as error:
        depthbench.load(tmp_path / "x")
    assert "\n" not in str(error.value)


def test_a_damaged_file_and_a_design_that_they_do_not_have(tmp_path: Path) -> None:
    write_olmo_core(random_of("prenorm"), tmp_path / "x")
    [file] = (tmp_path / "x" / "model_and_optim").glob("*.distcp")
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(DepthbenchError, match="cannot be read") as error:
        depthbench.load(tmp_path / "x")
    assert "\n" not in str(error.value)
    with pytest.raises(DepthbenchError, match="'mhc' on backbone 'dense' has no OLMo-core form"):
        write_olmo_core(random_of("mhc"), tmp_path / "y")
    extra = random_of("prenorm")
    write_olmo_core(extra, tmp_path / "z")
    tensors = read_tensors(tmp_path / "z" / "model_and_optim")
    tensors["blocks.0.attention.q_norm.weight"] = torch.ones(8)
    shutil.rmtree(tmp_path / "z" / "model_and_optim")
    write_tensors(tmp_path / "z" / "model_and_optim", tensors)
    with pytest.raises(
        DepthbenchError, match=r"no design of ours has: blocks\.0\.attention\.q_norm"
    ):
        depthbench.load(tmp_path / "z")
