"""``depthbench convert``: trials and other models, to LLaMA and to our own folders."""

import json
import math
from pathlib import Path
from typing import Any

import gguf
import pytest
import tomli_w
import torch
import transformers

import depthbench
import depthbench.hub
from depthbench.cli.app import execute
from depthbench.hub.olmo_core import write_olmo_core
from depthbench.hub.own_folder import write_own
from depthbench.nn.generate import generate
from depthbench.probes.hf_quiet import quiet
from depthbench.probes.hf_versions import before
from depthbench.probes.load import open_model
from depthbench.probes.own import OwnSubject
from depthbench.probes.text import TextConfig
from depthbench.train.load import load_trial
from tests.oracles import GQA, config_of, random_model, tokens_of
from tests.probes.test_gguf import written
from tests.probes.test_pretrained import saved
from tests.small import study_tables, write_text

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("convert")
    write_text(folder)
    return folder


@pytest.fixture(autouse=True)
def _cache(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(root / "cache"))


@pytest.fixture(scope="module")
def trials(root: Path) -> dict[str, Path]:
    """Trials of prenorm and hc by bytes, and of prenorm by BPE."""
    found = {}
    for name, designs, data in (
        ("bytes", ["prenorm", "hc"], {}),
        ("bpe", ["prenorm"], {"tokenizer": "bpe", "vocab": 280}),
    ):
        tables = study_tables(
            root / "words.txt",
            name=name,
            designs=designs,
            search={"learning_rates": [1e-2]},
            data={"paths": [str(root / "words.txt")], **data},
        )
        tables["shapes"]["sizes"] = [{"layers": 2, "width": 16, "heads": 2, "ffn": 24}]
        (root / f"{name}.toml").write_text(tomli_w.dumps(tables))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DEPTHBENCH_CACHE", str(root / "cache"))
            command = ["run", str(root / f"{name}.toml"), "--out", str(root / "runs")]
            assert execute([*command, "--workers", "1"]) == 0
        for trial in (root / "runs" / name / "trials").iterdir():
            design = json.loads((trial / "config.json").read_text())["model"]["design"]["name"]
            found[f"{name} {design}"] = trial
    return found


def converted(capsys: Capture, *arguments: Any) -> dict[str, Any]:
    """What the command says, as JSON."""
    capsys.readouterr()
    assert execute(["convert", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["bytes prenorm", "bpe prenorm"])
def test_a_trial_becomes_a_llama(
    kind: str, trials: dict[str, Path], tmp_path: Path, capsys: Capture
) -> None:
    """Nothing of ours is needed: ids, logits and greedy text are those of the trial."""
    said = converted(capsys, trials[kind], tmp_path / "x", "--to", "llama")
    assert (said["form"], said["tokenizer"]) == ("llama", True)
    assert said["distance"] < 1e-5
    with quiet():
        llama: Any = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "x")
        coder: Any = transformers.AutoTokenizer.from_pretrained(tmp_path / "x")
    assert type(llama) is transformers.LlamaForCausalLM
    model, config = load_trial(trials[kind])
    own = open_model(trials[kind])
    asked = TextConfig(paths=(str(trials[kind].parents[3] / "words.txt"),), tokens=64, length=16)
    row = own.text(asked).batches[0].tokens[0].tolist()
    text = coder.decode(row, skip_special_tokens=True)
    ids = coder(text)["input_ids"]
    # a row may end in the middle of a character
    assert ids[:12] == row[:12]
    tokens = torch.tensor([ids])
    torch.testing.assert_close(llama(tokens).logits, model(tokens), rtol=1e-4, atol=1e-5)
    # the document token ends a text, here as there
    new = llama.generate(tokens, max_new_tokens=12, do_sample=False)
    right = generate(model, tokens, 12, stop=coder.eos_token_id)
    assert torch.equal(new, right)
    assert llama.config.max_position_embeddings == config.train.length


