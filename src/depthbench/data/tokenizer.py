"""Tokenizers whose tokens have an exact size in bytes."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import AddedToken, decoders
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from depthbench.data.config import BYTE_VALUES, DataConfig
from depthbench.data.sentences import ends_sentence
from depthbench.data.sources import Document
from depthbench.errors import DepthbenchError, nearest
from depthbench.files import user_path

DOCUMENT = "<|document|>"
HUB = "hf:"
"""In front of a name on Hugging Face."""
HUB_FILE = "tokenizer.json"
KNOWN_DOCUMENT_TOKENS = (DOCUMENT, "<|begin_of_text|>", "<|endoftext|>", "<bos>", "<s>", "</s>")
TRAINING_BYTES = 4_000_000
"""Text per domain that a BPE is trained on: more changes few merges and takes long."""


class NotUnicode(DepthbenchError):
    """Text that only the byte tokenizer takes; ``fact`` says which, without a remedy."""

    @property
    def fact(self) -> str:
        return str(self.args[0])

    def __str__(self) -> str:
        return f"{self.fact}. Use tokenizer = 'bytes' or re-encode the text"


@dataclass(frozen=True)
class Encoded:
    """Token ids of one document, without its document token, and the bytes each stands for."""

    ids: NDArray[np.int64]
    sizes: NDArray[np.int64]


class Tokenizer(Protocol):
    """What the shards are written with."""

    @property
    def vocab(self) -> int:
        """One more than the largest id."""
        ...

    @property
    def document(self) -> int:
        """Id of the token that starts every document."""
        ...

    @property
    def sentence_ends(self) -> tuple[int, ...]:
        """Ids of the tokens that end a sentence; see `ends_sentence`."""
        ...

    @property
    def description(self) -> str:
        """Kind and size in words."""
        ...

    @property
    def json(self) -> str | None:
        """The tokenizers file, if there is one."""
        ...

    def encode(self, document: Document) -> Encoded:
        """Tokens of ``document``; their sizes add up to its bytes.

        Raises `DepthbenchError` where that is not possible.
        """
        ...

    def encode_many(self, documents: Sequence[Document]) -> list[Encoded]:
        """`encode` of each."""
        ...

    def ids_of(self, documents: Sequence[Document]) -> list[NDArray[np.int64]]:
        """The tokens of each alone, where their sizes are not needed: faster for some kinds."""
        ...

    def inexact_ids(self, document: Document) -> NDArray[np.int64]:
        """The tokens, whether or not they keep the document byte for byte."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ``ids``; bytes that are no valid UTF-8 become U+FFFD."""
        ...


@dataclass(frozen=True)
class ByteTokenizer:
    """One token a byte, exact for every file; 256 starts a document.

    The bytes of ``.``, ``!`` and ``?`` end a sentence; a last byte of ``。`` ends other characters
    too, so it does not.
    """

    vocab: int = BYTE_VALUES + 1
    document: int = BYTE_VALUES
    sentence_ends: tuple[int, ...] = tuple(sorted(b".!?"))
    description: str = "bytes (256 values and the document token)"
    json: str | None = None

    def encode(self, document: Document) -> Encoded:
        ids = np.frombuffer(document.data, np.uint8).astype(np.int64)
        return Encoded(ids, np.ones_like(ids))

    def encode_many(self, documents: Sequence[Document]) -> list[Encoded]:
        return [self.encode(document) for document in documents]

    def ids_of(self, documents: Sequence[Document]) -> list[NDArray[np.int64]]:
        return [self.encode(document).ids for document in documents]

    def inexact_ids(self, document: Document) -> NDArray[np.int64]:
        return self.encode(document).ids

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(i for i in ids if i != self.document).decode(errors="replace")


