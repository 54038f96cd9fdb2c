"""Our models as models of Hugging Face: files, generation, training, adapters."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional

import depthbench.hub
from depthbench.designs import REGISTRY
from depthbench.errors import DepthbenchError
from depthbench.hub import past
from depthbench.hub.wrapper import DepthBenchConfig, DepthBenchForCausalLM
from depthbench.nn.generate import Sampling, generate
from depthbench.nn.model import Model
from depthbench.probes.hf_versions import cache_name
from tests.oracles import GQA, config_of, random_model, tokens_of

SOME = ("prenorm", "hc", "attnres", "cascade", "moda", "momentum", "frac")
BACKBONES: list[dict[str, Any]] = [
    {},
    {"tied_head": True},
    {"name": "moe", "experts": 4},
    {"name": "hybrid"},
]


@pytest.fixture(autouse=True)
def _known() -> None:
    depthbench.hub.register()


def wrapped(design: str = "prenorm", **backbone: Any) -> DepthBenchForCausalLM:
    """Around a float32 model with random parameters, gains included."""
    model = random_model(config_of(design, GQA, **backbone)).float()
    return DepthBenchForCausalLM.around(model).eval()


def opened(folder: Path, **given: Any) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, **given)


@torch.no_grad()
@pytest.mark.parametrize("design", REGISTRY)
def test_every_design_is_saved_and_opened_as_it_was(design: str, tmp_path: Path) -> None:
    """CASES 9: built on meta and filled from the file, every value and every logit is equal."""
    model, tokens = wrapped(design), tokens_of(GQA, 2, 9)
    model.save_pretrained(tmp_path)
    again = opened(tmp_path)
    assert type(again) is DepthBenchForCausalLM
    assert again.model.config == model.model.config
    ours, theirs = model.model.state_dict(), again.model.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert torch.equal(again(tokens).logits, model.model(tokens))
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "depthbench"


@torch.no_grad()
@pytest.mark.parametrize("backbone", BACKBONES)
def test_every_choice_is_in_the_config(backbone: dict[str, Any], tmp_path: Path) -> None:
    """CASES 40 with it: a tied matrix is one parameter before and after, and one tensor saved."""
    model = wrapped("prenorm", rope_base=500.0, norm_eps=1e-3, **backbone)
    model.save_pretrained(tmp_path)
    again, tokens = opened(tmp_path), tokens_of(GQA, 2, 9)
    assert again.model.config == model.model.config
    assert torch.equal(again(tokens).logits, model.model(tokens))
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["architecture"] == model.model.config.resolved()
    assert (written["num_hidden_layers"], written["num_key_value_heads"]) == (3, 2)
    tied = backbone.get("tied_head", False)
    # transformers 4 leaves out what it takes for granted
    assert written.get("tie_word_embeddings", True) is tied
    saved = load_file(tmp_path / "model.safetensors")
    assert ("model.head.weight" in saved) is not tied
    sizes = [sum(one.numel() for one in m.parameters()) for m in (model, again)]
    assert sizes == [sum(one.numel() for one in saved.values())] * 2
    again.model.embed.weight[98] = 0
    # token 98 is not read, so only a tied head can make this 0
    assert (again(tokens[tokens != 98][None]).logits[..., 98] == 0).all() == tied


@pytest.mark.parametrize("design", ["prenorm", "hc", "attnres", "mhc"])
def test_a_fresh_one_and_what_files_lack_start_as_the_seed_says(
    design: str, tmp_path: Path
) -> None:
    """CASES 10: no parameter is forgotten, on the way through meta either."""
    choices = config_of(design, GQA)
    right = Model.build(choices, 5).state_dict()
    fresh = DepthBenchForCausalLM(DepthBenchConfig(architecture=choices.resolved(), seed=5))
    assert all(torch.equal(one, right[name]) for name, one in fresh.model.state_dict().items())
    # half of the file is missing: the other half stays, and nothing is left to chance
    random = DepthBenchForCausalLM.around(random_model(choices).float())
    random.config.seed = 5
    weights = dict(random.state_dict())
    kept = {name: one for name, one in weights.items() if "blocks.1" not in name}
    random.save_pretrained(tmp_path, state_dict=kept)
    transformers.logging.set_verbosity_error()
    found = opened(tmp_path).model.state_dict()
    for name, one in found.items():
        assert torch.equal(one, right[name] if "blocks.1" in name else weights[f"model.{name}"])


def test_dtypes_and_documents_apart_come_along(tmp_path: Path) -> None:
    table = config_of("prenorm", GQA).resolved() | {"marks": {"document": 7}}
    model = random_model(type(config_of("prenorm", GQA)).parse(table))
    model.keep_documents_apart()
    DepthBenchForCausalLM.around(model).save_pretrained(tmp_path)
    again = opened(tmp_path, dtype="auto")
    assert again.dtype == torch.float64
    tokens = torch.tensor([[7, 3, 4, 7, 5, 6]])
    assert torch.equal(again(tokens).logits, model(tokens))
    alone = model(tokens[:, 3:])
    torch.testing.assert_close(again(tokens).logits[:, 3:], alone)
    assert opened(tmp_path, dtype=torch.bfloat16).dtype == torch.bfloat16


@torch.no_grad()
@pytest.mark.parametrize("design", SOME)
def test_generation_is_that_of_the_model(design: str) -> None:
    """Greedy, two prompts of different length, padding on the left; with and without a cache."""
    model = wrapped(design)
    tokens = tokens_of(GQA, 2, 7)
    mask = torch.ones_like(tokens)
    mask[1, :3] = 0
    given: dict[str, Any] = {"attention_mask": mask, "max_new_tokens": 9, "do_sample": False}
    padding = torch.tensor([0, 3])
    right = generate(model.model, tokens, 9, padding=padding, sampling=Sampling())
    assert torch.equal(model.generate(tokens, **given), right)
    assert torch.equal(model.generate(tokens, use_cache=False, **given), right)
    alone = model.generate(tokens[1:, 3:], max_new_tokens=9, do_sample=False)
    assert torch.equal(alone[0], right[1, 3:])


@torch.no_grad()
def test_sequences_end_with_their_token_and_are_padded() -> None:
    """The third token that one sequence takes ends it; the other goes on."""
    model, tokens = wrapped("prenorm"), tokens_of(GQA, 2, 5)
    free = model.generate(tokens, max_new_tokens=6, do_sample=False)
    stop = int(free[0, 7])
    assert stop not in free[0, 5:7]
    given: dict[str, Any] = {"eos_token_id": stop, "pad_token_id": 98, "do_sample": False}
    mask = torch.ones_like(tokens)
    found = model.generate(tokens, attention_mask=mask, max_new_tokens=6, **given)
    right = generate(model.model, tokens, 6, stop=stop)
    assert found[0, 5:].tolist() == [*free[0, 5:8].tolist(), 98, 98, 98][: found.shape[1] - 5]
    ends = (right[1, 5:] == stop).nonzero()
    own = right[1, 5:] if not len(ends) else right[1, 5 : 6 + int(ends[0])]
    assert found[1, 5 : 5 + len(own)].tolist() == own.tolist()


@torch.no_grad()
def test_a_cache_grows_and_beams_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "AHEAD", 2)
    model, tokens = wrapped("hc"), tokens_of(GQA, 2, 5)
    long = model.generate(tokens, max_new_tokens=20, do_sample=False)
    assert torch.equal(long, generate(model.model, tokens, 20))
    beams: dict[str, Any] = {"num_beams": 3, "max_new_tokens": 8, "do_sample": False}
    found = model.generate(tokens, **beams)
    assert torch.equal(found, model.generate(tokens, use_cache=False, **beams))
    greedy = model.generate(tokens, max_new_tokens=8, do_sample=False)
    assert _likelihood(model, found) >= _likelihood(model, greedy) - 1e-5


def _likelihood(model: Any, tokens: Tensor) -> float:
    chances = model(tokens).logits[:, 4:-1].log_softmax(-1)
    return chances.gather(-1, tokens[:, 5:, None]).sum().item()


@torch.no_grad()
def test_a_conversation_goes_on_from_its_cache() -> None:
    model, tokens = wrapped("attnres"), tokens_of(GQA, 1, 6)
    first = model.generate(tokens, max_new_tokens=4, do_sample=False, return_dict_in_generate=True)
    more = torch.cat([first.sequences, tokens[:, :3]], dim=1)
    held = {cache_name(): first[cache_name()]}
    on = model.generate(more, max_new_tokens=4, do_sample=False, **held)
    assert torch.equal(on, model.generate(more, max_new_tokens=4, do_sample=False))


@torch.no_grad()
@pytest.mark.parametrize("design", ["prenorm", "hc", "attnres", "resi_dual"])
def test_hidden_states_end_with_the_normed_one(design: str) -> None:
    """CASES 18: the last is normed already, and no norm is put on it again."""
    model, tokens = wrapped(design), tokens_of(GQA, 2, 6)
    out = model(tokens, output_hidden_states=True)
    assert len(out.hidden_states) == GQA.layers + 1
    # the head alone makes the logits of the last: a second norm would show, for gains are random
    assert torch.equal(
        model.model.head(out.hidden_states[-1], model.model.embed.weight), out.logits
    )
    streams = {"hc": 4, "resi_dual": 2}.get(design)
    shape = (2, 6, 32) if streams is None else (2, 6, streams, 32)
    assert {one.shape for one in out.hidden_states[:-1]} == {torch.Size(shape)}
    if design == "prenorm":
        assert torch.equal(out.hidden_states[0], model.model.embed(tokens))
        assert torch.equal(out.hidden_states[-1], model.model.final_norm(_last(model, tokens)))
    stepped = model.generate(
        tokens,
        max_new_tokens=2,
        do_sample=False,
        output_hidden_states=True,
        return_dict_in_generate=True,
    )
    whole = model(stepped.sequences[:, :-1], output_hidden_states=True)
    for depth in range(GQA.layers + 1):
        parts = torch.cat([step[depth] for step in stepped.hidden_states], dim=1)
        torch.testing.assert_close(parts, whole.hidden_states[depth], rtol=1e-4, atol=1e-5)


def _last(model: Any, tokens: Tensor) -> Tensor:
    from depthbench.nn.block import Trace

    trace = Trace()
    model.model(tokens, trace=trace)
    return trace.depth_states[-1]


def test_the_loss_is_that_of_shifted_labels() -> None:
    """CASES 30, 39: a sum over tokens by hand; -100 and rows that pad the head predict nothing."""
    model, tokens = wrapped(), tokens_of(GQA, 2, 8)
    model.config.words = 90
    labels = (tokens % 90).clone()
    labels[0, :3] = -100
    out = model(tokens, labels=labels)
    read, total, count = out.logits.detach().double(), 0.0, 0
    for row in range(2):
        for place in range(1, 8):
            if labels[row, place] == -100:
                continue
            logits = read[row, place - 1, :90]
            total += float(logits.exp().sum().log() - logits[labels[row, place]])
            count += 1
    assert count == 12
    assert out.loss.item() == pytest.approx(total / count, rel=1e-5)
    summed = model(tokens, labels=labels, num_items_in_batch=24).loss.item()
    assert summed == pytest.approx(total / 24, rel=1e-5)


@pytest.mark.parametrize("design", ["prenorm", "hc", "mhc", "attnres", "cascade"])
def test_every_parameter_of_one_that_was_opened_learns(design: str, tmp_path: Path) -> None:
    """CASES 10: each has a gradient, the same as before it was saved."""
    model, tokens = wrapped(design), tokens_of(GQA, 2, 8)
    model.save_pretrained(tmp_path)
    again = opened(tmp_path).train()
    for found in (model.train(), again):
        found(tokens, labels=tokens).loss.backward()
    right = {name: one.grad for name, one in model.named_parameters()}
    for name, one in again.named_parameters():
        assert one.grad is not None, name
        assert one.grad.abs().max() > 0, name
        assert torch.equal(one.grad, right[name])


def test_routers_add_their_penalty_in_training_alone() -> None:
    model, tokens = wrapped("prenorm", name="moe", experts=4), tokens_of(GQA, 2, 8)
    quiet, loud = (model.train(mode)(tokens, labels=tokens).loss.item() for mode in (False, True))
    logits = model(tokens).logits[:, :-1].flatten(0, 1)
    assert quiet == pytest.approx(functional.cross_entropy(logits, tokens[:, 1:].flatten()).item())
    assert loud > quiet + 1e-4


@torch.no_grad()
def test_padding_changes_nothing_and_odd_masks_are_refused() -> None:
    model, tokens = wrapped("cascade"), tokens_of(GQA, 1, 5)
    right = model(tokens).logits[0]
    for where in (slice(3, 8), slice(0, 5)):
        padded, mask = torch.zeros(1, 8, dtype=torch.long), torch.zeros(1, 8, dtype=torch.long)
        padded[0, where], mask[0, where] = tokens[0], 1
        found = model(padded, attention_mask=mask).logits[0, where]
        torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-5)
    for rows, words in (
        ([[1, 0, 1, 1, 1]], "has holes"),
        ([[0, 0, 0, 0, 0]], "a sequence has no text"),
        ([[1, 1, 1]], r"shape \(1, 3\)"),
    ):
        with pytest.raises(DepthbenchError, match=words):
            model(tokens, attention_mask=torch.tensor(rows))
    with pytest.raises(DepthbenchError, match="behind padding"):
        model.generate(tokens, attention_mask=torch.tensor([[1, 1, 1, 1, 0]]), max_new_tokens=2)


def test_what_it_cannot_do_is_said() -> None:
    model, tokens = wrapped(), tokens_of(GQA, 1, 4)
    for given, words in (
        ({"inputs_embeds": torch.zeros(1, 4, 32)}, "designs read the tokens"),
        ({"input_ids": tokens, "output_attentions": True}, "computed without its weights"),
        ({"input_ids": tokens, "labels": tokens, "use_cache": True}, "there is no gradient"),
    ):
        with pytest.raises(DepthbenchError, match=words):
            model(**given)
    with pytest.raises(DepthbenchError, match="vocabulary is part of the architecture"):
        model.resize_token_embeddings(120)
    with pytest.raises(DepthbenchError, match="architecture is missing"):
        DepthBenchForCausalLM(DepthBenchConfig())


def test_checkpointing_gives_the_same_gradients() -> None:
    model, tokens = wrapped("hc").train(), tokens_of(GQA, 2, 6)
    found = []
    for enable in (False, True):
        if enable:
            model.activation_checkpointing_enable()
        model.zero_grad()
        model(tokens, labels=tokens).loss.backward()
        found.append([one.grad.clone() for one in model.parameters()])
    assert model.is_activation_checkpointing
    model.activation_checkpointing_disable()
    assert not model.model.checkpointing
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*found, strict=True))


def test_importing_loads_no_transformers() -> None:
    code = (
        "import sys, depthbench, depthbench.hub, depthbench.hub.olmo_core\n"
        "assert 'transformers' not in sys.modules\n"
        "from depthbench.hub import DepthBenchForCausalLM\n"
        "from transformers import AutoConfig\n"
        "print(type(AutoConfig.for_model('depthbench')).__name__)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "DepthBenchConfig"
