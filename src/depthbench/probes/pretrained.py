"""Hugging Face folders and names, and GGUF files: the model and its text.

Weights are read from safetensors and GGUF alone, and no code of a model's author runs.
"""

import contextlib
import importlib.util
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from depthbench.data.tokenizer import HUB, HUB_FILE
from depthbench.errors import DepthbenchError
from depthbench.probes.hf_layout import NAMING, setting
from depthbench.probes.hf_quiet import EXTRA, quiet
from depthbench.probes.hf_versions import mismatched, name_end, plain_experts
from depthbench.probes.huggingface import HuggingFaceSubject
from depthbench.probes.load import Opened, Parts
from depthbench.probes.pretrained_text import coder_of, start_token, text_for
from depthbench.probes.reader import Reader

if TYPE_CHECKING:
    from transformers import PretrainedConfig

NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+")
"""An owner and a model."""
FETCHED = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")
NOT_FETCHED = ("*/*", "consolidated*")
"""Other formats of the same weights."""
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
TOKENIZERS = ("tokenizer.json", "*.model", "vocab.*", "tekken.json", "*.tiktoken")
"""Files that hold a vocabulary: without one, transformers makes an empty tokenizer."""
UNQUANTISED = frozenset({"F16", "F32", "F64", "BF16"})
MEND_CONFIG = "Mend config.json in it, or upgrade transformers if the model is newer"
NOTES = "depthbench_notes"
"""In a config.json that we wrote: what every figure of the model must say of it."""
COPY_AGAIN = "Copy its files again, or save it anew with save_pretrained"
FETCH_AGAIN = "Fetch the file again, or name a Hugging Face folder of the model"
TUNED = re.compile(r"instruct|chat|(?<![a-z])(it|rlhf|dpo|sft)(?![a-z])", re.IGNORECASE)
"""In the names of models that were trained on conversations."""


@dataclass(frozen=True)
class Place:
    """Where a model's files are."""

    given: str
    """As it was typed."""
    folder: Path
    file: str | None = None
    """Name of the GGUF file in the folder."""

    @property
    def read(self) -> dict[str, Any]:
        """What every ``from_pretrained`` is called with besides the folder."""
        given: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        return given if self.file is None else {**given, "gguf_file": self.file}

    def remedy(self, of_folder: str) -> str:
        """What helps where it cannot be read; a file holds all in one."""
        return of_folder if self.file is None else FETCH_AGAIN


def open_pretrained(place: Place, device: str, dtype: torch.dtype, parts: Parts) -> Opened:
    """The model at ``place``.

    Raises `DepthbenchError` for what is missing, no decoder, not in safetensors, or not read.
    """
    with quiet():
        config = config_at(place)
        model, unused = model_at(place, config, dtype)
        notes = [*notes_of(place, config, dtype), *unused]
        label = place.folder.name if place.file is None else Path(place.file).stem
        if place.given.startswith(HUB):
            label = place.given.removeprefix(HUB)
        known = f"Probe another model, or name the parts of this one, such as {NAMING}"
        with _said(place, "the model, though loaded,", known):
            subject = HuggingFaceSubject(
                model.to(device), place.given, parts, notes, label, partial(tokenizer_at, place)
            )
    limits = (place, subject.longest, subject.words)
    return Opened(subject, partial(_text, *limits), partial(_reader, *limits))


def _reader(place: Place, longest: int | None, words: int) -> Reader:
    with quiet():
        tokenizer = tokenizer_at(place)
    start = partial(start_token, tokenizer, source=place.given)
    coder, end = coder_of(tokenizer, place.given), tokenizer.eos_token_id
    return Reader(coder, start, longest, words, end, coder.tokens)


def _text(place: Place, longest: int | None, words: int, asked: Any) -> Any:
    with quiet():
        tokenizer = tokenizer_at(place)
    return text_for(asked, tokenizer, place.given, longest, words)


