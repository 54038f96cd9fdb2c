"""LLaMA and Mistral, from Hugging Face folders, names and GGUF files, as our `prenorm`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from depthbench.designs import parse_design
from depthbench.errors import DepthbenchError
from depthbench.hub.llama import our_weights
from depthbench.nn.branch import Backbone
from depthbench.nn.model import Model, ModelConfig
from depthbench.probes.foreign import place_of
from depthbench.probes.hf_quiet import quiet
from depthbench.probes.pretrained import (
    TOKENIZERS,
    Place,
    config_at,
    model_at,
    notes_of,
    tokenizer_at,
)
from depthbench.shapes import Shape

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

FAMILIES = ("llama", "mistral")
REASONS = {
    "qwen2": "its queries, keys and values have biases",
    "qwen3": "it norms queries and keys",
    "olmo2": "its norms are behind the branches, and on queries and keys",
    "olmo3": "its norms are behind the branches, and on queries and keys",
    "gemma": "its norms multiply by 1 + gain, and its embedding is scaled",
    "gemma2": "its branches have two norms, and its attention is capped",
    "gemma3_text": "its branches have two norms, and it norms queries and keys",
    "mixtral": "its feed-forward is routed",
    "gpt2": "it has learned positions and biases",
    "gpt_neox": "its branches run side by side",
    "phi3": "its heads are turned in part",
}
"""Why a family is none of ours, for the most asked for."""
MEANWHILE = "depthbench probe opens it as it is"


@dataclass(frozen=True)
class Imported:
    """A model in our terms, and what came with it."""

    model: Model
    tokenizer: "PreTrainedTokenizerBase | None"
    notes: tuple[str, ...]
    """What every figure of it must say: quantised weights, tuning."""
    context: int
    """Positions that its config names."""
    family: str


def import_llama(source: str, dtype: torch.dtype = torch.float32) -> Imported:
    """The LLaMA or Mistral that a folder, a name on Hugging Face or a GGUF file holds.

    Quantised weights of GGUF files are dequantised, which the notes say. Raises `DepthbenchError`
    for other families and settings that our backbone has no words for, and for broken files.
    """
    place = place_of(source)
    with quiet():
        config = config_at(place)
        settings = config.to_dict()
        choices = our_config(settings, source)
        theirs, unused = model_at(place, config, dtype)
        model = Model.on_meta(choices)
        backbone, shape = choices.backbone, choices.shape
        weights = our_weights(theirs.state_dict(), shape.layers, backbone.tied_head)
        model.load_state_dict(weights, assign=True)
        notes = (*notes_of(place, config, dtype), *unused)
        coder = _tokenizer(place)
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    family, context = settings["model_type"], settings["max_position_embeddings"]
    return Imported(model.eval(), coder, notes, context, family)


def our_config(settings: dict[str, Any], source: str) -> ModelConfig:
    """Our words for the settings of a LLaMA or Mistral.

    Raises `DepthbenchError` for what our backbone does not have, by name.
    """
    _check_family(settings, source)
    width, heads = settings["hidden_size"], settings["num_attention_heads"]
    shape = Shape.parse(
        {
            "layers": settings["num_hidden_layers"],
            "width": width,
            "heads": heads,
            "kv_heads": settings["num_key_value_heads"] or heads,
            "ffn": settings["intermediate_size"],
            "vocab": settings["vocab_size"],
        },
        source,
    )
    backbone = Backbone.parse(
        {
            "rope_base": float(_rope(settings, source)["rope_theta"]),
            "norm_eps": settings["rms_norm_eps"],
            "tied_head": settings["tie_word_embeddings"],
        },
        source,
    )
    return ModelConfig(shape=shape, design=parse_design("prenorm"), backbone=backbone)


def _check_family(settings: dict[str, Any], source: str) -> None:
    kind = settings["model_type"]
    if kind not in FAMILIES:
        why = f" ({REASONS[kind]})" if kind in REASONS else ""
        raise DepthbenchError(
            f"{source} is a {kind}, which our backbone has no words for{why}. Allowed: "
            f"{', '.join(FAMILIES)}. {MEANWHILE}"
        )
    if settings.get("quantization_config"):
        raise DepthbenchError(
            f"{source} holds quantised weights that transformers computes with. Name the model "
            "in float16 or bfloat16, or as a .gguf file, which is dequantised"
        )
    asked = {
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "head_dim": settings["hidden_size"] // settings["num_attention_heads"],
    }
    for name, ours in asked.items():
        given = settings.get(name)
        if given is not None and given != ours:
            raise DepthbenchError(
                f"{source}: {name} = {given}, but our backbone has {name} = {ours} alone. "
                f"{MEANWHILE}"
            )
    window, positions = settings.get("sliding_window"), settings["max_position_embeddings"]
    if window is not None and window < positions:
        raise DepthbenchError(
            f"{source}: sliding_window = {window} is shorter than its {positions} positions, and "
            f"our attention sees all of them. {MEANWHILE}"
        )


def _rope(settings: dict[str, Any], source: str) -> dict[str, Any]:
    """The rotary settings, which must be plain."""
    found: dict[str, Any] = settings.get("rope_parameters") or {}
    kind = found.get("rope_type", "default")
    if kind != "default" or found.get("partial_rotary_factor", 1.0) != 1.0:
        raise DepthbenchError(
            f"{source}: its rotary embedding is scaled ({kind}), and ours is not. {MEANWHILE}"
        )
    return {"rope_theta": 10000.0} | found


def _tokenizer(place: Place) -> "PreTrainedTokenizerBase | None":
    """None where no file holds one."""
    if place.file is None and not any(list(place.folder.glob(name)) for name in TOKENIZERS):
        return None
    return tokenizer_at(place)
