"""Our prenorm as LLaMA and back: equal logits with random weights, gains included."""

import json
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
import transformers
from torch import Tensor

from depthbench.errors import DepthbenchError
from depthbench.hub.llama import as_llama, export_llama, llama_weights
from depthbench.hub.llama_in import import_llama
from depthbench.nn.model import Model, ModelConfig
from depthbench.probes.hf_quiet import quiet
from depthbench.probes.hf_versions import cache_name, rotary_settings
from tests.oracles import GQA, config_of, random_model, tokens_of
from tests.probes.test_gguf import FILE, real, smollm, written
from tests.probes.tiny import GROUPED, random_of, tiny

CASES: list[dict[str, Any]] = [
    {},
    {"tied_head": True},
    {"norm_eps": 1e-3, "rope_base": 500.0},
    {"tied_head": True, "norm_eps": 1e-2, "rope_base": 1e6},
]
DOUBLE = 1e-6
"""transformers norms and turns in float32, whatever the weights are in."""


def apart(found: Tensor, right: Tensor) -> float:
    """Largest difference over the largest logit."""
    return ((found - right).abs().max() / right.abs().max()).item()


@torch.no_grad()
@pytest.mark.parametrize("backbone", CASES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_folder_is_the_model_and_comes_back(
    backbone: dict[str, Any], dtype: torch.dtype, tmp_path: Path
) -> None:
    model = random_model(config_of("prenorm", GQA, **backbone)).to(dtype)
    tokens = tokens_of(GQA, 2, 12)
    export_llama(model, tmp_path / "x", context=77)
    with quiet():
        llama = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "x", dtype=dtype)
    assert type(llama) is transformers.LlamaForCausalLM
    assert apart(llama(tokens).logits, model(tokens)) < 1e-5
    back = import_llama(str(tmp_path / "x"), dtype)
    ours, theirs = model.config, back.model.config
    assert (theirs.shape, theirs.design) == (ours.shape, ours.design)
    # how a model would start is no part of a LLaMA
    assert theirs.backbone == ours.backbone
    assert (back.context, back.family, back.tokenizer, back.notes) == (77, "llama", None, ())
    assert torch.equal(back.model(tokens), model(tokens))


@torch.no_grad()
def test_every_step_of_a_cache_is_the_same() -> None:
    """Each side decodes token by token over its own cache; padding on the left."""
    model = random_model(config_of("prenorm", GQA, tied_head=True)).float()
    llama, tokens = as_llama(model), tokens_of(GQA, 2, 10)
    mask = torch.ones(2, 10, dtype=torch.long)
    mask[1, :3] = 0
    cache, held = model.cache(2, 10, padding=torch.tensor([0, 3])), None
    for start, stop in ((0, 4), *((n, n + 1) for n in range(4, 10))):
        ours = model.step(tokens[:, start:stop], cache)
        positions = (mask[:, :stop].cumsum(1) - 1).clamp(min=0)[:, start:]
        out = llama(
            tokens[:, start:stop],
            attention_mask=mask[:, :stop],
            position_ids=positions,
            use_cache=True,
            **{cache_name(): held},
        )
        held = out[cache_name()]
        seen = mask[:, start:stop].bool()
        assert apart(out.logits[seen], ours[seen]) < 1e-5


@torch.no_grad()
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", ["depth_mup", "completep"])
def test_factors_are_folded_into_weights(kind: str, tied: bool) -> None:
    """Branches at half and a third of their output, logits at a quarter."""
    table = {
        "shape": GQA,
        "design": "prenorm",
        "backbone": {"tied_head": tied},
        "parametrization": {"kind": kind, "base_layers": 1, "base_width": 8, "base_head_dim": 8},
    }
    model = random_model(ModelConfig.parse(table))
    assert (model.scaling.branch, model.scaling.head) == (
        3 ** -{"depth_mup": 0.5}.get(kind, 1),
        0.25,
    )
    tokens = tokens_of(GQA, 2, 9)
    assert apart(as_llama(model)(tokens).logits, model(tokens)) < DOUBLE
    o = model.state_dict()["blocks.1.attention.o.weight"]
    found = llama_weights(model)["model.layers.1.self_attn.o_proj.weight"]
    assert torch.equal(found, o * model.scaling.branch)


@torch.no_grad()
@pytest.mark.parametrize("family", ["llama", "mistral"])
@pytest.mark.parametrize("tied", [True, False])
def test_families_come_in(family: str, tied: bool, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"tie_word_embeddings": tied, "rms_norm_eps": 1e-3}
    theirs = tiny(family, **changes | ({} if family == "llama" else {"sliding_window": 64}))
    theirs.save_pretrained(tmp_path / "x")
    found = import_llama(str(tmp_path / "x"))
    assert found.family == family
    assert found.model.config.backbone.tied_head is tied
    tokens = tokens_of(GQA, 2, 11)
    assert apart(found.model(tokens), theirs(tokens).logits) < 1e-5


