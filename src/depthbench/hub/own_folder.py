"""Folders of `DepthBenchForCausalLM`: read as our own models, and written."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from depthbench.errors import DepthbenchError
from depthbench.hub.folder import new_folder
from depthbench.hub.llama import token_ids, write_pretrained
from depthbench.nn.model import Model, ModelConfig
from depthbench.probes.hf_quiet import quiet
from depthbench.probes.pretrained import (
    COPY_AGAIN,
    NOTES,
    TOKENIZERS,
    Place,
    model_type_of,
    tokenizer_at,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

KIND = "depthbench"


def is_own(folder: Path) -> bool:
    """Whether ``folder`` holds one, with its weights."""
    return any(folder.glob("*.safetensors")) and model_type_of(folder) == KIND


def tokenizer_in(folder: Path) -> "PreTrainedTokenizerBase | None":
    """The tokenizer beside the model; None where there is none."""
    if not any(list(folder.glob(name)) for name in TOKENIZERS):
        return None
    with quiet():
        return tokenizer_at(Place(str(folder), folder))


def architecture_in(folder: Path) -> ModelConfig | None:
    """The model that config.json describes; None where it describes none of ours."""
    try:
        found = _settings(folder).get("architecture")
    except (OSError, ValueError, AttributeError):
        return None
    return None if found is None else ModelConfig.parse(found, str(folder / "config.json"))


def words_in(folder: Path) -> int | None:
    """Tokens of the tokenizer, where config.json says that the head has more rows."""
    return _settings(folder).get("words")


def notes_in(folder: Path) -> tuple[str, ...]:
    """What every figure of the model must say, as config.json has it."""
    return tuple(_settings(folder).get(NOTES) or ())


def _settings(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


def read_model(folder: Path, dtype: torch.dtype | None = None) -> Model:
    """The model in ``folder``; ``dtype`` is that of its files unless given.

    Raises `DepthbenchError` for broken files, and for weights that are missing or too many.
    """
    with quiet():
        from depthbench.hub.wrapper import DepthBenchForCausalLM

        try:
            opened: Any = DepthBenchForCausalLM.from_pretrained(
                folder,
                dtype=dtype or "auto",
                local_files_only=True,
                use_safetensors=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
            )
        except DepthbenchError:
            raise
        except Exception as error:  # of many kinds: readers of JSON and safetensors below it
            reason = " ".join(str(error).split())[:200]
            raise DepthbenchError(
                f"{folder} cannot be read: {reason or type(error).__name__}. {COPY_AGAIN}"
            ) from None
    found, told = opened
    keys = ("missing_keys", "mismatched_keys", "unexpected_keys")
    wrong = [f"{key.removesuffix('_keys')} {one}" for key in keys for one in sorted(told[key])]
    if wrong:
        raise DepthbenchError(
            f"{folder} does not hold the model of its config.json: {wrong[0]} (and "
            f"{len(wrong) - 1} more). {COPY_AGAIN}"
        )
    return found.model.eval()


def read_own(
    folder: Path, dtype: torch.dtype | None = None
) -> "tuple[Model, PreTrainedTokenizerBase | None]":
    """The model in ``folder``, and its tokenizer. Raises as `read_model`."""
    return read_model(folder, dtype), tokenizer_in(folder)


def write_own(
    model: Model,
    folder: Path,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    *,
    unused: Sequence[int] = (),
    notes: Sequence[str] = (),
    card: str | None = None,
) -> None:
    """Write ``model`` so that `depthbench.load` and transformers open it.

    ``unused`` are rows of the head that only pad it, at its end; ``notes`` are what every figure
    of the model must say. Raises `DepthbenchError` unless
    ``folder`` is new.
    """
    with quiet(), new_folder(folder) as place:
        from depthbench.hub.wrapper import DepthBenchForCausalLM

        words = unused[0] if unused else None
        wrapped = DepthBenchForCausalLM.around(
            model, words, **token_ids(tokenizer, model.config.shape.vocab)
        )
        write_pretrained(wrapped, place, tokenizer, unused, notes, card)
