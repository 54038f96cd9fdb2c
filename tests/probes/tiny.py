"""Tiny random models of Hugging Face families, with gains of norms that are not one."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers

from depthbench.probes.hf_versions import before

VOCAB = 99
COMMON: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED: dict[str, Any] = {**COMMON, "num_key_value_heads": 2, "head_dim": 8}
TYPES = ["sliding_attention", "full_attention"] * 2


def _v4() -> Any:
    most = {name: value for name, value in COMMON.items() if name != "intermediate_size"}
    return transformers.DeepseekV4Config(
        **most,
        head_dim=16,
        moe_intermediate_size=16,
        n_routed_experts=4,
        num_experts_per_tok=2,
        q_lora_rank=16,
        o_lora_rank=8,
        o_groups=2,
        index_n_heads=2,
        index_head_dim=16,
        index_topk=4,
    )


FAMILIES: dict[str, Callable[[], Any]] = {
    "llama": lambda: transformers.LlamaConfig(**GROUPED),
    "qwen3": lambda: transformers.Qwen3Config(**GROUPED),
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=VOCAB,
        n_embd=32,
        n_layer=4,
        n_head=4,
        n_positions=64,
        bos_token_id=1,
        eos_token_id=2,
    ),
    "gpt_neox": lambda: transformers.GPTNeoXConfig(**COMMON),
    "gemma3": lambda: transformers.Gemma3TextConfig(
        **GROUPED, sliding_window=4, layer_types=TYPES, final_logit_softcapping=5.0
    ),
    "olmo2": lambda: transformers.Olmo2Config(**COMMON),
    "phi": lambda: transformers.PhiConfig(**COMMON),
    "mistral": lambda: transformers.MistralConfig(**GROUPED, sliding_window=5),
    "mixtral": lambda: transformers.MixtralConfig(**GROUPED, num_local_experts=4),
    "deepseek_v4": _v4,
    "bloom": lambda: transformers.BloomConfig(
        vocab_size=VOCAB, hidden_size=32, n_layer=4, n_head=4
    ),
    "cohere": lambda: transformers.CohereConfig(**COMMON, logit_scale=0.5),
    "granite": lambda: transformers.GraniteConfig(
        **COMMON, logits_scaling=3.0, residual_multiplier=0.7
    ),
    "opt": lambda: transformers.OPTConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        ffn_dim=48,
        max_position_embeddings=64,
        word_embed_proj_dim=16,
    ),
}
since_5 = pytest.mark.skipif(before("5"), reason="transformers 4 does not have it")
if before("5"):
    del FAMILIES["deepseek_v4"]
PARALLEL = {"gpt_neox", "phi", "cohere"}
"""Both branches read the same state."""


def tiny(family: str, **changes: Any) -> Any:
    """A model of a family, the same at every call."""
    config = FAMILIES[family]()
    for name, value in changes.items():
        setattr(config, name, value)
    return random_of(config)


def random_of(config: Any) -> Any:
    """The causal model of a config, with random weights and gains."""
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, one in model.named_parameters():
            scale = 0.3 if "norm" in name or "ln_" in name else 0.1
            one.add_(scale * torch.randn_like(one))
    return model.eval()
