import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from depthbench.data.sentences import ends_sentence
from depthbench.data.sources import Document
from depthbench.data.tokenizer import (
    ByteTokenizer,
    FileTokenizer,
    identity,
    read,
    train_bpe,
)
from depthbench.errors import DepthbenchError


@pytest.fixture
def bpe(text: Callable[[int, int], str]) -> FileTokenizer:
    return train_bpe([[Document("a", text(0, 4000).encode())]], 300)


def test_bytes_are_exact_for_any_file() -> None:
    data = bytes(range(256)) + b"\xff\xc3"
    coded = ByteTokenizer().encode(Document("a", data))
    assert coded.ids.tolist() == [*range(256), 255, 195]
    assert coded.sizes.tolist() == [1] * 258
    assert (ByteTokenizer().vocab, ByteTokenizer().document) == (257, 256)


def test_bpe_sizes_add_up_and_decode_to_the_text(bpe: FileTokenizer) -> None:
    content = "depth naïve\n\n  ∑ 𝄞 tab\t <|document|> token"
    coded = bpe.encode(Document("a", content.encode()))
    assert bpe.vocab == 300
    assert coded.sizes.sum() == len(content.encode())
    assert bpe.inner.decode(coded.ids.tolist(), skip_special_tokens=False) == content
    # text that looks like the document token must not become one
    assert bpe.document not in coded.ids
    assert coded.ids.max() < bpe.vocab
    pieces = [str(bpe.inner.id_to_token(i)) for i in coded.ids.tolist()]
    assert coded.sizes.tolist() == [len(piece) for piece in pieces]
    assert coded.sizes.max() > 1


def test_training_is_the_same_every_time(
    bpe: FileTokenizer, text: Callable[[int, int], str]
) -> None:
    assert train_bpe([[Document("a", text(0, 4000).encode())]], 300).json == bpe.json


def test_bpe_refuses_bytes_that_are_no_utf8(bpe: FileTokenizer) -> None:
    with pytest.raises(DepthbenchError, match=r"a\.txt: byte 2 is no valid UTF-8.*'bytes'"):
        bpe.encode(Document("a.txt", b"ab\xff"))


def test_too_little_text_for_the_vocabulary() -> None:
    with pytest.raises(DepthbenchError, match=r"vocab = 500: the training text gives only 25[89]"):
        train_bpe([[Document("a", b"ab ab")]], 500)


def test_a_byte_level_file_with_truncation_and_padding(bpe: FileTokenizer, tmp_path: Path) -> None:
    bpe.inner.enable_truncation(4)
    bpe.inner.enable_padding(length=64)
    bpe.inner.save(str(tmp_path / "t.json"))
    again = read(tmp_path / "t.json")
    coded = again.encode(Document("a", b"depth width stream token branch"))
    assert coded.sizes.sum() == 31
    assert again.document == bpe.document
    assert again.vocab == 300


