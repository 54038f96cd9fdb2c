"""What is said of a design in tables: its card, its own parameters, its options."""

import inspect
from typing import Any

from depthbench.designs import design_class, parse_design
from depthbench.docs.markdown import bound
from depthbench.nn.count import count_parameters
from depthbench.nn.model import ModelConfig
from depthbench.shapes import Shape

STATED = Shape(layers=24, width=1024, heads=16, kv_heads=16, ffn=2736, vocab=50280)
"""The shape that own parameters and operations are counted at: the middle of the 400m family."""


def row_of(name: str) -> dict[str, Any]:
    """Card of a design, and its own parameters at `STATED` as the model has them."""
    card = design_class(name).card
    config = ModelConfig(shape=STATED, design=parse_design(name))
    return {
        "name": name,
        "family": card.family,
        "sources": card.sources,
        "weights": card.weights,
        "own": card.own,
        "own_at_24_layers_width_1024": count_parameters(config).own,
        "equation": card.equation,
        "paper": card.paper,
        "peak_lr": card.peak_lr,
    }


def options_of(name: str) -> list[dict[str, Any]]:
    """Options of a design: name, default, what is allowed and what it says of itself."""
    config = design_class(name).Config
    default = config(name=name).all_fields()
    properties = config.model_json_schema()["properties"]
    return [
        {
            "name": key,
            "default": default[key],
            "allowed": _allowed(schema),
            "meaning": " ".join(schema.get("description", "").split()),
        }
        for key, schema in properties.items()
        if key != "name"
    ]


def words_of(kind: type) -> str:
    """A class's docstring, its own and not its base's."""
    return inspect.cleandoc(vars(kind).get("__doc__") or "")


def shown(default: Any) -> str:
    """A default value as a study file writes it."""
    return "unset" if default is None else str(default).lower()


def _allowed(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " | ".join(map(_allowed, schema["anyOf"]))
    if schema.get("type") == "null":
        return "unset"
    if "enum" in schema:
        return " | ".join(str(value) for value in schema["enum"])
    limits = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    bounds = [bound(sign, schema[key]) for key, sign in limits.items() if key in schema]
    return ", ".join([str(schema["type"]), *bounds])
