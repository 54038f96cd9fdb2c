"""README.md of a model: what it is, where it comes from, and what is known of it."""

from depthbench.designs import design_class, label_of
from depthbench.hub.families import family_of
from depthbench.hub.source import Source
from depthbench.nn.branch import Backbone
from depthbench.nn.count import count_parameters

HEAD = """---
library_name: transformers
pipeline_tag: text-generation
tags:
- depthbench
- {design}
---

# {title}

{origin}, written by depthbench.

{load}

| | |
|---|---|
{rows}
"""
LOADS = {
    "llama": 'A plain {title}: `AutoModelForCausalLM.from_pretrained("FOLDER")`.',
    "depthbench": "```python\nimport depthbench.hub\nfrom transformers import AutoModelForCausalLM"
    '\n\ndepthbench.hub.register()\nmodel = AutoModelForCausalLM.from_pretrained("FOLDER")\n```',
}


def card_of(source: Source, form: str) -> str:
    """The card of ``source`` as a model in ``form``."""
    config = source.model.config
    shape, counts = config.shape, count_parameters(config)
    label = label_of(config.design)
    wide = "" if shape.head_width is None else f" {shape.head_width} wide"
    heads = f"{shape.heads} heads{wide}" + (
        "" if shape.kv_heads == shape.heads else f", {shape.kv_heads} of keys and values"
    )
    facts = {
        "design": f"`{label}`: {design_class(config.design.name).card.equation}",
        "paper": design_class(config.design.name).card.paper,
        "backbone": ", ".join([config.backbone.name, *_attention(config.backbone)]),
        "shape": f"{shape.layers} layers, width {shape.width}, {heads}, feed-forward {shape.ffn}",
        "vocabulary": f"{shape.vocab:,}" + (", tied head" if config.backbone.tied_head else ""),
        "parameters": f"{counts.total:,} ({counts.active:,} for one token)",
    }
    facts |= {name: one for name, one in source.facts.items() if name not in facts}
    facts |= {f"note {n}": one for n, one in enumerate(source.notes, start=1)}
    rows = "\n".join(f"| {name} | {_cell(one)} |" for name, one in facts.items())
    load = LOADS[form]
    if form == "llama":
        load = load.format(title=family_of(config).title)
    origin = source.origin[0].upper() + source.origin[1:]
    title = f"{label}, {shape.layers} layers"
    return HEAD.format(design=config.design.name, title=title, origin=origin, load=load, rows=rows)


def _attention(backbone: Backbone) -> list[str]:
    """What attention does besides LLaMA's."""
    found = []
    if backbone.qk_norm is not None:
        found.append(f"queries and keys normed ({backbone.qk_norm})")
    if backbone.qkv_bias:
        found.append("biases on queries, keys and values")
    if backbone.rope_scaling is not None:
        scaling = backbone.rope_scaling
        found.append(f"RoPE scaled ({scaling.name}, {scaling.factor:g} times)")
    return found


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
