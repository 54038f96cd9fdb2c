"""Time per output token: every design against pre-norm, and pre-norm against transformers' LLaMA.

    python benchmarks/decode.py [--quick] [--json FILE]

One process, one thread, CPU time. All models continue the same prompt in turn, round after round,
and each figure is a median over rounds. The LLaMA carries pre-norm's weights; that its logits are
the same is checked first.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from depthbench.designs import REGISTRY, parse_design
from depthbench.files import write_atomic
from depthbench.machine import describe, prepare_process
from depthbench.nn.model import Model, ModelConfig
from depthbench.shapes import Shape
from timing import medians

PROMPT, NEW = 128, 32
SHAPES = {
    "d256 L6": Shape(layers=6, width=256, heads=4, kv_heads=4, ffn=688, vocab=8192),
    "d576 L12 GQA": Shape(layers=12, width=576, heads=9, kv_heads=3, ffn=1536, vocab=8192),
    "d48 L16": Shape(layers=16, width=48, heads=3, kv_heads=3, ffn=128, vocab=257),
}
LLAMA = "transformers LLaMA"

Decoder = Callable[[], float]
"""Prefills the prompt, then decodes; CPU seconds of the decoding alone."""


def model_of(design: str, shape: Shape) -> Model:
    """A fresh model in float32."""
    return Model.build(ModelConfig(shape=shape, design=parse_design(design)), seed=0)


def ours(model: Model, prompt: Tensor) -> Decoder:
    """Greedy decoding with `Model.step`."""

    def run() -> float:
        cache = model.cache(1, PROMPT + NEW)
        token = model.step(prompt, cache, last=True).argmax(-1)
        start = time.process_time()
        for _ in range(NEW):
            token = model.step(token, cache).argmax(-1)
        return time.process_time() - start

    return run


def theirs(llama: LlamaForCausalLM, prompt: Tensor) -> Decoder:
    """The same by hand: forward over its own cache, without `generate`'s extra work."""

    @torch.no_grad()
    def run() -> float:
        cache = DynamicCache(config=llama.config)
        token = llama(prompt, cache=cache, use_cache=True, logits_to_keep=1).logits.argmax(-1)
        start = time.process_time()
        for _ in range(NEW):
            token = llama(token, cache=cache, use_cache=True).logits.argmax(-1)
        return time.process_time() - start

    return run


@torch.no_grad()
def llama_like(model: Model) -> LlamaForCausalLM:
    """transformers' LLaMA with the weights of a pre-norm model."""
    shape, backbone = model.config.shape, model.config.backbone
    config = LlamaConfig(
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        intermediate_size=shape.ffn,
        vocab_size=shape.vocab,
        rms_norm_eps=backbone.norm_eps,
        max_position_embeddings=PROMPT + NEW,
        tie_word_embeddings=False,
        attn_implementation="sdpa",
    )
    llama = LlamaForCausalLM(config).eval()
    keys = shape.kv_heads * shape.head_dim
    state = model.state_dict()
    weights = {
        "model.embed_tokens.weight": state["embed.weight"],
        "model.norm.weight": state["final_norm.gain"],
        "lm_head.weight": state["head.weight"],
    }
    for number in range(shape.layers):
        block, layer = f"blocks.{number}", f"model.layers.{number}"
        qkv = state[f"{block}.attention.qkv.weight"].split([shape.width, keys, keys])
        gate_up = state[f"{block}.feedforward.gate_up.weight"].chunk(2)
        for name, weight in zip(("q", "k", "v"), qkv, strict=True):
            weights[f"{layer}.self_attn.{name}_proj.weight"] = weight
        for name, weight in zip(("gate", "up"), gate_up, strict=True):
            weights[f"{layer}.mlp.{name}_proj.weight"] = weight
        weights[f"{layer}.self_attn.o_proj.weight"] = state[f"{block}.attention.o.weight"]
        weights[f"{layer}.mlp.down_proj.weight"] = state[f"{block}.feedforward.down.weight"]
        for name, site in (("input", "attention"), ("post_attention", "feedforward")):
            gain = state[f"{block}.{site}_connection.norm.gain"]
            weights[f"{layer}.{name}_layernorm.weight"] = gain
    llama.load_state_dict(weights)
    return llama


@torch.no_grad()
def check_same(model: Model, llama: LlamaForCausalLM, prompt: Tensor) -> float:
    """Largest difference of the logits over the largest logit; raises if they are not the same."""
    ours, theirs = model(prompt), llama(prompt).logits
    off = ((ours - theirs).abs().max() / theirs.abs().max()).item()
    if off > 1e-4:
        raise SystemExit(f"the logits differ by {off:.2g}: these are not the same model")
    return off


def measure(label: str, shape: Shape, rounds: int) -> dict[str, Any]:
    """All designs and the LLaMA at one shape."""
    prompt = torch.randint(shape.vocab, (1, PROMPT), generator=torch.Generator().manual_seed(0))
    plain = model_of("prenorm", shape)
    llama = llama_like(plain)
    off = check_same(plain, llama, prompt)
    decoders = {name: ours(model_of(name, shape), prompt) for name in REGISTRY}
    found = {
        name: 1e3 * seconds / NEW
        for name, seconds in medians({LLAMA: theirs(llama, prompt), **decoders}, rounds).items()
    }
    return {"shape": label, "logits_off": off, "milliseconds_a_token": found}


def show(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        found = row["milliseconds_a_token"]
        table = Table("model", "ms a token", "× prenorm", title=row["shape"])
        for name, milliseconds in found.items():
            ratio = milliseconds / found["prenorm"]
            table.add_row(name, f"{milliseconds:.2f}", f"{ratio:.2f}")
        Console().print(table)


def main(
    quick: Annotated[bool, typer.Option(help="One round: a look, no figures.")] = False,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write all figures to this file.")
    ] = None,
) -> None:
    """Measure and print side by side. Needs `pip install -e .[bench]`."""
    prepare_process(threads=1)
    rounds = 1 if quick else 7
    rows = [measure(label, shape, rounds) for label, shape in SHAPES.items()]
    show(rows)
    if json_path:
        figures = {"machine": describe("cpu", torch.float32).resolved(), "rounds": rounds}
        write_atomic(json_path, json.dumps(figures | {"rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    typer.run(main)