def test_a_file_without_document_token_gets_a_new_id(tmp_path: Path) -> None:
    vocabulary = {char: i for i, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    inner = tokenizers.Tokenizer(models.BPE(vocabulary, []))
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    inner.save(str(tmp_path / "t.json"))
    found = read(tmp_path / "t.json")
    assert (found.document, found.vocab) == (256, 257)
    assert found.encode(Document("a", "é1".encode())).sizes.tolist() == [1, 1, 1]


def sentencepiece_like(tmp_path: Path, lower: bool = False) -> Path:
    """Space as ▁, a prepended ▁, and single bytes for what the vocabulary lacks."""
    pieces = ["<unk>", "▁", "a", "b", "é", "▁a", "ab", "▁ab", "<s>"]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    vocabulary |= {f"<0x{value:02X}>": 9 + value for value in range(256)}
    merges = [("a", "b"), ("▁", "ab"), ("▁", "a")]
    inner = tokenizers.Tokenizer(
        models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    steps: list[normalizers.Normalizer] = [normalizers.Lowercase()] if lower else []
    steps += [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    inner.normalizer = normalizers.Sequence(steps)
    inner.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    inner.save(str(tmp_path / "sp.json"))
    return tmp_path / "sp.json"


def test_other_kinds_by_offsets(tmp_path: Path) -> None:
    found = read(sentencepiece_like(tmp_path))
    assert found.table is None
    assert found.document == 8
    content = "ab aé ∑ ab"
    coded = found.encode(Document("a", content.encode()))
    assert [found.inner.id_to_token(i) for i in coded.ids.tolist()] == [
        *("▁ab", "▁a", "é", "▁", "<0xE2>", "<0x88>", "<0x91>", "▁ab")
    ]
    # the first ▁ stands for no byte of the text
    assert coded.sizes.tolist() == [2, 2, 2, 1, 1, 1, 1, 3]
    assert found.encode(Document("a", b" ab")).sizes.tolist() == [0, 3]
    assert found.encode(Document("a", "∑".encode())).sizes.tolist() == [0, 1, 1, 1]


def test_a_tokenizer_that_drops_spaces_is_refused(tmp_path: Path) -> None:
    inner = tokenizers.Tokenizer(models.WordLevel({"ab": 0, "<unk>": 1}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.save(str(tmp_path / "t.json"))
    found = read(tmp_path / "t.json")
    assert found.encode(Document("a", b"ab")).sizes.tolist() == [2]
    with pytest.raises(DepthbenchError, match=r"does not keep a byte for byte .character 2"):
        found.encode(Document("a", b"ab ab"))
    with pytest.raises(DepthbenchError, match=r"decoding its tokens gives another text"):
        found.encode(Document("a", b"abc"))


def test_a_lossy_file_is_refused(tmp_path: Path, bpe: FileTokenizer) -> None:
    lossy = read(sentencepiece_like(tmp_path, lower=True))
    with pytest.raises(
        DepthbenchError, match=r"does not keep a byte for byte .decoding its tokens"
    ):
        lossy.encode(Document("a", b"Ab"))
    bpe.inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    bpe.inner.save(str(tmp_path / "t.json"))
    with pytest.raises(DepthbenchError, match=r"does not keep a byte for byte .5 bytes become 6"):
        read(tmp_path / "t.json").encode(Document("a", b"depth"))


def test_missing_and_broken_files(tmp_path: Path) -> None:
    with pytest.raises(DepthbenchError, match=r"'byte' cannot be read: No such.*mean 'bytes'"):
        identity("byte")
    broken = tmp_path / "t.json"
    for content in (b"{", b'{"model": 1}', b"\xff", b"[]"):
        broken.write_bytes(content)
        with pytest.raises(
            DepthbenchError, match=r"t\.json' is no valid tokenizers file"
        ) as caught:
            read(broken)
        assert "\n" not in str(caught.value)
    tokenizers.Tokenizer(models.BPE()).save(str(broken))
    with pytest.raises(DepthbenchError, match="has no tokens"):
        read(broken)


def test_identity_of_a_file_is_its_content(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text(json.dumps({"a": 1}))
    before = identity(str(file))
    file.write_text(json.dumps({"a": 2}))
    assert identity(str(file)) != before
    assert (identity("bytes"), identity("bpe")) == ("bytes", "bpe")


def test_sizes_are_integers(bpe: FileTokenizer) -> None:
    assert bpe.table is not None
    assert bpe.table.dtype == np.int64
    assert bpe.table[bpe.document] == len("<|document|>")


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        *((text, True) for text in (".", "!", "?", "end.", " ?", "...", "?!", "1.", "。", "了！")),
        *(
            (text, True)
            for text in ('."', ".)", "!”", ".’ ", ". \n", "。」", "？』", '."]\n', "。）")
        ),
        *(
            (text, False)
            for text in ("", " ", '"', ")", ",", ";", ":", "…", "、", "a", ".5", ". a")
        ),
        *((text, False) for text in ('".a"', "<|document|>", "，", ".-")),
    ],
)
def test_a_token_ends_a_sentence_if_its_own_text_does(text: str, ends: bool) -> None:
    assert ends_sentence(text) == ends


def test_sentence_ends_of_bytes() -> None:
    assert bytes(ByteTokenizer().sentence_ends) == b"!.?"


def texts_of(found: FileTokenizer) -> set[str]:
    """Tokens that end sentences, as the tokenizer decodes them."""
    ids = found.sentence_ends
    assert list(ids) == sorted(set(ids))
    assert found.document not in ids
    return {found.inner.decode([number], skip_special_tokens=False) for number in ids}


def test_sentence_ends_of_a_bpe_by_what_its_tokens_stand_for() -> None:
    """Whole characters of several bytes too; parts of one are none."""
    words = 'He said "depth." (width?) stream.\nYes! 深い。「幅」！」 no, 1.5; '
    found = train_bpe([[Document("a", (words * 50).encode())]], 290)
    assert texts_of(found) >= {".", "!", "?", '."', "！"}
    assert all(ends_sentence(text) for text in texts_of(found))
    pieces = {found.inner.decode([i]) for i in range(found.vocab)}
    assert {text for text in pieces if ends_sentence(text)} == texts_of(found)


def test_sentence_ends_of_a_byte_level_file_without_decoder(tmp_path: Path) -> None:
    characters = sorted(pre_tokenizers.ByteLevel.alphabet())
    stop = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str("。")[0][0]
    pairs = [(stop[0], stop[1]), (stop[:2], stop[2])]
    vocabulary = {char: i for i, char in enumerate([*characters, stop[:2], stop])}
    inner = tokenizers.Tokenizer(models.BPE(vocabulary, pairs))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.add_tokens(["so."])
    inner.save(str(tmp_path / "t.json"))
    found = read(tmp_path / "t.json")
    names = {found.inner.id_to_token(number) for number in found.sentence_ends}
    assert names == {".", "!", "?", stop, "so."}


def test_sentence_ends_of_other_kinds(tmp_path: Path) -> None:
    found = read(sentencepiece_like(tmp_path))
    names = {found.inner.id_to_token(number) for number in found.sentence_ends}
    assert names == {"<0x21>", "<0x2E>", "<0x3F>"}


def test_tokens_alone_are_those_with_sizes(tmp_path: Path, bpe: FileTokenizer) -> None:
    documents = [Document("a", "ab aé ∑ ab".encode()), Document("b", b"a"), Document("c", b" ab")]
    for coder in (bpe, read(sentencepiece_like(tmp_path)), ByteTokenizer()):
        expected = [coder.encode(document).ids.tolist() for document in documents]
        assert [ids.tolist() for ids in coder.ids_of(documents)] == expected
        assert [one.ids.tolist() for one in coder.encode_many(documents)] == expected
        assert coder.ids_of([]) == coder.encode_many([]) == []
