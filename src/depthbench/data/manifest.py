"""What a prepared dataset is: ``manifest.json``, written last."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from depthbench.config import Frozen, digest_of
from depthbench.data.selection import Split
from depthbench.errors import DepthbenchError
from depthbench.marks import Marks

FORMAT: Literal[3] = 3
"""1 named no sentence-ending tokens; 2 had one shard a side and no document lengths."""
FILE = "manifest.json"
Side = Literal["train", "validation"]


class Shard(Frozen):
    """A file of little-endian numbers."""

    file: str
    dtype: Literal["<u2", "<u4"]
    size: int
    """Bytes of the file."""
    sha256: str


class DomainFacts(Frozen):
    """Counts of one domain. Tokens include document tokens; bytes are bytes of text."""

    name: str
    split: Split
    documents: int
    """After duplicates were dropped."""
    duplicates: int
    """Documents that were dropped because an earlier one has the same content."""
    train_documents: int
    validation_documents: int
    train_tokens: int
    validation_tokens: int
    train_bytes: int
    validation_bytes: int
    unigram_nats_per_token: float
    """Entropy of the training tokens under their own unigram distribution."""
    unigram_bits_per_byte: float
    train: tuple[Shard, ...] = Field(min_length=1)
    """Tokens; a document never goes on in the next shard."""
    train_lengths: tuple[Shard, ...]
    """Tokens of each document with its document token, shard by shard: where documents begin."""
    validation: tuple[Shard, ...] = Field(min_length=1)
    validation_lengths: tuple[Shard, ...]
    validation_sizes: tuple[Shard, ...]
    """Bytes of each validation token; 0 for the document token."""
    notes: tuple[str, ...] = ()

    def shards(self) -> tuple[Shard, ...]:
        """All files of the domain."""
        lengths = self.train_lengths + self.validation_lengths
        return self.train + self.validation + lengths + self.validation_sizes


class Episodes(Frozen):
    """Documents of one length, each of which asks a question and answers it."""

    tokens: int
    """Of each document, with its document token."""
    mark: int
    """The token that ends the question: only those behind it are targets."""
    task: dict[str, Any]
    """What made them."""


class Manifest(Frozen):
    """Facts of a dataset; `hash` names it in results."""

    format: Literal[3] = FORMAT
    hash: str
    """16 hexadecimal digits of config (without paths), tokenizer and token bytes."""
    config: dict[str, Any]
    tokenizer: str
    """Kind and size in words."""
    tokenizer_hash: str | None
    """SHA-256 of the tokenizers file; None for bytes."""
    vocab: int
    ln_vocab: float
    """Loss of a uniform guess in nats per token."""
    document_token: int
    document_policy: str
    sentence_ends: tuple[int, ...]
    """Tokens that end a sentence."""
    fingerprint: str
    """Digest of what was read: versions; or path, size and time of change of every file."""
    origin: dict[str, str]
    """Versions behind the installed corpus, or what each domain of your own was read from."""
    domains: tuple[DomainFacts, ...] = Field(min_length=1)
    episodes: Episodes | None = None
    """None for text, which sequences cut anywhere."""

    @property
    def marks(self) -> Marks:
        """What a design that reads them is told of the tokens."""
        return Marks(document=self.document_token, sentence_ends=self.sentence_ends)

    @classmethod
    def load(cls, folder: Path) -> "Manifest":
        """The manifest of ``folder``.

        Raises `DepthbenchError` if it is missing, broken or of another format.
        """
        path = folder / FILE
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            what = "holds no prepared data" if folder.is_dir() else "is no folder"
            raise DepthbenchError(
                f"{folder} {what}. Prepare the data again, or name a folder that "
                "depthbench data prepare --out FOLDER wrote"
            ) from None
        except OSError as error:
            raise DepthbenchError(
                f"{path} cannot be read: {error.strerror or error}. Prepare the data again"
            ) from None
        except ValueError:
            raise DepthbenchError(f"{path} is no valid JSON. Prepare the data again") from None
        found = data.get("format") if isinstance(data, dict) else None
        if found != FORMAT:
            raise DepthbenchError(
                f"{path} has format {found}, but this version reads {FORMAT}. "
                "Prepare the data again"
            )
        return cls.parse(data, str(path))


def data_hash(
    settings: dict[str, Any], tokenizer_hash: str | None, domains: Sequence[DomainFacts]
) -> str:
    """What names a dataset in results: the same text gives the same hash in another folder."""
    places = {"paths", "tokenizer", "prepared"}
    kept = {name: value for name, value in settings.items() if name not in places}
    shards = [
        [
            domain.name,
            *(s.sha256 for s in (*domain.train, *domain.validation, *domain.validation_sizes)),
        ]
        for domain in domains
    ]
    identity = [kept, tokenizer_hash, shards]
    return digest_of(identity) + digest_of([identity, "second half"])[:4]


def document_policy(token: int) -> str:
    """How document tokens are used, in words."""
    return (
        f"every document starts with one document token (id {token}) and none is put at its end; "
        "sequences start anywhere in the token stream, so a window holds a document token only "
        "where a document starts; as a target it counts as one token of 0 bytes"
    )


class Prepared(Frozen):
    """What ``data prepare --json`` prints."""

    schema_version: Literal[1] = 1
    folder: str
    seconds: float
    resumed_tokens: int
    """Of an earlier run that was broken off."""
    hash: str
    documents: int
    duplicates: int
    tokens: int
    """For training and validation."""
    bytes: int
    vocab: int
    ln_vocab: float
    domains: tuple[DomainFacts, ...]
