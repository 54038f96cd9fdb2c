"""Text of probes: whole documents' beginnings, in turn over domains, with their bytes."""

from pathlib import Path

import pytest
import tokenizers
from tokenizers.models import BPE
from tokenizers.normalizers import NFC
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from depthbench.data.tokenizer import ByteTokenizer, FileTokenizer
from depthbench.errors import DepthbenchError
from depthbench.probes.text import TextConfig, text_of_dataset, text_of_files
from tests.small import make_dataset

CODER = ByteTokenizer()


def config(*paths: Path, **more: object) -> TextConfig:
    return TextConfig.parse({"paths": tuple(map(str, paths)), **more})


def written(path: Path, *texts: str) -> Path:
    path.mkdir()
    for number, text in enumerate(texts):
        (path / f"{number}.txt").write_text(text, encoding="utf-8")
    return path


def test_rows_are_beginnings_and_domains_take_turns(tmp_path: Path) -> None:
    one = written(tmp_path / "one", "a" * 50, "b" * 5)
    two = written(tmp_path / "two", "c" * 50, "d" * 50)
    text = text_of_files(config(one, two, tokens=60, length=20, rows=3), CODER, 256)
    assert text.facts.tokens == sum(int(batch.valid.sum()) for batch in text.batches)
    assert (text.facts.documents, text.facts.tokens, text.facts.start_token) == (
        4,
        6 + 20 + 30,
        256,
    )
    # 30 tokens a domain: the second row of the second is cut to what is left
    assert text.domain_of == ("one", "two", "one", "two")
    for batch in text.batches:
        for tokens, valid, sizes in zip(batch.tokens, batch.valid, batch.sizes, strict=True):
            assert tokens[0] == 256
            assert sizes[0] == 0
            assert (sizes[1:][valid[1:]] == 1).all()
            assert len(set(tokens[valid][1:].tolist())) == 1
    # every byte behind a start token is predicted
    assert text.facts.bytes == text.facts.predicted == text.facts.tokens - 4
    again = text_of_files(config(one, two, tokens=60, length=20, rows=2), CODER, 256)
    assert again.facts.hash == text.facts.hash
    other = text_of_files(config(one, two, tokens=60, length=19), CODER, 256)
    assert other.facts.hash != text.facts.hash


def test_without_a_start_token_the_first_byte_is_not_predicted(tmp_path: Path) -> None:
    one = written(tmp_path / "one", "hello")
    facts = text_of_files(config(one, tokens=60, length=20), CODER, None).facts
    assert (facts.tokens, facts.predicted, facts.bytes, facts.start_token) == (5, 4, 4, None)


def test_validation_documents_of_a_dataset(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path)
    text = text_of_dataset(dataset, TextConfig(tokens=64, length=32))
    [batch] = text.batches
    assert batch.tokens[0, 0] == dataset.manifest.document_token
    assert batch.tokens[0].tolist() == dataset.tokens("validation")[0].window(0, 32).tolist()
    assert text.facts.bytes == 31
    bare = text_of_dataset(dataset, TextConfig(tokens=64, length=32, start="never"))
    assert (
        bare.batches[0].tokens[0].tolist() == dataset.tokens("validation")[0].window(1, 32).tolist()
    )
    assert (bare.facts.start_token, bare.facts.bytes) == (None, 31)


def test_a_tokenizer_that_is_not_exact_leaves_bytes_out(tmp_path: Path) -> None:
    """A normalizer makes one character of two: no bytes, and no error."""
    inner = tokenizers.Tokenizer(BPE())
    inner.normalizer = NFC()
    inner.pre_tokenizer = ByteLevel(add_prefix_space=False)
    alphabet = sorted(ByteLevel.alphabet())
    inner.train_from_iterator(["abc"], BpeTrainer(initial_alphabet=alphabet, show_progress=False))
    coder = FileTokenizer.of(inner, "nfc", "test")
    one = written(tmp_path / "one", "cafe\u0301 au lait")
    facts = text_of_files(config(one, tokens=60, length=20), coder, None).facts
    assert facts.bytes is None
    assert facts.tokens <= len("caf\u00e9 au lait".encode())


@pytest.mark.parametrize(
    ("more", "words"),
    [({"tokens": 3}, "tokens = 3 is too little for 2 domains"), ({"tokens": 60}, "'two' holds no")],
)
def test_what_is_refused(more: dict[str, int], words: str, tmp_path: Path) -> None:
    one, two = written(tmp_path / "one", "abcd"), written(tmp_path / "two", "a")
    with pytest.raises(DepthbenchError, match=words):
        text_of_files(config(one, two, **more), CODER, None)
