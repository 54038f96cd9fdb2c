"""Checkpoints of OLMo-core, the format of the published DepthBench models.

A folder with ``config.json`` and a distributed checkpoint under ``model_and_optim/``. OLMo-core is
not needed: sizes are those of the tensors, and the config says what tensors cannot (heads, rope,
eps, the kind of block).
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from depthbench.designs import label_of, parse_design
from depthbench.errors import DepthbenchError
from depthbench.files import write_atomic
from depthbench.hub.olmo_names import (
    BRANCHES,
    ENDS,
    NORMS,
    Weights,
    hyper_connection,
    matrices,
    mix_names,
    stream_weights,
    stream_weights_back,
    vectors,
)
from depthbench.nn.branch import Backbone
from depthbench.nn.model import Model, ModelConfig
from depthbench.shapes import Shape

TENSORS = "model_and_optim"
CONFIG = "config.json"
BLOCKS = {
    "default": "prenorm",
    "default_scaled": "lns",
    "lns": "lns",
    "peri_norm": "sandwich",
    "sandwich": "sandwich",
    "keel": "keel",
    "attnres": "attnres",
    "attn_res": "attnres",
    "hyper_connection": "hc",
    "hyper_connections": "hc",
    "hc": "hc",
}
"""Design by the name of their kind of block."""
NAMES = {
    "prenorm": "default",
    "lns": "default_scaled",
    "sandwich": "peri_norm",
    "keel": "keel",
    "attnres": "default",
    "hc": "default",
}
OPTIMIZER = ("optim.", "optimizer.")


def is_olmo_core(folder: Path) -> bool:
    """Whether ``folder`` looks like such a checkpoint."""
    return (folder / TENSORS).is_dir() and (folder / CONFIG).is_file()


def read_olmo_core(folder: Path) -> Model:
    """The model in ``folder``, with its weights.

    Raises `DepthbenchError` for a broken checkpoint and for a kind of model that is none of ours.
    """
    # the library of distributed checkpoints takes long to import
    from depthbench.hub.distributed_checkpoint import read_tensors

    settings = _settings(folder)
    theirs = {
        name: tensor
        for name, tensor in read_tensors(folder / TENSORS).items()
        if not name.startswith(OPTIMIZER)
    }
    config = _config(folder, settings, theirs)
    model = Model.on_meta(config)
    known = dict(theirs)
    try:
        ours = _ours(model, known)
    except KeyError as error:
        raise DepthbenchError(
            f"{folder}: a model of design '{config.design.name}' needs the parameter "
            f"{error.args[0]}, which is not there"
        ) from None
    if known:
        raise DepthbenchError(
            f"{folder} holds parameters that no design of ours has: {', '.join(sorted(known)[:3])}"
        )
    try:
        model.load_state_dict(ours, assign=True)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise DepthbenchError(f"{folder}: its parameters do not fit together ({reason})") from None
    return model.eval()


def write_olmo_core(model: Model, folder: Path) -> None:
    """Write ``model`` as such a checkpoint.

    Raises `DepthbenchError` for a design that they do not have.
    """
    from depthbench.hub.distributed_checkpoint import write_tensors

    config, shape = model.config, model.config.shape
    name = config.design.name
    plain = config.backbone.name == "dense" and config.backbone.plain_attention
    plain = plain and config.design.later.isdisjoint(config.design.resolved())
    if name not in NORMS or not plain or config.backbone.tied_head or shape.head_width:
        raise DepthbenchError(
            f"design '{label_of(config.design)}' on backbone '{config.backbone.name}' has no "
            f"OLMo-core form. Allowed: {', '.join(NORMS)} on 'dense' with a head of its own, "
            "and attention as in LLaMA"
        )
    norm = {"name": "rms", "eps": config.backbone.norm_eps, "bias": False}
    attention = {
        "n_heads": shape.heads,
        "n_kv_heads": shape.kv_heads,
        "bias": False,
        "rope": {"name": "default", "theta": config.backbone.rope_base},
    }
    block = {
        "name": NAMES[name],
        "attention": attention,
        "feed_forward": {"hidden_size": shape.ffn, "bias": False},
        "layer_norm": norm,
    }
    settings = {
        "model": {
            "d_model": shape.width,
            "n_layers": shape.layers,
            "vocab_size": shape.vocab,
            "block": block,
            "lm_head": {"layer_norm": norm, "bias": False},
        },
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(folder / TENSORS, _theirs(model))
    write_atomic(folder / CONFIG, json.dumps(settings, indent=1) + "\n")


def _settings(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DepthbenchError(f"{path} cannot be read: {error}. Copy it again") from None
    model = found.get("model") if isinstance(found, dict) else None
    if not isinstance(model, dict):
        raise DepthbenchError(f"{path} has no table 'model', as OLMo-core writes it")
    return model


def _config(folder: Path, settings: dict[str, Any], theirs: Weights) -> ModelConfig:
    block = _table(folder, settings, "block")
    attention = _table(folder, block, "attention")
    heads = attention.get("n_heads")
    if not isinstance(heads, int):
        raise DepthbenchError(f"{folder / CONFIG}: model.block.attention.n_heads is missing")
    numbers = {int(name.split(".")[1]) for name in theirs if name.startswith("blocks.")}
    try:
        vocab, width = theirs["embeddings.weight"].shape
        keys = theirs["blocks.0.attention.w_k.weight"].shape[0]
        ffn = theirs["blocks.0.feed_forward.w1.weight"].shape[0]
    except KeyError as error:
        raise DepthbenchError(f"{folder} lacks the parameter {error.args[0]}") from None
    shape = Shape.parse(
        {
            "layers": len(numbers),
            "width": width,
            "heads": heads,
            "kv_heads": keys * heads // width,
            "ffn": ffn,
            "vocab": vocab,
        },
        str(folder),
    )
    rope, norm = _table(folder, attention, "rope"), _table(folder, block, "layer_norm")
    _refuse_scaled(folder, rope)
    constants = {"rope_base": rope.get("theta"), "norm_eps": norm.get("eps")}
    backbone = Backbone.parse({k: v for k, v in constants.items() if v is not None}, str(folder))
    return ModelConfig(shape=shape, design=_design(folder, block, theirs), backbone=backbone)


def _table(folder: Path, settings: dict[str, Any], name: str) -> dict[str, Any]:
    """The table ``name`` of settings; an empty one where there is none."""
    found = settings.get(name) or {}
    if not isinstance(found, dict):
        raise DepthbenchError(f"{folder / CONFIG}: '{name}' is no table, as OLMo-core writes it")
    return found


def _refuse_scaled(folder: Path, rope: dict[str, Any]) -> None:
    if rope.get("scaling"):
        raise DepthbenchError(
            f"{folder}: its rotary embedding is scaled, which the backbone here does not have"
        )


def _design(folder: Path, block: dict[str, Any], theirs: Weights) -> Any:
    """From the parameters where they tell, and the kind of block."""
    if any("hyper_connection" in name for name in theirs):
        alpha = next(one for name, one in theirs.items() if name.endswith("static_alpha"))
        return parse_design({"name": "hc", "streams": alpha.shape[0]})
    if "res_proj.weight" in theirs or "res_proj" in theirs:
        return parse_design("attnres")
    kind = str(block.get("name", "default")).lower()
    if kind not in BLOCKS:
        raise DepthbenchError(
            f"{folder / CONFIG}: model.block.name = '{kind}' is a kind of block that no design "
            f"here is. Known: {', '.join(sorted(BLOCKS))}"
        )
    return parse_design(BLOCKS[kind])


def _ours(model: Model, theirs: Weights) -> Weights:
    """Our parameters; what is used of ``theirs`` is taken out. Raises `KeyError`."""
    layers, name = model.config.shape.layers, model.config.design.name
    found: Weights = {}
    for one, own in _pairs(layers, name):
        found[own] = theirs.pop(one)
    for block in range(layers):
        for joined in matrices(block):
            found[joined.ours] = torch.cat([theirs.pop(one) for one in joined.theirs])
    if name == "attnres":
        found |= _mixes(layers, theirs)
    if name == "hc":
        for place, ours in _stream_places(layers):
            for own, tensor in stream_weights(theirs, place).items():
                found[ours + own] = tensor
            for used in [one for one in theirs if one.startswith(place)]:
                del theirs[used]
    return found


def _mixes(layers: int, theirs: Weights) -> Weights:
    """Queries and gains of all mixes; the one before the first site has a single source."""
    kinds = {kind: _kind_of(theirs, kind) for kind in ("proj", "norm")}
    names = mix_names(layers)
    rows = {
        kind: torch.stack([theirs.pop(f"{name}_{ending}").reshape(-1) for name in names])
        for kind, ending in kinds.items()
    }
    for ending in kinds.values():
        theirs.pop(f"blocks.0.attn_res_{ending}", None)
    return {"design.query": rows["proj"], "design.gain": rows["norm"]}


def _kind_of(theirs: Weights, kind: str) -> str:
    """They are modules with a weight, or bare parameters."""
    return f"{kind}.weight" if f"res_{kind}.weight" in theirs else kind


def _theirs(model: Model) -> Weights:
    layers, name = model.config.shape.layers, model.config.design.name
    ours = dict(model.state_dict())
    found = {one: ours[own] for one, own in _pairs(layers, name)}
    shape = model.config.shape
    sizes = {3: [shape.queries, shape.keys, shape.keys], 2: [shape.ffn, shape.ffn]}
    for block in range(layers):
        for joined in matrices(block):
            count = len(joined.theirs)
            whole = ours[joined.ours]
            parts = [whole] if count == 1 else whole.split(sizes[count])
            found |= {one: part.clone() for one, part in zip(joined.theirs, parts, strict=True)}
    if name == "attnres":
        for row, mix in enumerate(mix_names(layers)):
            found[f"{mix}_proj.weight"] = ours["design.query"][row][None].clone()
            found[f"{mix}_norm.weight"] = ours["design.gain"][row].clone()
        found["blocks.0.attn_res_proj.weight"] = torch.zeros(1, shape.width)
        found["blocks.0.attn_res_norm.weight"] = torch.ones(shape.width)
    if name == "hc":
        for place, own in _stream_places(layers):
            inside = {k.removeprefix(own): v for k, v in ours.items() if k.startswith(own)}
            found |= stream_weights_back(inside, place)
    return found


def _pairs(layers: int, design: str) -> Iterator[tuple[str, str]]:
    """Parameters that are the same numbers: theirs and ours."""
    yield from ENDS
    for block in range(layers):
        yield from vectors(design, block)


def _stream_places(layers: int) -> Iterator[tuple[str, str]]:
    """Where a site's hyper-connection is: theirs and ours."""
    for block in range(layers):
        for theirs, ours in BRANCHES:
            yield hyper_connection(block, theirs), f"blocks.{block}.{ours}_connection."
