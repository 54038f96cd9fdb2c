"""What text a study trains on."""

from typing import Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from depthbench.config import Frozen
from depthbench.errors import unknown

InstalledDomain = Literal["code", "math", "prose"]
DOMAINS: tuple[str, ...] = get_args(InstalledDomain)
BYTE_VALUES = 256
SMALLEST_BPE = BYTE_VALUES + 2
"""256 byte values, the document token and at least one merge."""


class DataConfig(Frozen):
    """Which text, how it is split, and how it becomes tokens.

    Raises `DepthbenchError` (through `parse`) for unknown domains, a trained BPE with fewer than
    258 tokens, and for `domains` beside `paths`.
    """

    prepared: str | None = None
    """Folder that ``depthbench data prepare`` has written; it fixes all other settings."""
    paths: tuple[str, ...] = ()
    """Files, folders or globs (text, .jsonl, .parquet), one domain each; empty = the installed
    corpus."""
    domains: tuple[str, ...] = DOMAINS
    """Domains of the installed corpus; only without ``paths``."""
    tokenizer: str = Field(default="bytes", min_length=1)
    """``bytes``, ``bpe`` (byte-level, trained on the training part), the path of a tokenizers
    ``.json`` or of a folder with a ``tokenizer.json``, or ``hf:NAME`` of Hugging Face."""
    vocab: int = Field(default=2048, ge=SMALLEST_BPE, le=1_000_000)
    """Number of tokens of a trained BPE, the document token included."""
    text_field: str = Field(default="text", min_length=1)
    """Key or column of JSONL and Parquet files."""
    validation_fraction: float = Field(default=0.1, gt=0, le=0.5)
    """Share of the documents that is kept for validation."""
    megabytes: float | None = Field(default=None, gt=0)
    """Cap per domain in 10^6 bytes of text; None = all."""

    @field_validator("domains")
    @classmethod
    def _known(cls, domains: tuple[str, ...]) -> tuple[str, ...]:
        if not domains:
            raise ValueError(f"name at least one domain of {', '.join(DOMAINS)}")
        for domain in domains:
            if domain not in DOMAINS:
                raise ValueError(str(unknown("domain", domain, DOMAINS)))
        if len(set(domains)) < len(domains):
            raise ValueError("a domain is named twice: name each once")
        return domains

    @model_validator(mode="after")
    def _one_corpus(self) -> Self:
        changed = [name for name in self.model_dump(exclude_defaults=True) if name != "prepared"]
        if self.prepared is not None and changed:
            raise ValueError(
                f"prepared = '{self.prepared}' fixes {changed[0]} too: remove one of the two"
            )
        if self.paths and self.domains != DOMAINS:
            raise ValueError(
                f"domains = {list(self.domains)} selects from the installed corpus, but paths "
                "names text of your own: remove one of the two"
            )
        return self


class PrepareConfig(Frozen):
    """What `depthbench data prepare` turns into token shards.

    Raises `DepthbenchError` (through `parse`) for a trained BPE with fewer than 258 tokens.
    """

    paths: tuple[str, ...] = Field(min_length=1)
    """Files, folders or globs (text, .jsonl, .parquet), or ``hf:NAME[:SUBSET[:SPLIT]]`` of
    Hugging Face; one domain each."""
    tokenizer: str = Field(default="bytes", min_length=1)
    """As in `DataConfig`; ``bpe`` is trained on the first 4 MB of each domain."""
    vocab: int = Field(default=2048, ge=SMALLEST_BPE, le=1_000_000)
    """Number of tokens of a trained BPE, the document token included."""
    text_field: str = Field(default="text", min_length=1)
    """Key or column of JSONL, Parquet and Hugging Face rows."""
    validation_fraction: float = Field(default=0.1, gt=0, le=0.5)
    """Share of the documents that is kept for validation, chosen by a hash of their content."""
    megabytes: float | None = Field(default=None, gt=0)
    """Documents of each domain are read in order until they hold 10^6 bytes times this, before
    duplicates are dropped; None = all."""
    shard_tokens: int = Field(default=2**27, ge=1)
    """A shard ends with the document that brings it to so many tokens."""
