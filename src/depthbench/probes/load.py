"""A subject from whatever a user names."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import torch

from depthbench.config import Frozen
from depthbench.data.dataset import default_cache, find_dataset
from depthbench.errors import DepthbenchError, unknown
from depthbench.files import try_to_reach, user_path
from depthbench.machine import choose_device
from depthbench.probes.own import OwnSubject, TrialForm
from depthbench.probes.reader import Reader
from depthbench.probes.subject import Subject
from depthbench.probes.text import Text, TextConfig, text_of_dataset, text_of_files
from depthbench.probes.weights import hash_of
from depthbench.train.config import TrialConfig
from depthbench.train.load import load_trial

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}
KINDS = (
    "a trial of ours, a Hugging Face folder or name (owner/model), a .gguf file, or an OLMo-core "
    "checkpoint"
)


class Parts(Frozen):
    """Where a Hugging Face model keeps its parts, by dotted names; None = look in known places."""

    blocks: str | None = None
    """Name of the module list of blocks."""
    norm: str | None = None
    """Name of the final norm."""
    head: str | None = None
    """Name of the head."""

    def refuse(self, source: str) -> None:
        """Raise `DepthbenchError` if a part is named of a model whose parts are known."""
        for name, given in self:
            if given is not None:
                raise DepthbenchError(
                    f"--{name} {given}: {source} is no Hugging Face model or GGUF file, and where "
                    f"its parts are is known. Leave --{name} out"
                )


@dataclass(frozen=True)
class Opened:
    """A subject, and the text that it can read."""

    subject: Subject
    text: Callable[[TextConfig], Text]
    reader: Callable[[], Reader]
    """Raises `DepthbenchError` where the tokenizer is not there any more."""


def load(
    source: str | Path, *, device: str = "cpu", dtype: str = "float32", parts: Parts | None = None
) -> Subject:
    """The model in a folder or file, or of a name on Hugging Face, ready for probes.

    A trial of this package, a Hugging Face folder, a GGUF file or an OLMo-core checkpoint. Raises
    `DepthbenchError` for what is none of these, and for models whose parts are not found.
    """
    return open_model(source, device=device, dtype=dtype, parts=parts).subject


def open_model(
    source: str | Path, *, device: str = "cpu", dtype: str = "float32", parts: Parts | None = None
) -> Opened:
    """As `load`, with the text that fits it."""
    place, folder, named = choose_device(str(device)), folder_of(str(source)), parts or Parts()
    if dtype not in DTYPES:
        raise unknown("dtype", str(dtype), DTYPES)
    kind = DTYPES[dtype]
    if (folder / "checkpoints").is_dir():
        named.refuse(str(source))
        return _trial(folder, place, kind)
    if (folder / "trials").is_dir():
        found = sorted(one.name for one in (folder / "trials").iterdir())
        such = f", such as {folder / 'trials' / found[0]}" if found else ""
        raise DepthbenchError(f"{folder} is a study. Name one of its trials{such}")
    # transformers takes seconds to import
    from depthbench.probes.foreign import open_foreign

    return open_foreign(str(source), place, kind, named)


def hash_of_trial(folder: Path, dtype: str) -> str:
    """What results name the weights of the trial's last checkpoint by, in ``dtype``.

    A process reads them once: a page that is made again and again asks for the same hashes. Files
    that were touched are read anew. Raises `DepthbenchError` where there are no weights.
    """
    try:
        stats = [
            path.stat() for path in (folder / "config.json", *folder.glob("checkpoints/*/**/*"))
        ]
    except OSError:  # it is no trial, or a checkpoint is just replaced by the next
        return _hash(folder, dtype)
    touched = frozenset((one.st_ino, one.st_size, one.st_mtime_ns) for one in stats)
    return _known(folder, dtype, touched)


@cache
def _known(folder: Path, dtype: str, _: frozenset[tuple[int, int, int]]) -> str:
    return _hash(folder, dtype)


def _hash(folder: Path, dtype: str) -> str:
    model, _ = load_trial(folder)
    return hash_of(model.to(DTYPES[dtype]))


def folder_of(source: str) -> Path:
    """The folder or file that ``source`` may be.

    Raises `DepthbenchError` for an empty name, and for one that the system refuses.
    """
    if not source.strip():
        raise DepthbenchError(
            f"model = '{source}' names nothing. Name {KINDS}; the current folder is ."
        )
    folder = user_path(source)
    try:
        try_to_reach(folder)
    except OSError as error:
        shown = source if len(source) <= 200 else f"{source[:200]} …"
        raise DepthbenchError(
            f"{shown} cannot be read: {error.strerror or error}. Name {KINDS}"
        ) from None
    return folder


def _trial(folder: Path, device: str, dtype: torch.dtype) -> Opened:
    model, config = load_trial(folder)
    notes = [] if config.train.document_mask is False else ["documents of a row are kept apart"]
    subject = OwnSubject(model.to(device, dtype), str(folder), notes, TrialForm(config), folder)
    reader = partial(_reader, config, subject.facts.vocab)
    return Opened(subject, partial(_text, config), reader)


def _text(config: TrialConfig, asked: TextConfig) -> Text:
    dataset = find_dataset(config.data_hash, default_cache())
    if not asked.paths:
        return text_of_dataset(dataset, asked)
    coder = dataset.tokenizer()
    start = None if asked.start == "never" else coder.document
    return text_of_files(asked, coder, start)


def _reader(config: TrialConfig, words: int) -> Reader:
    dataset = find_dataset(config.data_hash, default_cache())
    coder = dataset.tokenizer()
    start = lambda policy: None if policy == "never" else coder.document  # noqa: E731
    length = config.train.length
    return Reader(coder, start, None, words, coder.document, coder.vocab, length, dataset)
