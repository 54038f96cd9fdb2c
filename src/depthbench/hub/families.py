"""Families of transformers that are one of our models, and by which names they hold its parts."""

from dataclasses import dataclass, field
from typing import Any, Literal

from depthbench.designs import label_of, parse_design
from depthbench.errors import DepthbenchError
from depthbench.nn.model import ModelConfig

INSTEAD = "Write it as our own model, with --to hf"
BEFORE = (
    ("input_layernorm.weight", "attention_connection.norm.gain"),
    ("post_attention_layernorm.weight", "feedforward_connection.norm.gain"),
)
BEHIND = (
    ("post_attention_layernorm.weight", "attention_connection.norm_out.gain"),
    ("post_feedforward_layernorm.weight", "feedforward_connection.norm_out.gain"),
)
QK_NORMS = (
    ("self_attn.q_norm.weight", "attention.query_norm.gain"),
    ("self_attn.k_norm.weight", "attention.key_norm.gain"),
)


@dataclass(frozen=True)
class Family:
    """One of them."""

    name: str
    """``model_type`` in config.json."""
    title: str
    """Its models' class is ``{title}ForCausalLM``."""
    design: dict[str, Any] = field(default_factory=lambda: {"name": "prenorm"})
    qk_norm: Literal["head", "all"] | None = None
    qkv_bias: bool = False
    norms: tuple[tuple[str, str], ...] = BEFORE
    """Theirs and ours, in every block."""

    @property
    def backbone(self) -> dict[str, Any]:
        """What the family fixes of ours."""
        return {"qk_norm": self.qk_norm, "qkv_bias": self.qkv_bias}

    def kinds(self, product: str) -> tuple[str, ...]:
        """What one of our products is made of."""
        biased = self.qkv_bias and product == "attention.qkv"
        return ("weight", "bias") if biased else ("weight",)

    def says(self, config: ModelConfig) -> bool:
        """Whether its models can be ``config``."""
        given = (config.design, config.backbone.qk_norm, config.backbone.qkv_bias)
        return given == (parse_design(self.design), self.qk_norm, self.qkv_bias)


FAMILIES = {
    one.name: one
    for one in (
        Family("llama", "Llama"),
        Family("mistral", "Mistral"),
        Family("qwen2", "Qwen2", qkv_bias=True),
        Family("qwen3", "Qwen3", qk_norm="head", norms=BEFORE + QK_NORMS),
        Family(
            "olmo2",
            "Olmo2",
            design={"name": "sandwich", "before": False},
            qk_norm="all",
            norms=BEHIND + QK_NORMS,
        ),
    )
}


def family_of(config: ModelConfig) -> Family:
    """The first that says ``config``. Raises `DepthbenchError` where none does, by name."""
    found = [one for one in FAMILIES.values() if one.says(config)]
    backbone = config.backbone
    if backbone.name != "dense":
        raise DepthbenchError(
            f"backbone '{backbone.name}' has no LLaMA form, which has attention and one "
            f"SwiGLU in every block (backbone 'dense'). {INSTEAD}"
        )
    if found:
        return found[0]
    designs = [parse_design(one.design) for one in FAMILIES.values()]
    if config.design not in designs:
        raise DepthbenchError(
            f"design '{label_of(config.design)}' has no LLaMA form: LLaMA is prenorm, "
            f"h ← h + F(N(h)), and OLMo 2 is {label_of(designs[-1])}. {INSTEAD}"
        )
    kinds = "; ".join(
        f"{one.title}: {label_of(design)}, qk_norm = {one.qk_norm or 'unset'}, "
        f"qkv_bias = {str(one.qkv_bias).lower()}"
        for one, design in zip(FAMILIES.values(), designs, strict=True)
    )
    raise DepthbenchError(
        f"design '{label_of(config.design)}' with backbone.qk_norm = {backbone.qk_norm or 'unset'} "
        f"and qkv_bias = {str(backbone.qkv_bias).lower()} is no family of transformers "
        f"({kinds}). {INSTEAD}"
    )