@pytest.mark.parametrize(
    ("family", "changes", "words"),
    [
        (
            "gpt2",
            {},
            r"is a gpt2, .* learned positions .*Allowed: llama, mistral, qwen2, qwen3, olmo2",
        ),
        ("mixtral", {}, r"is a mixtral, .* feed-forward is routed"),
        ("qwen3", {"attention_bias": True}, "attention_bias = True, but a qwen3 of ours has"),
        ("mistral", {}, r"sliding_window = 5 is shorter than its 64 positions"),
        (
            "llama",
            {"attention_bias": True},
            "attention_bias = True, but a llama of ours has .* False",
        ),
        ("llama", {"hidden_act": "gelu"}, "hidden_act = gelu"),
        (
            "llama",
            rotary_settings({"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}),
            r"rope_type = dynamic is a scaling .* Allowed: default, linear, llama3, yarn",
        ),
    ],
)
def test_what_does_not_come_in_is_named(
    family: str, changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    tiny(family, **changes).save_pretrained(tmp_path / "x")
    with pytest.raises(DepthbenchError, match=words) as error:
        import_llama(str(tmp_path / "x"))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("design", "backbone", "words"),
    [
        ("hc", {}, r"design 'hc' has no LLaMA form: .*Write it as our own model, with --to hf"),
        ("attnres", {}, "design 'attnres' has no LLaMA form"),
        ("prenorm", {"name": "moe", "experts": 4}, "backbone 'moe' has no LLaMA form"),
    ],
)
def test_what_llama_cannot_say_is_named(
    design: str, backbone: dict[str, Any], words: str, tmp_path: Path
) -> None:
    model = Model.build(config_of(design, GQA, **backbone), 0)
    with pytest.raises(DepthbenchError, match=words):
        export_llama(model, tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "note").write_text("mine")
    with pytest.raises(DepthbenchError, match="exists and is not empty"):
        export_llama(Model.build(config_of("prenorm", GQA), 0), tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["note"]


def test_a_tied_matrix_is_saved_once_and_tied_again(tmp_path: Path) -> None:
    """CASES 40."""
    from safetensors.torch import load_file

    export_llama(Model.build(config_of("prenorm", GQA, tied_head=True), 0), tmp_path / "x")
    names = load_file(tmp_path / "x" / "model.safetensors").keys()
    assert "lm_head.weight" not in names
    with quiet():
        llama: Any = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "x")
    assert llama.lm_head.weight.data_ptr() == llama.model.embed_tokens.weight.data_ptr()
    assert import_llama(str(tmp_path / "x")).model.config.backbone.tied_head
    assert json.loads((tmp_path / "x" / "config.json").read_text())["tie_word_embeddings"] is True


@torch.no_grad()
@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_a_gguf_file_comes_in(kind: str, tmp_path: Path) -> None:
    written(tmp_path / "tiny.gguf", gguf.GGMLQuantizationType[kind])
    found = import_llama(str(tmp_path / "tiny.gguf"))
    said = "quantised weights (Q8_0), dequantised to float32"
    assert (said in found.notes) == (kind == "Q8_0")
    with quiet():
        right = transformers.AutoModelForCausalLM.from_pretrained(
            tmp_path, gguf_file="tiny.gguf", dtype=torch.float32
        )
    tokens = tokens_of(GQA, 2, 9) % 90
    assert apart(found.model(tokens), right(tokens).logits) < 1e-5
    assert found.tokenizer is not None
    assert (found.tokenizer.bos_token_id, found.tokenizer.eos_token_id) == (1, 2)
    assert found.tokenizer.convert_ids_to_tokens([1, 96]) == ["<s>", "ab"]


@real
@pytest.mark.slow
@torch.no_grad()
def test_smollm_through_us_to_llama(tmp_path: Path) -> None:
    """GGUF → ours → a LLaMA folder → transformers: the same logits and losses at every step."""
    path = smollm()
    assert path is not None
    found = import_llama(str(path))
    assert found.notes == (
        "quantised weights (Q4_1, Q8_0), dequantised to float32",
        "instruction-tuned",
    )
    export_llama(found.model, tmp_path / "x", found.tokenizer, context=found.context)
    with quiet():
        right = transformers.AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=FILE, dtype=torch.float32
        )
        llama = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "x")
        coder = transformers.AutoTokenizer.from_pretrained(tmp_path / "x")
    for words, loss in (
        ("The capital of France is Paris, and the capital of Germany is Berlin.", 1.715),
        ("colorless green ideas sleep furiously the of and to", 9.210),
    ):
        tokens = torch.tensor([coder(words, add_special_tokens=False)["input_ids"]])
        first, ours, last = right(tokens).logits, found.model(tokens), llama(tokens).logits
        for one in (ours, last):
            assert (one - first).abs().max().item() < 1e-4
            mean = torch.nn.functional.cross_entropy(one[0, :-1], tokens[0, 1:])
            assert mean.item() == pytest.approx(loss, abs=6e-4)


def test_widths_of_heads_are_ours() -> None:
    """A LLaMA of the tests has heads of width / heads, or none of the above would say much."""
    assert random_of(transformers.LlamaConfig(**GROUPED)).config.head_dim == 8
