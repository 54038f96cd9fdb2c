"""Known ways to be wrong where models and text come in and numbers go out (CASES 17, 29–31, 39)."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from depthbench.cli.app import execute
from depthbench.designs import REGISTRY
from depthbench.errors import DepthbenchError
from depthbench.evals.domains import DomainConfig, measure_domains
from depthbench.evals.generate import generate_under
from depthbench.evals.windows import WindowConfig
from depthbench.marks import Marks
from depthbench.nn.generate import Sampling, generate
from depthbench.nn.model import Model, ModelConfig
from depthbench.probes.huggingface import HuggingFaceSubject
from depthbench.probes.load import open_model
from depthbench.probes.own import OwnSubject
from depthbench.probes.program import Program, plain, program_of, repeat, skip, swap
from depthbench.probes.subject import Decoder
from tests.evals.small import byte_llama, bytes_model, machinery_of, reader_of
from tests.probes.tiny import FAMILIES, tiny

PROGRAMS = {
    "skip": skip(4, 0, 2),
    "swap": swap(4, 0, 2),
    "thrice": program_of([0, 1, 1, 2, 1, 3], 4),
}
PIECES = ([256, 7, 46, 9], [10], [12, 13])
FEW = ("llama", "gemma3", "deepseek_v4")


@torch.no_grad()
@pytest.mark.parametrize("design", REGISTRY)
def test_17_a_program_is_decoded_over_a_cache(design: str) -> None:
    """Piece by piece: the logits of the whole row under that program, by the model's forward."""
    model = bytes_model(design)
    for name, program in PROGRAMS.items():
        decoder = OwnSubject(model, "test").decoder(program)
        if isinstance(decoder, str):
            assert (design, name) == ("cascade", "thrice")
            assert "runs more than once, and design 'cascade' keeps" in decoder
            continue
        row: list[int] = []
        for piece in PIECES:
            row += piece
            right = model(torch.tensor([row]), program=[call.block for call in program])[0, -1]
            torch.testing.assert_close(decoder.read(piece), right, rtol=1e-10, atol=1e-10)


@torch.no_grad()
@pytest.mark.parametrize("backbone", [{"name": "moe", "experts": 4}, {"name": "hybrid"}])
def test_17_other_backbones_too(backbone: dict[str, Any]) -> None:
    table = bytes_model("hc").config.resolved() | {"backbone": backbone}
    model = Model.build(ModelConfig.parse(table), 0, dtype=torch.float64).eval()
    for program in (PROGRAMS["skip"], PROGRAMS["thrice"]):
        decoder = OwnSubject(model, "test").decoder(program)
        assert isinstance(decoder, Decoder)
        order = [call.block for call in program]
        decoder.read([256, 3, 4])
        right = model(torch.tensor([[256, 3, 4, 5]]), program=order)[0, -1]
        torch.testing.assert_close(decoder.read([5]), right, rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_17_documents_apart_stay_apart() -> None:
    """A new document is read as if nothing stood before it."""
    model = bytes_model("attnres")
    model.keep_documents_apart()
    decoder = OwnSubject(model, "test").decoder(PROGRAMS["skip"])
    assert isinstance(decoder, Decoder)
    decoder.read([256, 3, 4])
    found = decoder.read([5, 256, 6, 7])
    row = torch.tensor([[256, 3, 4, 5, 256, 6, 7]])
    right = model(row, program=[1, 3])[0, -1]
    torch.testing.assert_close(found, right, rtol=1e-10, atol=1e-10)
    alone = model(row[:, 4:], program=[1, 3])[0, -1]
    torch.testing.assert_close(found, alone, rtol=1e-10, atol=1e-10)


@torch.no_grad()
@pytest.mark.parametrize(
    "family",
    [one if one in FEW else pytest.param(one, marks=pytest.mark.slow) for one in FAMILIES],
)
def test_17_families_of_others_keep_their_own_cache(family: str) -> None:
    subject = HuggingFaceSubject(tiny(family), "test")
    decoder = subject.decoder(plain(4))
    assert isinstance(decoder, Decoder)
    row: list[int] = []
    for piece in ([5, 7, 8], [9], [10, 46, 12], [13], [46], [3]):
        row += piece
        right: Any = subject.model(torch.tensor([row]), use_cache=False)
        torch.testing.assert_close(decoder.read(piece), right.logits[0, -1], rtol=1e-4, atol=1e-5)
    assert "counts its blocks" in str(subject.decoder(skip(4, 1)))


@pytest.mark.parametrize("design", ["prenorm", "cascade"])
@pytest.mark.parametrize("program", [skip(4, 1), repeat(4, 2)])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0, seed=3)])
def test_17_text_with_a_cache_is_the_text_without(
    design: str, program: Program, sampling: Sampling
) -> None:
    """Long enough that the cache grows; where there is none the whole row runs again."""
    subject, start = OwnSubject(bytes_model(design), "test"), [256, 100]
    given: dict[str, Any] = {"sampling": sampling}
    cached = generate_under(subject, program, start, 12, **given)
    assert torch.equal(cached, generate_under(subject, program, start, 12, **given, anew=True))