@torch.no_grad()
def test_any_trial_becomes_a_folder_that_probes_and_transformers_open(
    trials: dict[str, Path], tmp_path: Path, capsys: Capture
) -> None:
    trial = trials["bytes hc"]
    said = converted(capsys, trial, tmp_path / "x", "--to", "hf")
    assert (said["design"], said["distance"]) == ("hc", 0.0)
    opened, source = open_model(tmp_path / "x"), open_model(trial)
    assert isinstance(opened.subject, OwnSubject)
    assert opened.subject.facts.weights_hash == source.subject.facts.weights_hash
    assert (opened.subject.facts.kind, opened.subject.facts.streams) == ("depthbench", 4)
    asked = TextConfig(paths=(str(trial.parents[3] / "words.txt"),), tokens=64, length=16)
    for ours, theirs in zip(opened.text(asked).batches, source.text(asked).batches, strict=True):
        assert torch.equal(ours.tokens, theirs.tokens)
        assert torch.equal(ours.sizes, theirs.sizes)
    depthbench.hub.register()
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "x")
    coder: Any = transformers.AutoTokenizer.from_pretrained(tmp_path / "x")
    given = coder(["depth", "naïve stream"], padding=True, return_tensors="pt")
    new = model.generate(**given, max_new_tokens=6, do_sample=False)
    capsys.readouterr()
    assert execute(["generate", str(tmp_path / "x"), "--prompt", "depth", "--tokens", "6"]) == 0
    text = capsys.readouterr().out
    assert execute(["generate", str(trial), "--prompt", "depth", "--tokens", "6"]) == 0
    assert capsys.readouterr().out == text
    said_there = coder.decode(new[0], skip_special_tokens=True)
    assert text.rstrip("\n") == said_there
    # blocks can be left out of it, and it is written again with its tokenizer
    small = opened.subject.smaller([1])
    small.write(tmp_path / "small")
    again = open_model(tmp_path / "small")
    assert again.subject.facts.weights_hash == small.facts.weights_hash
    assert again.text(asked).facts.hash == opened.text(asked).facts.hash


def test_the_card_says_what_the_run_was(
    trials: dict[str, Path], tmp_path: Path, capsys: Capture
) -> None:
    trial = trials["bytes hc"]
    converted(capsys, trial, tmp_path / "x", "--to", "depthbench")
    card = (tmp_path / "x" / "README.md").read_text()
    rows = [
        json.loads(one) for one in (trial.parents[1] / "results.jsonl").read_text().splitlines()
    ]
    [row] = [one for one in rows if one["id"] == trial.name]
    bits = row["loss"]["bits_per_byte"]
    for words in (
        "library_name: transformers",
        "arXiv 2409.19606",
        f"| trial | {trial.name} |",
        f"{bits:.4f} bits per byte",
        f"| data (hash) | {row['data_hash']} |",
        "| training tokens | 512 |",
        "2 layers, width 16, 2 heads, feed-forward 24",
        "depthbench.hub.register()",
    ):
        assert words in card


@torch.no_grad()
def test_a_llama_comes_in_and_goes_out_with_its_tokenizer(tmp_path: Path, capsys: Capture) -> None:
    folder = saved(tmp_path / "tiny", starts=True)
    said = converted(capsys, folder, tmp_path / "ours", "--to", "depthbench")
    assert (said["design"], said["distance"]) == ("prenorm", 0.0)
    back = converted(capsys, tmp_path / "ours", tmp_path / "back", "--to", "llama")
    assert back["distance"] < 1e-5
    with quiet():
        first, last = (
            transformers.AutoModelForCausalLM.from_pretrained(one)
            for one in (folder, tmp_path / "back")
        )
        coders: Any = [
            transformers.AutoTokenizer.from_pretrained(one)
            for one in (folder, tmp_path / "ours", tmp_path / "back")
        ]
    found = last.state_dict()
    for name, one in first.state_dict().items():
        assert torch.equal(found[name], one)
    words = "the depth of a model, naïve 12"
    ids = [coder(words)["input_ids"] for coder in coders]
    assert ids[0] == ids[1] == ids[2]
    assert ids[0][0] == 1
    # 299 tokens, and 21 rows that only pad the head: never generated
    assert last.generation_config.suppress_tokens == list(range(299, 320))
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["words"] == 299
    [text, again] = [
        open_model(one).text(
            TextConfig(paths=(str(folder / "tokenizer.json"),), tokens=64, length=16)
        )
        for one in (folder, tmp_path / "ours")
    ]
    assert text.facts.hash == again.facts.hash


def test_quantised_weights_are_said_wherever_it_goes(tmp_path: Path, capsys: Capture) -> None:
    """GGUF → ours → LLaMA: probes of either say what the weights went through."""
    written(tmp_path / "tiny.gguf", gguf.GGMLQuantizationType.Q8_0)
    notes = ("quantised weights (Q8_0), dequantised to float32", "instruction-tuned")
    said = converted(capsys, tmp_path / "tiny.gguf", tmp_path / "x", "--to", "depthbench")
    # transformers 5 puts a token of its own into this tokenizer
    if not before("5"):
        notes = (*notes, "tokens 98 to 98 were added to its tokenizer alone")
    assert tuple(said["notes"]) == notes
    converted(capsys, tmp_path / "x", tmp_path / "y", "--to", "llama")
    depthbench.load(tmp_path / "x").smaller([0, 2]).write(tmp_path / "z")
    for place in ("x", "y", "z"):
        assert depthbench.load(tmp_path / place).facts.notes == notes
    assert f"| note 1 | {notes[0]} |" in (tmp_path / "y" / "README.md").read_text()


