"""LLaMA and its kin, from Hugging Face folders, names and GGUF files, as models of ours."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from depthbench.designs import parse_design
from depthbench.errors import DepthbenchError
from depthbench.hub.families import FAMILIES, Family
from depthbench.hub.llama import our_weights
from depthbench.hub.rotary import ours_of
from depthbench.nn.branch import Backbone
from depthbench.nn.model import Model, ModelConfig
from depthbench.probes.foreign import place_of
from depthbench.probes.hf_quiet import quiet
from depthbench.probes.hf_versions import rotary_parameters
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

REASONS = {
    "olmo": "its norms have no gain",
    "olmo3": "it sees most of its context through a window",
    "gemma": "its norms multiply by 1 + gain, and its embedding is scaled",
    "gemma2": "its branches have two norms, and its attention is capped",
    "gemma3_text": "its branches have two norms, and it norms queries and keys",
    "mixtral": "its feed-forward is routed",
    "gpt2": "it has learned positions and biases",
    "gpt_neox": "its branches run side by side",
    "phi3": "its heads are turned in part",
}
"""Why a family is none of ours, for the most asked for."""
SLIDING = "sliding_attention"
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
    """The model of one of the `FAMILIES` in a folder, a name on Hugging Face or a GGUF file.

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
        family = FAMILIES[settings["model_type"]]
        weights = our_weights(theirs.state_dict(), family, choices)
        model.load_state_dict(weights, assign=True)
        notes = (*notes_of(place, config, dtype), *unused)
        coder = _tokenizer(place)
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    return Imported(model.eval(), coder, notes, settings["max_position_embeddings"], family.name)


def our_config(settings: dict[str, Any], source: str) -> ModelConfig:
    """Our words for the settings of a model of one of the `FAMILIES`.

    Raises `DepthbenchError` for what our backbone does not have, by name.
    """
    family = _family(settings, source)
    width, heads = settings["hidden_size"], settings["num_attention_heads"]
    head_width = settings.get("head_dim") or width // heads
    shape = Shape.parse(
        {
            "layers": settings["num_hidden_layers"],
            "width": width,
            "heads": heads,
            "kv_heads": settings["num_key_value_heads"] or heads,
            "ffn": settings["intermediate_size"],
            "vocab": settings["vocab_size"],
            "head_width": None if head_width * heads == width else head_width,
        },
        source,
    )
    positions = settings["max_position_embeddings"]
    rotary = ours_of(rotary_parameters(settings), positions, source, MEANWHILE)
    backbone = Backbone.parse(
        {
            "norm_eps": settings["rms_norm_eps"],
            "tied_head": settings["tie_word_embeddings"],
            **rotary,
            **family.backbone,
        },
        source,
    )
    return ModelConfig(shape=shape, design=parse_design(family.design), backbone=backbone)


def _family(settings: dict[str, Any], source: str) -> Family:
    """Raises `DepthbenchError` for others, and for settings that are none of ours."""
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
    for name, ours in {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False}.items():
        given = settings.get(name)
        if given is not None and given != ours:
            raise DepthbenchError(
                f"{source}: {name} = {given}, but a {kind} of ours has {name} = {ours} alone. "
                f"{MEANWHILE}"
            )
    window, positions = settings.get("sliding_window"), settings["max_position_embeddings"]
    kinds = settings.get("layer_types") or [SLIDING]
    if window is not None and window < positions and SLIDING in kinds:
        raise DepthbenchError(
            f"{source}: sliding_window = {window} is shorter than its {positions} positions, and "
            f"our attention sees all of them. {MEANWHILE}"
        )
    return FAMILIES[kind]


def _tokenizer(place: Place) -> "PreTrainedTokenizerBase | None":
    """None where no file holds one."""
    if place.file is None and not any(list(place.folder.glob(name)) for name in TOKENIZERS):
        return None
    return tokenizer_at(place)