def test_17_what_has_no_cache_is_refused_by_name() -> None:
    model = bytes_model("cascade")
    prompt = torch.tensor([[256, 1]])
    with pytest.raises(DepthbenchError, match="block 2 runs more than once, and design 'cascade'"):
        generate(model, prompt, 3, program=[0, 1, 2, 2, 3])
    with pytest.raises(DepthbenchError, match="names block 4"):
        generate(model, prompt, 3, program=[0, 4])


def padded(rows: int) -> Model:
    """Over bytes and the document token, and rows that are neither."""
    shape = bytes_model().config.shape.model_copy(update={"vocab": rows})
    config = ModelConfig(shape=shape, design=bytes_model().config.design, marks=Marks(document=256))
    return Model.build(config, 0, dtype=torch.float64).eval()


def test_39_rows_that_pad_the_head_are_left_out(tmp_path: Path) -> None:
    """A model that has learnt nothing gives ln of the tokens that there are, not of all rows."""
    model = padded(400)
    with torch.no_grad():
        model.head.weight[257:] = 5.0  # pyright: ignore[reportIndexIssue]
    (tmp_path / "a.txt").write_text("depth is not width", encoding="utf-8")
    config = DomainConfig(paths=(str(tmp_path / "a.txt"),), windows=WindowConfig(length=12))
    bare = reader_of()
    reader = type(bare)(bare.coder, bare.start, None, 400, known=257)
    values = {}
    for name, one in (("known", reader), ("all", type(bare)(bare.coder, bare.start, None, 400))):
        [found] = measure_domains(machinery_of(model), one, config)
        nats = found.number("nats_per_token")
        assert nats is not None
        values[name] = nats.value
        assert found.policy["rows_left_out"] == (143 if name == "known" else 0)
        said = any("143 rows more than the tokenizer has tokens (257)" in n for n in found.notes)
        assert said == (name == "known")
    hand = []
    for place in range(1, 19):
        row = [256, *b"depth is not width"]
        begin = 0 if place < 12 else 6 if place < 18 else 12
        with torch.no_grad():
            logits = model(torch.tensor([row[begin:place]]))[0, -1, :257]
        hand.append(float(torch.logsumexp(logits, 0) - logits[row[place]]))
    assert values["known"] == pytest.approx(sum(hand) / 18, rel=1e-12)
    assert values["known"] == pytest.approx(math.log(257), abs=0.1)
    assert abs(values["all"] - values["known"]) > 0.3


@pytest.mark.parametrize("rows", [259, 280])
def test_39_rows_of_a_folder_beyond_its_tokenizer(rows: int, tmp_path: Path) -> None:
    """A model of others whose head was padded: the hand computation leaves the padding out."""
    llama = byte_llama(tmp_path / "llama", rows)
    text = "naïve depth of 20"
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    given = ["eval", str(tmp_path / "llama"), "--data", str(tmp_path / "a.txt"), "--bos", "never"]
    given += ["--length", "48"]
    assert execute([*given, "--out", str(tmp_path / "out"), "--json"]) == 0
    [found] = json.loads((tmp_path / "out" / "eval.json").read_text())["measured"]
    coder = transformers.AutoTokenizer.from_pretrained(tmp_path / "llama")
    ids = torch.tensor([coder(text, add_special_tokens=False)["input_ids"]])
    with torch.no_grad():
        logits = llama(ids).logits[0, :-1, :259].double()
    hand = [
        float(torch.logsumexp(logits[place], 0) - logits[place, wanted])
        for place, wanted in enumerate(ids[0, 1:].tolist())
    ]
    assert found["numbers"][0]["value"] == pytest.approx(sum(hand) / len(hand), rel=1e-5)
    assert found["counts"]["tokens"] == len(text.encode()) - 1
    assert found["policy"]["rows_left_out"] == rows - 259
    assert bool(found["notes"]) == (rows > 259)


def test_39_a_tokenizer_larger_than_the_embedding_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Though no token of the text is beyond the embedding, and whatever is measured."""
    byte_llama(tmp_path / "llama", 240)
    (tmp_path / "a.txt").write_text("plain", encoding="utf-8")
    (tmp_path / "a.jsonl").write_text('{"prompt": "a", "answer": "b"}', encoding="utf-8")
    capsys.readouterr()
    for given in (["--data", str(tmp_path / "a.txt")], ["--pairs", str(tmp_path / "a.jsonl")]):
        assert execute(["eval", str(tmp_path / "llama"), *given, "--bos", "never"]) == 2
        said = capsys.readouterr().err
        assert "the tokenizer has 259 tokens, but the model's embedding has 240 rows" in said
        assert said.count("\n") == 1


def test_39_a_folder_of_ours_knows_its_words(tmp_path: Path) -> None:
    """Rows that only pad the head are not taken for tokens, and neither are they in text."""
    from depthbench.hub.own_folder import write_own

    byte_llama(tmp_path / "llama", 259)
    coder = transformers.AutoTokenizer.from_pretrained(tmp_path / "llama")
    write_own(padded(300).float(), tmp_path / "own", coder, unused=range(259, 300))
    reader = open_model(tmp_path / "own").reader()
    assert (reader.known, reader.words) == (259, 300)
