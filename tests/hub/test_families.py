"""Families beside LLaMA, in and out with equal logits; the turns of scaled rotary embeddings."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from depthbench.cli.app import execute
from depthbench.cost.ledger import ledger_of
from depthbench.errors import DepthbenchError
from depthbench.hub.llama import as_llama, export_llama
from depthbench.hub.llama_in import import_llama, our_config
from depthbench.nn.count import count_parameters
from depthbench.nn.generate import generate
from depthbench.nn.model import Model, ModelConfig
from depthbench.nn.rope_scaling import parse_scaling
from depthbench.probes.hf_quiet import quiet
from depthbench.probes.hf_versions import rotary_settings
from tests.hub.test_llama import apart
from tests.oracles import GQA, config_of, random_model, tokens_of
from tests.probes.test_pretrained import WORDS, saved
from tests.probes.tiny import GROUPED, random_of

Capture = pytest.CaptureFixture[str]
WIDE = {"head_dim": 16, "rms_norm_eps": 1e-3}
"""Heads that are not width / heads wide."""
ROTARY: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
    "yarn, all named": {
        "rope_type": "yarn",
        "factor": 3.0,
        "original_max_position_embeddings": 20,
        "beta_fast": 3.0,
        "beta_slow": 0.5,
        "truncate": False,
        "attention_factor": 1.3,
    },
}
PUBLISHED = [
    ("llama", 64, 5e5, ROTARY["llama3"] | {"original_max_position_embeddings": 8192}),
    ("qwen3", 128, 1e6, ROTARY["yarn"] | {"original_max_position_embeddings": 32768}),
]
"""The frequencies of LLaMA 3.1 and of Qwen 3 for long contexts."""
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "wide llama": ("llama", WIDE),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("qwen3", WIDE),
    "olmo2": ("olmo2", {"rms_norm_eps": 1e-3}),
    "wide olmo2": ("olmo2", WIDE),
} | {name: ("llama", {"rotary": rotary}) for name, rotary in ROTARY.items()}


def config_for(family: str, rotary: dict[str, Any] | None = None, **changes: Any) -> Any:
    """A config of transformers at the sizes of the tests."""
    turns = {"rope_type": "default", "rope_theta": 100.0} | (rotary or {})
    given = {"head_dim": 8, **GROUPED, **changes} | rotary_settings(turns)
    return transformers.AutoConfig.for_model(family, **given)


def theirs(case: str) -> Any:
    """With random gains and biases."""
    family, changes = CASES[case]
    model = random_of(config_for(family, **changes))
    with torch.no_grad():
        for name, one in model.named_parameters():
            if name.endswith("bias"):
                one.normal_()
    return model


@torch.no_grad()
@pytest.mark.parametrize("case", CASES)
def test_a_family_comes_in_and_goes_out(case: str, tmp_path: Path) -> None:
    """Logits, those of every step over a cache, greedy text; and back."""
    given = theirs(case)
    given.save_pretrained(tmp_path / "x")
    found = import_llama(str(tmp_path / "x"))
    model, tokens = found.model, tokens_of(GQA, 2, 40)
    right = given(tokens).logits
    assert apart(model(tokens), right) < 1e-5
    cache = model.cache(2, 40)
    steps = [tokens[:, :7], *tokens[:, 7:].split(1, dim=1)]
    assert apart(torch.cat([model.step(one, cache) for one in steps], 1), right) < 1e-5
    # no token ends the text of the one, so none may end that of the other
    asked = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None}
    with quiet():
        new = given.generate(tokens, attention_mask=torch.ones_like(tokens), **asked)
    assert torch.equal(generate(model, tokens, 8), new)
    export_llama(model, tmp_path / "back", context=found.context)
    with quiet():
        back = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "back")
    assert type(back) is type(given)
    assert torch.equal(back(tokens).logits, right)
    again = import_llama(str(tmp_path / "back")).model
    assert again.config == model.config
    assert torch.equal(again(tokens), model(tokens))


@torch.no_grad()
@pytest.mark.parametrize("case", ["qwen3", "olmo2"])
def test_in_float64_they_differ_by_what_transformers_rounds(case: str, tmp_path: Path) -> None:
    """Its norms and turns are in float32."""
    theirs(case).save_pretrained(tmp_path / "x")
    model, tokens = import_llama(str(tmp_path / "x"), torch.float64).model, tokens_of(GQA, 2, 40)
    assert apart(as_llama(model)(tokens).logits, model(tokens)) < 1e-6


@pytest.mark.parametrize("case", ["qwen2", "qwen3", "wide olmo2"])
def test_counts_and_costs_are_those_of_the_modules(case: str, tmp_path: Path) -> None:
    """Parameters as transformers counts them; products and cache by their formulas."""
    given = theirs(case)
    given.save_pretrained(tmp_path / "x")
    model = import_llama(str(tmp_path / "x")).model
    counts, shape = count_parameters(model.config), model.config.shape
    assert counts.total == sum(one.numel() for one in given.parameters())
    assert counts.own == 0
    length, features = 24, 4 * (16 if "wide" in case or case == "qwen3" else 8)
    for fast in (False, True):
        ledger = ledger_of(model.config, context=length, fast=fast)
        # two matrices of queries' width, two of keys', three of the feed-forward
        entries = shape.layers * 32 * (2 * features + 2 * features // 2 + 3 * 48)
        assert ledger.stated.projections == 2 * length * entries
        assert ledger.stated.attention == 2 * length**2 * shape.layers * features
        assert ledger.cache.total == 2 * shape.layers * features // 2 * length * 4
        assert 0.9 < ledger.excess < 1.6


@pytest.mark.parametrize(("family", "wide", "base", "rotary"), PUBLISHED)
def test_frequencies_are_those_of_published_models(
    family: str, wide: int, base: float, rotary: dict[str, Any]
) -> None:
    positions = {"max_position_embeddings": 131072}
    given = config_for(family, rotary | {"rope_theta": base}, head_dim=wide, **positions)
    table = transformers.AutoModelForCausalLM.from_config(given).model.rotary_emb
    ours = our_config(given.to_dict(), "x").backbone
    assert (ours.rope_base, ours.rope_scaling is None) == (base, False)
    assert ours.rope_scaling is not None
    plain = base ** -(torch.arange(0, wide, 2, dtype=torch.float64) / wide)
    found = ours.rope_scaling.scaled(plain, base)
    torch.testing.assert_close(found.float(), table.inv_freq, rtol=2e-6, atol=0)
    assert ours.rope_scaling.size == pytest.approx(table.attention_scaling, rel=1e-12)
    # some are kept, some divided, some between
    share = found / plain
    assert share.max() == 1
    assert share.min() == pytest.approx(1 / rotary["factor"])
    assert ((share > share.min() * 1.01) & (share < 0.99)).any()


def test_a_scaling_without_sense_is_named() -> None:
    for table, words in (
        ({"factor": 2.0}, "has no name"),
        ({"name": "dynamic", "factor": 2.0}, "unknown rope_scaling 'dynamic'"),
        ({"name": "llama3", "factor": 2.0}, "'length' is missing"),
        ({"name": "llama3", "factor": 2.0, "length": 8, "high": 1.0}, "high = 1.0 must be above"),
        ({"name": "linear", "factor": 0.5}, "factor = 0.5"),
    ):
        with pytest.raises(DepthbenchError, match=words):
            parse_scaling(table)


@pytest.mark.parametrize(
    ("family", "changes", "words"),
    [
        (
            "qwen2",
            {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 2},
            "sliding_window = 5 is shorter than its 64 positions",
        ),
        ("olmo3", {}, r"is a olmo3, .* \(it sees most of its context through a window\)"),
        (
            "llama",
            {"rotary": ROTARY["yarn"] | {"mscale": 0.7, "mscale_all_dim": 1.0}},
            "rope_type = yarn with mscale is a scaling",
        ),
    ],
)
def test_what_stays_out_is_named(
    family: str, changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    random_of(config_for(family, **changes)).save_pretrained(tmp_path / "x")
    with pytest.raises(DepthbenchError, match=words) as error:
        import_llama(str(tmp_path / "x"))
    assert "\n" not in str(error.value)


def test_a_window_that_no_layer_looks_through_is_none(tmp_path: Path) -> None:
    """Qwen 2's first blocks see all; so do all, where they are no more."""
    window = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 4}
    given = random_of(config_for("qwen2", **window))
    given.save_pretrained(tmp_path / "x")
    tokens = tokens_of(GQA, 2, 20)
    with torch.no_grad():
        found = import_llama(str(tmp_path / "x")).model(tokens)
        assert apart(found, given(tokens).logits) < 1e-5


