"""A Hugging Face model without some of its blocks, and how it is written."""

import copy
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from depthbench.errors import DepthbenchError
from depthbench.files import make_folder
from depthbench.probes.hf_layout import setting
from depthbench.probes.hf_quiet import quiet

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel


def model_without(model: "PreTrainedModel", blocks: str, kept: Sequence[int]) -> Any:
    """A model of its own with the blocks ``kept`` of the list ``blocks``; weights are copied.

    Raises `DepthbenchError` where the family cannot be built so.
    """
    config = _config_without(model.config, kept)
    try:
        with torch.random.fork_rng(), quiet():
            small: Any = type(model)(config)
        small.load_state_dict(_weights(model, blocks, kept), assign=True)
    except (RuntimeError, ValueError, IndexError, KeyError, TypeError) as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise DepthbenchError(
            f"{type(model).__name__} cannot be built with {len(kept)} of its blocks ({reason}): it "
            "ties blocks to their places"
        ) from None
    small.tie_weights()
    small.generation_config = copy.deepcopy(model.generation_config)
    return small.to(model.device).eval()


def _config_without(config: "PretrainedConfig", kept: Sequence[int]) -> "PretrainedConfig":
    """Settings that are lists with one value a block keep those of ``kept``."""
    count = setting(config, "num_hidden_layers")
    small = copy.deepcopy(config)
    text = small.get_text_config()
    for name, values in text.to_dict().items():
        by_block = isinstance(values, list) and len(values) == count
        if by_block and not name.endswith(("token_id", "token_ids", "architectures")):
            setattr(text, name, [values[number] for number in kept])
    text.num_hidden_layers = len(kept)
    return small


def _weights(model: "PreTrainedModel", blocks: str, kept: Sequence[int]) -> dict[str, torch.Tensor]:
    place = {number: index for index, number in enumerate(kept)}
    found: dict[str, torch.Tensor] = {}
    for name, tensor in model.state_dict().items():
        if not name.startswith(f"{blocks}."):
            found[name] = tensor.clone()
            continue
        number, _, rest = name.removeprefix(f"{blocks}.").partition(".")
        if int(number) in place:
            found[f"{blocks}.{place[int(number)]}.{rest}"] = tensor.clone()
    return found


def write_model(
    model: "PreTrainedModel",
    tokenizer: Callable[[], Any] | None,
    folder: Path,
) -> None:
    """Model and tokenizer in a new folder, all at once.

    Raises `DepthbenchError` if it cannot be written, or holds something already.
    """
    make_folder(folder.parent)
    try:
        part = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    except OSError as error:
        raise DepthbenchError(f"{folder} cannot be written: {error}. Name another") from None
    try:
        with quiet():
            model.save_pretrained(part)
            if tokenizer is not None:
                tokenizer().save_pretrained(part)
        part.chmod(0o755)
        part.replace(folder)
    except OSError as error:
        raise DepthbenchError(f"{folder} cannot be written: {error}. Name another") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
