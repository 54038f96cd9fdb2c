"""Models of Hugging Face folders, and their text."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import decoders, processors
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from depthbench.errors import DepthbenchError
from depthbench.probes import pretrained
from depthbench.probes.batch import Batch
from depthbench.probes.hf_versions import before
from depthbench.probes.load import Parts, load, open_model
from depthbench.probes.text import TextConfig
from tests.probes.tiny import since_5, tiny

WORDS = "the depth of a model is how many of its 12 blocks it needs, not how many it has.\n"


def saved(folder: Path, starts: bool = False) -> Path:
    """A tiny LLaMA with a byte-level tokenizer of 300 tokens that may put one in front."""
    inner = tokenizers.Tokenizer(BPE())
    inner.pre_tokenizer = ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=300,
        special_tokens=["<pad>", "<s>", "</s>"],
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    inner.train_from_iterator([WORDS], trainer)
    if starts:
        inner.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)]
        )
    coder = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )
    tiny("llama", vocab_size=320).save_pretrained(folder)
    coder.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("models") / "tiny-chat")


def texts(tmp_path: Path) -> tuple[str, ...]:
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text(f"{number} {WORDS * (number + 1)}")
    return (str(tmp_path / "*.txt"),)


def test_a_folder_is_read_with_its_text(folder: Path, tmp_path: Path) -> None:
    opened = open_model(folder)
    facts = opened.subject.facts
    assert (facts.label, facts.source) == ("tiny-chat", str(folder))
    assert facts.notes == ("instruction-tuned",)
    text = opened.text(TextConfig(paths=texts(tmp_path), tokens=100, length=32))
    assert text.facts.start_token is None
    batch = text.batches[0]
    session: Any = opened.subject.session(batch)
    right = tiny("llama", vocab_size=320)
    with torch.no_grad():
        own = right(batch.tokens, use_cache=False).logits
        assert torch.equal(session.own_logits(), own)
    sizes = batch.sizes[batch.valid]
    assert int(sizes.min()) >= 1


@pytest.mark.parametrize(
    ("starts", "policy", "token"),
    [
        (True, "model", 1),
        (True, "always", 1),
        (True, "never", None),
        (False, "model", None),
        (False, "always", 1),
        (False, "never", None),
    ],
)
def test_the_start_token_is_the_tokenizers(
    starts: bool, policy: Any, token: int | None, folder: Path, tmp_path: Path
) -> None:
    place = saved(tmp_path / "starts", starts=True) if starts else folder
    config = TextConfig(paths=texts(tmp_path), tokens=60, length=16, start=policy)
    text = open_model(place).text(config)
    assert text.facts.start_token == token
    first = text.batches[0].tokens[:, 0].tolist()
    sizes = text.batches[0].sizes[:, 0].tolist()
    assert all((one == 1) == (token == 1) for one in first)
    assert all((size == 0) == (token == 1) for size in sizes)


def test_text_that_does_not_fit_is_refused(folder: Path, tmp_path: Path) -> None:
    opened = open_model(folder)
    with pytest.raises(DepthbenchError, match=r"length = 65: .* has 64 positions.*--length 64"):
        opened.text(TextConfig(paths=texts(tmp_path), length=65))


def test_a_model_without_a_tokenizer_says_so(tmp_path: Path) -> None:
    tiny("gpt_neox").save_pretrained(tmp_path / "bare")
    opened = open_model(tmp_path / "bare")
    assert opened.subject.layers == 4
    with pytest.raises(DepthbenchError, match=r"bare holds no tokenizer\. Save"):
        opened.text(TextConfig(tokens=60, length=16))


def test_pickles_and_half_files_are_refused(tmp_path: Path) -> None:
    place = tmp_path / "model"
    tiny("llama").save_pretrained(place)
    weights = load_file(place / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    short = {key: one for key, one in weights.items() if key != name}
    save_file(short, place / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(DepthbenchError, match=f"no weights that fit {name}: they would be random"):
        load(place)
    (place / "model.safetensors").unlink()
    with pytest.raises(DepthbenchError, match="holds no weights"):
        load(place)
    torch.save(weights, place / "pytorch_model.bin")
    with pytest.raises(DepthbenchError, match=r"only pytorch_model.bin, a pickle.*\.safetensors"):
        load(place)


def test_other_precisions(folder: Path) -> None:
    rows = Batch.of_rows([[5, 6, 7, 8]])
    single: Any = load(folder).session(rows)
    double: Any = load(folder, dtype="float64").session(rows)
    with torch.no_grad():
        assert double.own_logits().dtype == torch.float64
        torch.testing.assert_close(
            double.own_logits().float(), single.own_logits(), rtol=1e-4, atol=1e-5
        )


def test_names_of_parts_reach_the_model(folder: Path) -> None:
    with pytest.raises(DepthbenchError, match="--blocks layers is no list of blocks"):
        load(folder, parts=Parts(blocks="layers"))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("no.gguf", "no.gguf is not there. Check the name of the file"),
        ("nothing", "nothing is not there. Name a trial of ours"),
        ("empty", "empty is a folder without a model.*Name a trial of ours"),
        ("encoder", "is a t5, an encoder with a decoder"),
        ("strange", "its config cannot be read.*model type `no-such-family`.*Mend config.json"),
        ("broken", r"config\.json cannot be read.*Copy its files again"),
        ("file.txt", "file.txt is no model. Name a trial of ours"),
    ],
)
def test_what_is_no_model_is_said_in_one_line(source: str, words: str, tmp_path: Path) -> None:
    for name, content in (
        ("encoder", '{"model_type": "t5"}'),
        ("strange", '{"model_type": "no-such-family"}'),
        ("broken", "{"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(content)
        save_file({"a": torch.zeros(1)}, tmp_path / name / "model.safetensors")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("")
    with pytest.raises(DepthbenchError, match=words) as error:
        load(tmp_path / source)
    assert "\n" not in str(error.value)


def test_types_of_torch_are_not_names(folder: Path) -> None:
    dtype: Any = torch.float32
    with pytest.raises(DepthbenchError, match=r"dtype 'torch\.float32', did you mean 'float32'\?"):
        load(folder, dtype=dtype)


HELD = (
    "its config wants another shape"
    if before("5")
    else r"it holds \[32, 48\], its config wants \[32, 12\]"
)


def changed(folder: Path, into: Path, **settings: Any) -> Path:
    """A copy of a model's folder with another config."""
    shutil.copytree(folder, into)
    data = json.loads((into / "config.json").read_text())
    (into / "config.json").write_text(json.dumps(data | settings))
    return into


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"intermediate_size": 12},
            rf"no weights that fit model\.layers\.0\.mlp\.down_proj\.weight \({HELD}\) "
            r"and 11 more.* Copy its files again",
        ),
        pytest.param(
            {"num_hidden_layers": "many"},
            "'num_hidden_layers' expected int, got str .value: 'many'.*Mend config.json",
            marks=since_5,
        ),
        pytest.param(
            {"num_attention_heads": 5},
            "32. is not a multiple of .* heads .5.*Mend config.json",
            marks=since_5,
        ),
        ({"num_hidden_layers": 0}, "num_hidden_layers = 0, but probes need 1 block or more. Mend"),
    ],
)
def test_configs_that_do_not_fit_name_the_setting_and_what_helps(
    settings: dict[str, Any], words: str, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(DepthbenchError, match=words) as error:
        load(changed(folder, tmp_path / "model", **settings))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("left", [0, 4, 2000])
def test_weights_that_are_cut_off(left: int, folder: Path, tmp_path: Path) -> None:
    path = changed(folder, tmp_path / "model") / "model.safetensors"
    path.write_bytes(path.read_bytes()[:left])
    words = "model: the model cannot be read: .* Copy its files again, or save it anew"
    with pytest.raises(DepthbenchError, match=words) as error:
        load(path.parent)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", ["{", "[]", "{}"])
def test_tokenizers_that_are_none(content: str, folder: Path, tmp_path: Path) -> None:
    path = changed(folder, tmp_path / "model") / "tokenizer.json"
    path.write_text(content)
    words = "its tokenizer cannot be read: .* Put the tokenizer.json that the model was trained"
    with pytest.raises(DepthbenchError, match=words) as error:
        open_model(path.parent).text(TextConfig(paths=texts(tmp_path), tokens=60, length=16))
    assert "\n" not in str(error.value)


def test_text_in_another_encoding_says_what_helps(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 au lait " * 40)
    words = "latin.txt: byte 3 is no valid UTF-8.* Save the text as UTF-8, or name other text with"
    config = TextConfig(paths=(str(tmp_path / "latin.txt"),), tokens=60, length=16)
    with pytest.raises(DepthbenchError, match=words) as error:
        open_model(folder).text(config)
    assert "bytes'" not in str(error.value)


def test_a_name_without_an_owner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DepthbenchError, match=r"gpt2 is not there.*is written hf:gpt2"):
        load("gpt2")


def test_a_name_that_cannot_be_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    for name in ("nobody/nothing", "hf:nobody/nothing"):
        with pytest.raises(DepthbenchError, match=f"^{name} is no folder here and cannot be fetch"):
            load(name)


def test_the_libraries_are_as_talkative_as_before(folder: Path) -> None:
    logging = transformers.utils.logging
    level = logging.get_verbosity()
    logging.set_verbosity_info()
    try:
        load(folder)
        assert logging.get_verbosity() == logging.INFO
        assert logging.is_progress_bar_enabled()
    finally:
        logging.set_verbosity(level)


@pytest.mark.parametrize(
    ("name", "tuned"),
    [
        ("SmolLM2-135M-Instruct.Q4_1.gguf", True),
        ("gemma-3-1b-it", True),
        ("Llama-2-7b-chat-hf", True),
        ("pythia-160m", False),
        ("Bitnet-suite", False),
    ],
)
def test_tuned_models_are_known_by_name(name: str, tuned: bool) -> None:
    assert bool(pretrained.TUNED.search(name)) == tuned