@pytest.mark.parametrize(
    ("design", "backbone", "words"),
    [
        ("sandwich", {}, "design 'sandwich' has no LLaMA form: .* OLMo 2 is sandwich.before=false"),
        ("prenorm", {"qk_norm": "all"}, r"qk_norm = all and qkv_bias = false is no family of"),
        (
            {"name": "sandwich", "before": False},
            {},
            r"'sandwich\(before=false\)' with backbone.qk_norm = unset .* is no family",
        ),
    ],
)
def test_what_no_family_says_is_named(
    design: Any, backbone: dict[str, Any], words: str, tmp_path: Path
) -> None:
    model = Model.build(config_of(design, GQA, **backbone), 0)
    with pytest.raises(DepthbenchError, match=words):
        export_llama(model, tmp_path / "x")


@torch.no_grad()
@pytest.mark.parametrize("case", ["qwen3", "olmo2"])
def test_commands_take_them(case: str, tmp_path: Path, capsys: Capture) -> None:
    """Converted with its tokenizer, it gives the losses that the model itself gives."""
    folder = saved(tmp_path / "tiny", starts=True)
    family, changes = CASES[case]
    random_of(config_for(family, **changes, vocab_size=320)).save_pretrained(folder)
    (tmp_path / "words.txt").write_text(WORDS * 20)
    ours = tmp_path / "ours"
    assert execute(["convert", str(folder), str(ours), "--to", "depthbench"]) == 0
    told = (ours / "README.md").read_text()
    assert ("queries and keys normed" in told, "16 wide" in told) == (True, case == "qwen3")
    losses: list[dict[str, float]] = []
    for place in (ours, folder):
        capsys.readouterr()
        asked = ["--data", str(tmp_path / "words.txt"), "--tokens", "256", "--length", "32"]
        assert execute(["eval", str(place), *asked, "--json"]) == 0
        [row] = json.loads(capsys.readouterr().out)["measured"]
        losses.append(row["counts"] | {one["name"]: one["value"] for one in row["numbers"]})
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@torch.no_grad()
def test_factors_are_folded_into_other_families_too() -> None:
    """Branches at a third of their output, logits at a quarter."""
    scaled = {"kind": "completep", "base_layers": 1, "base_width": 8, "base_head_dim": 8}
    table = {"shape": GQA, "design": "prenorm", "backbone": {"qk_norm": "head"}}
    model = random_model(ModelConfig.parse(table | {"parametrization": scaled}))
    assert (model.scaling.branch, model.scaling.head) == (1 / 3, 0.25)
    tokens = tokens_of(GQA, 2, 9)
    assert apart(as_llama(model)(tokens).logits, model(tokens)) < 1e-6
