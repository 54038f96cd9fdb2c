"""Our `prenorm` as a plain ``LlamaForCausalLM``, or another family: to run it needs none of us."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from depthbench.hub.families import Family, family_of
from depthbench.hub.folder import new_folder
from depthbench.hub.rotary import theirs_of
from depthbench.nn.model import Model, ModelConfig
from depthbench.probes.hf_quiet import quiet
from depthbench.probes.hf_versions import rotary_settings
from depthbench.probes.pretrained import NOTES

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

Weights = dict[str, Tensor]
CONTEXT = 2048
"""Positions that the config names where nothing else is known; the weights know no limit."""
ENDS = [("model.embed_tokens.weight", "embed.weight"), ("model.norm.weight", "final_norm.gain")]
HEAD = "lm_head.weight"
MATRICES = [
    (("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), "attention.qkv"),
    (("self_attn.o_proj",), "attention.o"),
    (("mlp.gate_proj", "mlp.up_proj"), "feedforward.gate_up"),
    (("mlp.down_proj",), "feedforward.down"),
]
"""Theirs, below each other in one of ours."""
LAST = ("attention.o", "feedforward.down")
"""What a factor on branch outputs is folded into."""


def llama_config(config: ModelConfig, context: int = CONTEXT, **tokens: Any) -> "PretrainedConfig":
    """The settings of the same model; ``tokens`` are ids such as ``bos_token_id``.

    Raises `DepthbenchError` for a model that no family has words for.
    """
    family, shape, backbone = family_of(config), config.shape, config.backbone
    from transformers import AutoConfig

    named: dict[str, Any] = {
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    } | tokens
    return AutoConfig.for_model(
        family.name,
        vocab_size=shape.vocab,
        hidden_size=shape.width,
        intermediate_size=shape.ffn,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=context,
        rms_norm_eps=backbone.norm_eps,
        tie_word_embeddings=backbone.tied_head,
        initializer_range=min(backbone.init_std, 1.0),
        **rotary_settings(theirs_of(backbone)),
        **named,
    )


def llama_weights(model: Model) -> Weights:
    """The weights by the family's names; factors on branches and logits are folded in.

    The factor on the logits goes into the final norm's gain, where it is the same for a tied head.
    """
    shape, scaling = model.config.shape, model.scaling
    ours: Weights = {name: one.detach() for name, one in model.state_dict().items()}
    found = {theirs: ours[own] for theirs, own in ENDS}
    found["model.norm.weight"] = found["model.norm.weight"] * scaling.head
    found[HEAD] = ours["embed.weight" if model.config.backbone.tied_head else "head.weight"]
    rows = {
        "attention.qkv": [shape.queries, shape.keys, shape.keys],
        "feedforward.gate_up": [shape.ffn] * 2,
    }
    family = family_of(model.config)
    for block in range(shape.layers):
        theirs, own = f"model.layers.{block}.", f"blocks.{block}."
        found |= {theirs + name: ours[own + place] for name, place in family.norms}
        for names, place in MATRICES:
            factor = scaling.branch if place in LAST else 1.0
            for kind in family.kinds(place):
                whole = ours[f"{own}{place}.{kind}"]
                parts = [whole] if len(names) == 1 else whole.split(rows[place])
                for name, part in zip(names, parts, strict=True):
                    found[f"{theirs}{name}.{kind}"] = (part * factor).contiguous()
    return found


def our_weights(theirs: Weights, family: Family, config: ModelConfig) -> Weights:
    """Weights by our names from a family's. Raises `KeyError`."""
    found = {own: theirs[name] for name, own in ENDS}
    if not config.backbone.tied_head:
        found["head.weight"] = theirs[HEAD]
    for block in range(config.shape.layers):
        place, ours = f"model.layers.{block}.", f"blocks.{block}."
        found |= {ours + own: theirs[place + name] for name, own in family.norms}
        for names, own in MATRICES:
            for kind in family.kinds(own):
                parts = [theirs[f"{place}{name}.{kind}"] for name in names]
                found[f"{ours}{own}.{kind}"] = torch.cat(parts)
    return found


def as_llama(model: Model, context: int = CONTEXT, **tokens: Any) -> "PreTrainedModel":
    """The same function as a model of transformers, in the same dtype.

    Raises `DepthbenchError` for a model that no family has words for.
    """
    with quiet():
        config = llama_config(model.config, context, **tokens)
        from transformers import AutoModelForCausalLM

        llama: Any = AutoModelForCausalLM.from_config(config)
    llama.to(model.embed.weight.dtype).load_state_dict(llama_weights(model))
    return llama.eval()


def export_llama(
    model: Model,
    folder: Path,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    *,
    context: int = CONTEXT,
    unused: Sequence[int] = (),
    notes: Sequence[str] = (),
    card: str | None = None,
) -> None:
    """Write ``model`` as a folder of a family: config.json, safetensors, the tokenizer's files.

    Only rows of the head that are no ``unused`` padding are generated; ``card`` becomes README.md,
    and ``notes`` are what every figure of the model must say.
    Raises `DepthbenchError` for a model that no family has words for, and unless ``folder`` is new.
    """
    family_of(model.config)
    with quiet(), new_folder(folder) as place:
        llama = as_llama(model, context, **token_ids(tokenizer, model.config.shape.vocab))
        write_pretrained(llama, place, tokenizer, unused, notes, card)


def write_pretrained(
    model: Any,
    folder: Path,
    tokenizer: "PreTrainedTokenizerBase | None",
    unused: Sequence[int] = (),
    notes: Sequence[str] = (),
    card: str | None = None,
) -> None:
    """What ``save_pretrained`` writes of a model and its tokenizer, and its card."""
    if unused:
        model.generation_config.suppress_tokens = list(unused)
    if notes:
        model.config.update({NOTES: list(notes)})
    model.save_pretrained(folder)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    if card is not None:
        (folder / "README.md").write_text(card, encoding="utf-8")


def token_ids(tokenizer: "PreTrainedTokenizerBase | None", vocab: int) -> dict[str, Any]:
    """The tokens with a meaning, as configs name them, where the embedding has a row for them."""
    if tokenizer is None:
        return {}
    found: dict[str, Any] = {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    return {name: one if one is not None and one < vocab else None for name, one in found.items()}
