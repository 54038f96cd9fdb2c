"""Models that are not of this package: which kind a name or folder is, and who reads it."""

from functools import partial
from pathlib import Path
from typing import Any

import torch

from depthbench.data.tokenizer import HUB, HUB_FILE, read
from depthbench.errors import DepthbenchError
from depthbench.files import user_path
from depthbench.hub.olmo_core import is_olmo_core, read_olmo_core
from depthbench.hub.own_folder import is_own, notes_in, read_own, words_in
from depthbench.probes.load import KINDS, Opened, Parts
from depthbench.probes.own import HubForm, OlmoForm, OwnSubject
from depthbench.probes.pretrained import NAME, Place, model_type_of, of_hub, open_pretrained
from depthbench.probes.pretrained_text import check_words, coder_of, start_token, text_for
from depthbench.probes.reader import Reader
from depthbench.probes.text import Text, TextConfig, text_of_files

APART = "documents of a row are kept apart"


def open_foreign(source: str, device: str, dtype: torch.dtype, parts: Parts) -> Opened:
    """A Hugging Face model, ours in such a folder included, a GGUF file or an OLMo-core checkpoint.

    Raises `DepthbenchError` for what is none of these.
    """
    folder = user_path(source)
    if is_olmo_core(folder):
        parts.refuse(source)
        model = read_olmo_core(folder).to(device, dtype)
        subject = OwnSubject(model, source, form=OlmoForm(folder))
        reads = (folder, subject.facts.vocab)
        return Opened(subject, partial(olmo_text, *reads), partial(_olmo_reader, *reads))
    place = place_of(source)
    if place.file is None and is_own(place.folder):
        parts.refuse(source)
        model, tokenizer = read_own(place.folder, dtype)
        notes = list(notes_in(place.folder))
        if model.documents_apart and APART not in notes:
            notes.append(APART)
        subject = OwnSubject(model.to(device), source, notes, HubForm(place.folder))
        own = (tokenizer, source, subject.facts.vocab)
        reads = partial(_own_reader, *own, known=words_in(place.folder))
        return Opened(subject, partial(_own_text, *own), reads)
    return open_pretrained(place, device, dtype, parts)


def _own_text(tokenizer: Any, source: str, words: int, asked: TextConfig) -> Text:
    return text_for(asked, _there(tokenizer, source), source, None, words)


def _own_reader(tokenizer: Any, source: str, words: int, known: int | None) -> Reader:
    coder = coder_of(_there(tokenizer, source), source)
    start = partial(start_token, tokenizer, source=source)
    # a document token that its data gave it need not be in the tokenizer's own file
    known = max(coder.tokens, known or words)
    return Reader(coder, start, None, words, known=known)


def _there(tokenizer: Any, source: str) -> Any:
    if tokenizer is None:
        raise DepthbenchError(
            f"{source} holds no tokenizer. Save the {HUB_FILE} that it was trained with there"
        )
    return tokenizer


def olmo_text(folder: Path, words: int, asked: TextConfig) -> Text:
    """Text under the ``tokenizer.json`` beside an OLMo-core checkpoint, which has none itself."""
    reader = _olmo_reader(folder, words)
    text = text_of_files(asked, reader.coder, reader.start(asked.start))
    check_words(text, words, str(folder))
    return text


def _olmo_reader(folder: Path, words: int) -> Reader:
    if not (folder / HUB_FILE).is_file():
        raise DepthbenchError(
            f"{folder} has no {HUB_FILE}, and OLMo-core checkpoints hold no tokenizer. Put the one "
            "that the model was trained with there"
        )
    coder = read(folder / HUB_FILE)
    start = lambda policy: coder.document if policy == "always" else None  # noqa: E731
    return Reader(coder, start, None, words, known=coder.tokens)


def place_of(source: str) -> Place:
    if source.startswith(HUB):
        return of_hub(source)
    path = user_path(source)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise DepthbenchError(f"{source} is not there. Check the name of the file")
        return Place(source, path.parent, path.name)
    if path.is_dir():
        if model_type_of(path) is not None:
            return Place(source, path)
        files = sorted(one.name for one in path.glob("*.gguf"))
        such = f". It holds a GGUF file: name {path / files[0]}" if files else ""
        raise DepthbenchError(
            f"{source} is a folder without a model: no checkpoints/ of ours, and no config.json "
            f"that names a model_type{such or f'. Name {KINDS}'}"
        )
    if path.exists():
        raise DepthbenchError(f"{source} is no model. Name {KINDS}")
    if NAME.fullmatch(source):
        return of_hub(source)
    such = "" if "/" in source else f"; a name without an owner is written {HUB}{source}"
    raise DepthbenchError(f"{source} is not there. Name {KINDS}{such}")