@dataclass(frozen=True)
class FileTokenizer:
    """A tokenizer of the `tokenizers` library: byte-level by its alphabet, others by offsets."""

    inner: tokenizers.Tokenizer
    name: str
    description: str
    json: str
    vocab: int
    document: int
    table: NDArray[np.int64] | None
    """Bytes of each token of a byte-level vocabulary; None for other kinds."""
    sentence_ends: tuple[int, ...]

    @classmethod
    def of(cls, inner: tokenizers.Tokenizer, name: str, description: str) -> Self:
        """``inner`` with its document token: a known one, or a new id after the last."""
        vocabulary = inner.get_vocab(with_added_tokens=True)
        after = max(vocabulary.values()) + 1
        known = [vocabulary[token] for token in KNOWN_DOCUMENT_TOKENS if token in vocabulary]
        document = known[0] if known else after
        vocab = max(after, document + 1)
        text = inner.to_str()
        byte_level = _is_byte_level(json.loads(text)["pre_tokenizer"])
        table = _sizes(inner, vocab) if byte_level else None
        ends = _sentence_ends(inner, byte_level, document)
        return cls(inner, name, description, text, vocab, document, table, ends)

    @property
    def tokens(self) -> int:
        """One more than the largest id in its file: `vocab`, unless `document` is a new id."""
        return 1 + max(self.inner.get_vocab(with_added_tokens=True).values())

    def encode(self, document: Document) -> Encoded:
        return self.encode_many([document])[0]

    def encode_many(self, documents: Sequence[Document]) -> list[Encoded]:
        texts = [self._text_of(document) for document in documents]
        if self.table is None:
            return [self._by_offsets(*pair) for pair in zip(documents, texts, strict=True)]
        coded = self.inner.encode_batch_fast(texts, add_special_tokens=False)
        found: list[Encoded] = []
        for document, one in zip(documents, coded, strict=True):
            ids = np.array(one.ids, np.int64)
            found.append(self._checked(document, Encoded(ids, self.table[ids])))
        return found

    def ids_of(self, documents: Sequence[Document]) -> list[NDArray[np.int64]]:
        if self.table is not None:
            return [encoded.ids for encoded in self.encode_many(documents)]
        texts = [self._text_of(document) for document in documents]
        coded = self.inner.encode_batch_fast(texts, add_special_tokens=False)
        return [np.array(one.ids, np.int64) for one in coded]

    def inexact_ids(self, document: Document) -> NDArray[np.int64]:
        coded = self.inner.encode(self._text_of(document), add_special_tokens=False)
        return np.array(coded.ids, np.int64)

    def _text_of(self, document: Document) -> str:
        try:
            return document.data.decode()
        except UnicodeDecodeError as error:
            raise NotUnicode(
                f"{document.name}: byte {error.start} is no valid UTF-8, which tokenizer "
                f"'{self.name}' needs"
            ) from None

    def decode(self, ids: Sequence[int]) -> str:
        return self.inner.decode([i for i in ids if i != self.document], skip_special_tokens=False)

    def _by_offsets(self, document: Document, text: str) -> Encoded:
        coded = self.inner.encode(text, add_special_tokens=False)
        ids = np.array(coded.ids, np.int64)
        if self.inner.decode(coded.ids, skip_special_tokens=False).lstrip() != text.lstrip():
            raise self._inexact(document, "decoding its tokens gives another text")
        sizes = np.ones(len(ids), np.int64)
        followers = [start for start, _ in coded.offsets[1:]] + [len(text)]
        for i, (start, end) in enumerate(coded.offsets):
            if _is_byte_token(coded.tokens[i]):
                continue
            # a space that the tokenizer put in front shares its start with the next token
            if followers[i] not in {start, end}:
                raise self._inexact(document, f"character {end} belongs to no one token")
            sizes[i] = len(text[start : followers[i]].encode())
        return self._checked(document, Encoded(ids, sizes))

    def _checked(self, document: Document, encoded: Encoded) -> Encoded:
        total = int(encoded.sizes.sum())
        if total != len(document.data):
            raise self._inexact(document, f"{len(document.data)} bytes become {total}")
        return encoded

    def _inexact(self, document: Document, reason: str) -> DepthbenchError:
        return DepthbenchError(
            f"tokenizer '{self.name}' does not keep {document.name} byte for byte ({reason}), so "
            "bits per byte would be wrong. Use a byte-level tokenizer without normalizer, 'bpe' "
            "or 'bytes'"
        )


def make(config: DataConfig, training: Sequence[Sequence[Document]]) -> Tokenizer:
    """The tokenizer that ``config`` names; a BPE is trained on ``training``, a list a domain."""
    if config.tokenizer == "bytes":
        return ByteTokenizer()
    if config.tokenizer == "bpe":
        return train_bpe(training, config.vocab)
    return read(file_of(config.tokenizer))


def train_bpe(training: Sequence[Sequence[Document]], vocab: int) -> FileTokenizer:
    """A byte-level BPE of ``vocab`` tokens, trained on the first 4 MB of each domain.

    Raises `DepthbenchError` if the text is too small for that many merges.
    """
    inner = tokenizers.Tokenizer(BPE())
    inner.pre_tokenizer = ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=vocab,
        special_tokens=[AddedToken(DOCUMENT, special=True)],
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    inner.train_from_iterator(_training_text(training), trainer)
    inner.encode_special_tokens = True
    trained = inner.get_vocab_size()
    if trained != vocab:
        raise DepthbenchError(
            f"vocab = {vocab}: the training text gives only {trained} tokens. "
            f"Set vocab to {trained} or less, or give more text"
        )
    return FileTokenizer.of(inner, "bpe", f"byte-level BPE of {vocab} tokens, trained on this text")


