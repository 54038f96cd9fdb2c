"""A model in our terms from whatever a user names, with its tokenizer and what is known of it."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from depthbench.data.dataset import default_cache, find_dataset
from depthbench.data.tokenizer import HUB_FILE, read
from depthbench.designs import label_of
from depthbench.errors import DepthbenchError
from depthbench.hub.llama import CONTEXT
from depthbench.hub.llama_in import import_llama
from depthbench.hub.olmo_core import is_olmo_core, read_olmo_core
from depthbench.hub.own_folder import is_own, notes_in, read_own
from depthbench.hub.tokens import hub_tokenizer, words_of
from depthbench.nn.model import Model
from depthbench.probes.foreign import APART
from depthbench.probes.load import folder_of
from depthbench.study.single import RESULT
from depthbench.study.store import Row, Store
from depthbench.train.config import TrialConfig
from depthbench.train.load import load_trial

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Source:
    """A model, its tokenizer, and what its card says."""

    model: Model
    tokenizer: "PreTrainedTokenizerBase | None"
    origin: str
    """What it was, in words."""
    context: int = CONTEXT
    notes: tuple[str, ...] = ()
    """What every figure of it must say."""
    missing: str | None = None
    """Why there is no tokenizer, where that is a surprise."""
    facts: dict[str, str] = field(default_factory=dict)
    """Of its training, where they are known."""

    @property
    def words(self) -> int | None:
        """Tokens of the tokenizer, where the head has more rows."""
        if self.tokenizer is None:
            return None
        words = words_of(self.tokenizer)
        return words if words < self.model.config.shape.vocab else None

    @property
    def unused(self) -> range:
        """Rows of the head that only pad it."""
        vocab = self.model.config.shape.vocab
        return range(vocab if self.words is None else self.words, vocab)


def open_source(given: str, dtype: torch.dtype = torch.float32) -> Source:
    """A trial, our own folder for transformers, an OLMo-core checkpoint, a LLaMA or a GGUF file.

    Raises `DepthbenchError` for what is none of these, and where tokenizer and model do not fit.
    """
    folder = folder_of(given)
    if (folder / "checkpoints").is_dir():
        found = _trial(folder, dtype)
    elif (folder / "trials").is_dir():
        raise DepthbenchError(f"{folder} is a study. Name one of its trials, in {folder}/trials")
    elif is_olmo_core(folder):
        model = read_olmo_core(folder).to(dtype)
        coder = read(folder / HUB_FILE) if (folder / HUB_FILE).is_file() else None
        tokenizer = None if coder is None else hub_tokenizer(coder)
        found = Source(model, tokenizer, "an OLMo-core checkpoint")
    elif is_own(folder):
        model, tokenizer = read_own(folder, dtype)
        notes = notes_in(folder)
        found = Source(model, tokenizer, "a depthbench model", notes=notes)
    else:
        one = import_llama(given, dtype)
        origin = f"a {one.family} model, {Path(given).name}"
        found = Source(one.model, one.tokenizer, origin, one.context, one.notes)
    return _checked(found, given)


def _checked(found: Source, given: str) -> Source:
    """With a note where tokens that were added to a tokenizer have no row in the embedding."""
    vocab, tokenizer = found.model.config.shape.vocab, found.tokenizer
    if tokenizer is None or words_of(tokenizer) <= vocab:
        return found
    own = words_of(tokenizer, added=False)
    if own > vocab:
        raise DepthbenchError(
            f"{given}: its tokenizer has {own} tokens, but its embedding {vocab} rows: they do "
            "not belong together"
        )
    note = f"tokens {vocab} to {words_of(tokenizer) - 1} were added to its tokenizer alone"
    return replace(found, notes=tuple(dict.fromkeys((*found.notes, note))))


def _trial(folder: Path, dtype: torch.dtype) -> Source:
    model, config = load_trial(folder)
    notes: list[str] = []
    tokenizer, missing = None, None
    try:
        tokenizer = hub_tokenizer(find_dataset(config.data_hash, default_cache()).tokenizer())
    except DepthbenchError as error:
        missing = f"no tokenizer: {error}"
    if model.documents_apart:
        notes.append(APART)
    row = row_of(folder, config)
    origin = f"a trial of depthbench, {config.id}"
    facts = _facts(config, row)
    if row is not None:
        notes += row.notes
    context = config.train.length
    return Source(model.to(dtype), tokenizer, origin, context, tuple(notes), missing, facts)


def row_of(folder: Path, config: TrialConfig) -> Row | None:
    """The result of the trial in ``folder``: its own file, or the study's."""
    if (folder / RESULT).is_file():
        return Row.model_validate_json((folder / RESULT).read_bytes())
    if folder.resolve().parent.name != "trials":
        return None
    rows = Store(folder.resolve().parents[1]).rows()
    return next((row for row in rows if row.id == config.id), None)


def _facts(config: TrialConfig, row: Row | None) -> dict[str, str]:
    found = {
        "design": label_of(config.model.design),
        "trial": config.id,
        "seed": str(config.seed),
        "learning rate": f"{config.learning_rate:g}",
        "length of sequences": str(config.train.length),
        "data (hash)": config.data_hash,
    }
    if row is None:
        return found
    found |= {
        "study": row.study,
        "status": row.status,
        "training tokens": f"{row.tokens:,}",
        "optimizer steps": f"{row.steps:,}",
    }
    losses = {f"validation, {name}": one for name, one in row.domains.items()}
    if row.loss is not None:
        losses["validation, all"] = row.loss
    for name, loss in losses.items():
        found[name] = (
            f"{loss.nats_per_token:.4f} nats per token, {loss.bits_per_byte:.4f} bits per byte"
        )
    return found