@torch.no_grad()
def test_olmo_core_comes_in(tmp_path: Path, capsys: Capture) -> None:
    model = random_model(config_of("attnres", GQA)).float()
    write_olmo_core(model, tmp_path / "x")
    said = converted(capsys, tmp_path / "x", tmp_path / "y", "--to", "hf")
    assert (said["design"], said["tokenizer"]) == ("attnres", False)
    subject = depthbench.load(tmp_path / "y")
    assert isinstance(subject, OwnSubject)
    tokens = tokens_of(GQA, 2, 7)
    assert torch.equal(subject.model(tokens), model(tokens))


def test_bfloat16_is_written_as_it_is(
    trials: dict[str, Path], tmp_path: Path, capsys: Capture
) -> None:
    arguments = (trials["bytes prenorm"], tmp_path / "x", "--to", "llama", "--dtype", "bfloat16")
    assert converted(capsys, *arguments)["distance"] < 0.05
    assert json.loads((tmp_path / "x" / "config.json").read_text())["dtype"] == "bfloat16"


def test_a_missing_tokenizer_is_said(
    trials: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(tmp_path / "empty"))
    capsys.readouterr()
    command = ["convert", str(trials["bytes hc"]), str(tmp_path / "x"), "--to", "hf"]
    assert execute(command) == 0
    said = capsys.readouterr().out
    assert "no tokenizer: the prepared data" in said
    assert not (tmp_path / "x" / "tokenizer.json").exists()
    assert execute(["generate", str(tmp_path / "x"), "--prompt", "a"]) == 2
    assert "holds no tokenizer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "arguments", "words"),
    [
        ("bytes hc", ["--to", "llama"], "design 'hc' has no LLaMA form"),
        ("bytes hc", ["--to", "lama"], "did you mean 'llama'"),
        ("bytes hc", ["--to", "hf", "--dtype", "float31"], "float32"),
    ],
)
def test_bad_input_is_one_line(
    kind: str,
    arguments: list[str],
    words: str,
    trials: dict[str, Path],
    tmp_path: Path,
    capsys: Capture,
) -> None:
    capsys.readouterr()
    assert execute(["convert", str(trials[kind]), str(tmp_path / "x"), *arguments]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert not (tmp_path / "x").exists()


def test_damaged_files_of_ours_are_named(
    trials: dict[str, Path], tmp_path: Path, capsys: Capture
) -> None:
    converted(capsys, trials["bytes hc"], tmp_path / "x", "--to", "hf")
    path = tmp_path / "x" / "config.json"
    whole = path.read_text()
    for change, words in (
        (lambda c: c["architecture"]["shape"].update(layers=3), "does not hold the model"),
        (lambda c: c["architecture"].update(color="red"), "unknown key 'color'"),
        (lambda c: c.pop("architecture"), "architecture is missing"),
    ):
        settings = json.loads(whole)
        change(settings)
        path.write_text(json.dumps(settings))
        assert execute(["convert", str(tmp_path / "x"), str(tmp_path / "y"), "--to", "hf"]) == 2
        said = capsys.readouterr().err
        assert words in said
        assert said.count("\n") == 1


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path, capsys: Capture) -> None:
    folder = saved(tmp_path / "tiny")
    settings = json.loads((folder / "config.json").read_text())
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**settings | {"vocab_size": 250})
    )
    model.save_pretrained(folder)
    capsys.readouterr()
    assert execute(["convert", str(folder), str(tmp_path / "x"), "--to", "llama"]) == 2
    assert "its tokenizer has 299 tokens, but its embedding 250 rows" in capsys.readouterr().err


def test_values_that_are_no_numbers_are_named_and_nothing_is_written(
    tmp_path: Path, capsys: Capture
) -> None:
    model = random_model(config_of("prenorm")).float()
    next(p for n, p in model.named_parameters() if n.endswith("down.weight")).data[0, 0] = math.nan
    write_own(model, tmp_path / "broken")
    asked = ["convert", str(tmp_path / "broken"), str(tmp_path / "new"), "--to", "depthbench"]
    assert execute(asked) == 2
    err = capsys.readouterr().err
    assert "down.weight holds values that are no finite numbers" in err
    assert not (tmp_path / "new").exists()


def test_a_llama_is_no_run(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    assert execute(["generate", str(tmp_path), "--prompt", "a"]) == 2
    err = capsys.readouterr().err
    assert "is a Hugging Face model (llama)" in err
    assert "depthbench convert" in err