def _training_text(training: Sequence[Sequence[Document]]) -> Iterable[str]:
    for documents in training:
        total = 0
        for document in documents:
            if total > TRAINING_BYTES:
                break
            total += len(document.data)
            # a document that is no UTF-8 is refused when it is encoded
            yield document.data.decode(errors="replace")


def identity(name: str) -> str:
    """What a cache key needs to know of a tokenizer: its name, or the hash of its file."""
    if name in {"bytes", "bpe"}:
        return name
    return hashlib.sha256(_file_bytes(file_of(name))).hexdigest()


def file_of(name: str) -> Path:
    """The tokenizers ``.json`` that ``name`` means: itself, in a folder, or on Hugging Face.

    Only that file is read: no code and no other settings. Raises `DepthbenchError` if it is not
    there.
    """
    if not name.startswith(HUB):
        path = user_path(name)
        if not path.is_dir():
            return path
        if not (path / HUB_FILE).is_file():
            raise DepthbenchError(
                f"tokenizer = '{name}' is a folder without {HUB_FILE}. Name the .json itself, or "
                "save the tokenizer there with save_pretrained"
            )
        return path / HUB_FILE
    # it opens connections, and few use it
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    huggingface_hub.logging.set_verbosity_error()
    try:
        return Path(huggingface_hub.hf_hub_download(name.removeprefix(HUB), HUB_FILE))
    except (OSError, HfHubHTTPError, HFValidationError) as error:
        reason = str(error).splitlines()[0].split(". ")[0]
        raise DepthbenchError(
            f"tokenizer = '{name}': {HUB_FILE} cannot be fetched ({reason}). Check the name and "
            "the connection, or name a folder or a tokenizers .json"
        ) from None


def _file_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    # a NUL in the path is a ValueError
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise DepthbenchError(
            f"tokenizer = '{path}' cannot be read: {reason}"
            f"{nearest(str(path), ('bytes', 'bpe')) or '.'} "
            "Allowed: 'bytes', 'bpe', the path of a tokenizers .json or of a folder with one, or "
            "hf:NAME"
        ) from None


def read(path: Path) -> FileTokenizer:
    """A tokenizers ``.json``, with truncation and padding off and special tokens as plain text.

    Raises `DepthbenchError` if it is missing or broken.
    """
    data = _file_bytes(path)
    try:
        inner = tokenizers.Tokenizer.from_str(data.decode())
    # the library raises plain Exception for whatever is wrong in the file
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DepthbenchError(
            f"tokenizer = '{path}' is no valid tokenizers file ({reason}). "
            "Save one with Tokenizer.save, or use 'bytes' or 'bpe'"
        ) from None
    inner.no_truncation()
    inner.no_padding()
    inner.encode_special_tokens = True
    if not inner.get_vocab_size():
        raise DepthbenchError(f"tokenizer = '{path}' has no tokens: train it first")
    return FileTokenizer.of(
        inner, str(path), f"{path.name}: {inner.get_vocab_size()} tokens, read from a file"
    )


def _is_byte_token(token: str) -> bool:
    """Whether it is one raw byte of a vocabulary with byte fallback, such as ``<0xE2>``."""
    return len(token) == 6 and token.startswith("<0x") and token.endswith(">")


def _is_byte_level(step: dict[str, Any] | None) -> bool:
    if step is None:
        return False
    if step["type"] == "Sequence":
        return any(_is_byte_level(part) for part in step["pretokenizers"])
    return step["type"] == "ByteLevel"


def _sentence_ends(inner: tokenizers.Tokenizer, byte_level: bool, document: int) -> tuple[int, ...]:
    """Tokens of the vocabulary, but the document token, whose own text ends a sentence."""
    vocabulary = inner.get_vocab(with_added_tokens=True)
    added = {token.content for token in inner.get_added_tokens_decoder().values()}
    names = {number: token for token, number in vocabulary.items() if number != document}
    decoder = decoders.ByteLevel()
    if byte_level:
        texts = [name if name in added else decoder.decode([name]) for name in names.values()]
    else:
        texts = inner.decode_batch([[number] for number in names], skip_special_tokens=False)
    found = zip(names, texts, strict=True)
    return tuple(sorted(number for number, text in found if ends_sentence(text)))


def _sizes(inner: tokenizers.Tokenizer, vocab: int) -> NDArray[np.int64]:
    added = {i: token.content for i, token in inner.get_added_tokens_decoder().items()}
    sizes = np.zeros(vocab, np.int64)
    for token, number in inner.get_vocab(with_added_tokens=True).items():
        # one character of the byte-level alphabet is one byte; added tokens are plain text
        sizes[number] = len(added[number].encode()) if number in added else len(token)
    return sizes