def of_hub(given: str) -> Place:
    """The files of a name on Hugging Face, fetched unless they are here already.

    Raises `DepthbenchError` if there is no such name, or no connection.
    """
    name = given.removeprefix(HUB)
    # it opens connections
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        with quiet():
            folder = huggingface_hub.snapshot_download(
                name, allow_patterns=list(FETCHED), ignore_patterns=list(NOT_FETCHED)
            )
    except (OSError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as error:
        raise DepthbenchError(
            f"{given} is no folder here and cannot be fetched from Hugging Face "
            f"({_reason(error)}). Check the name and the connection, or name a folder or a .gguf "
            "file"
        ) from None
    return Place(f"{HUB}{name}", Path(folder))


def config_at(place: Place) -> "PretrainedConfig":
    from transformers import AutoConfig

    for package in () if place.file is None else ("gguf", "accelerate"):
        if importlib.util.find_spec(package) is None:
            raise DepthbenchError(
                f"{place.given}: GGUF files need the package {package}. Run {EXTRA}"
            )
    if place.file is None and not list(place.folder.glob("*.safetensors")):
        found = [one.name for pattern in PICKLES for one in sorted(place.folder.glob(pattern))]
        files = [one.name for one in sorted(place.folder.glob("*.gguf"))]
        if files:
            raise DepthbenchError(f"{place.given} holds GGUF files: name {place.folder / files[0]}")
        why = f"only {found[0]}, a pickle, which can run code" if found else "no weights"
        raise DepthbenchError(
            f"{place.given} holds {why}. Save the model with save_pretrained, which writes "
            ".safetensors"
        )
    what = "the file" if place.file else "its config"
    with _said(place, what, place.remedy(MEND_CONFIG)):
        config: PretrainedConfig = AutoConfig.from_pretrained(place.folder, **place.read)
    if config.is_encoder_decoder:
        raise DepthbenchError(
            f"{place.given} is a {config.model_type}, an encoder with a decoder. Probes read "
            "decoder-only models"
        )
    if setting(config, "num_hidden_layers") == 0:
        raise DepthbenchError(
            f"{place.given}: num_hidden_layers = 0, but probes need 1 block or more. "
            f"{place.remedy(MEND_CONFIG)}"
        )
    return config


def model_at(place: Place, config: "PretrainedConfig", dtype: torch.dtype) -> tuple[Any, list[str]]:
    """The model, and in words what its files hold besides."""
    from transformers import AutoModelForCausalLM

    given: dict[str, Any] = {"dtype": dtype, "config": config, "output_loading_info": True}
    # they are refused below, by name
    given["ignore_mismatched_sizes"] = True
    if place.file is None:
        given["use_safetensors"] = True
    if dtype == torch.float64:
        # the grouped product of experts knows no float64
        given |= plain_experts()
    # a bar of the GGUF reader cannot be turned off
    bar = contextlib.nullcontext() if place.file is None else _to_nowhere()
    with _said(place, "the model", place.remedy(COPY_AGAIN)), bar:
        loaded: Any = AutoModelForCausalLM.from_pretrained(place.folder, **place.read, **given)
    model, info = loaded
    missing = sorted(info["missing_keys"])
    missing += mismatched(info)
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise DepthbenchError(
            f"{place.given} holds no weights that fit {missing[0]}{more}: they would be random. "
            f"The files are incomplete or of another model. {place.remedy(COPY_AGAIN)}"
        )
    unused = sorted(info["unexpected_keys"])
    said = f"{len(unused)} tensors of its files have no place in it, the first: {unused[:1]}"
    return model, [said] if unused else []


def tokenizer_at(place: Place) -> Any:
    from transformers import AutoTokenizer

    if place.file is None and not any(list(place.folder.glob(name)) for name in TOKENIZERS):
        raise DepthbenchError(
            f"{place.given} holds no tokenizer. Save its tokenizer.json beside the model"
        )
    bar = contextlib.nullcontext() if place.file is None else _to_nowhere()
    remedy = place.remedy(f"Put the {HUB_FILE} that the model was trained with there")
    with _said(place, "its tokenizer", remedy), bar:
        found = AutoTokenizer.from_pretrained(place.folder, **place.read)
        if place.file is not None:
            name_end(found, place.folder / place.file)
        return found


def _to_nowhere() -> Any:
    return contextlib.redirect_stderr(io.StringIO())


@contextmanager
def _said(place: Place, what: str, remedy: str) -> Iterator[None]:
    """Errors of the library in one line, with what helps."""
    try:
        yield
    except DepthbenchError:
        raise
    except ImportError as error:
        raise DepthbenchError(f"{place.given}: {_reason(error)}. Run {EXTRA}") from None
    except Exception as error:  # of many kinds, its own and those of readers below it
        raise DepthbenchError(
            f"{place.given}: {what} cannot be read: {_reason(error)}. {remedy}"
        ) from None


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = lines[0] if lines else type(error).__name__
    if first.endswith(":"):
        first = " ".join(lines[:2])
    return first.split(". ")[0].rstrip(".:")[:200]


def notes_of(place: Place, config: "PretrainedConfig", dtype: torch.dtype) -> list[str]:
    """What every figure of this model must say of it."""
    names, notes = [place.folder.name, place.given], list[str]()
    if place.file is None:
        method = config.to_dict().get("quantization_config")
        if method:
            kind = method.get("quant_method", "an unnamed method")
            notes.append(f"quantised weights ({kind})")
    else:
        kinds, title = _of_gguf(place.folder / place.file)
        precision = str(dtype).removeprefix("torch.")
        names = [place.file, title]
        if kinds:
            notes.append(f"quantised weights ({', '.join(kinds)}), dequantised to {precision}")
    if any(TUNED.search(name) for name in names):
        notes.append("instruction-tuned")
    carried: list[str] = config.to_dict().get(NOTES) or []
    return list(dict.fromkeys([*carried, *notes]))


def _of_gguf(path: Path) -> tuple[list[str], str]:
    """Its quantised formats, the most frequent first, and its name."""
    from gguf import GGUFReader

    reader = GGUFReader(path)
    kinds = Counter(one.tensor_type.name for one in reader.tensors)
    quantised = [kind for kind, _ in kinds.most_common() if kind not in UNQUANTISED]
    title = reader.get_field("general.name")
    return quantised, "" if title is None else str(title.contents())


def model_type_of(folder: Path) -> str | None:
    """What ``config.json`` in ``folder`` says that the model is; None where it says nothing.

    Raises `DepthbenchError` for a file that is no JSON.
    """
    path = folder / "config.json"
    if not path.is_file():
        return None
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DepthbenchError(f"{path} cannot be read: {error}. {COPY_AGAIN}") from None
    found = settings.get("model_type") if isinstance(settings, dict) else None
    return found if isinstance(found, str) else None
