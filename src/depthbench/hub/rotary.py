"""Rotary embeddings in transformers' words and ours."""

from typing import Any

from depthbench.errors import DepthbenchError
from depthbench.nn.branch import Backbone
from depthbench.nn.rope_scaling import KINDS

NAMES = {
    "linear": {"factor": "factor"},
    "llama3": {
        "factor": "factor",
        "length": "original_max_position_embeddings",
        "low": "low_freq_factor",
        "high": "high_freq_factor",
    },
    "yarn": {
        "factor": "factor",
        "length": "original_max_position_embeddings",
        "fast": "beta_fast",
        "slow": "beta_slow",
        "whole": "truncate",
        "attention": "attention_factor",
    },
}
"""Ours and theirs, by kind of scaling."""
PLAIN = "default"


def theirs_of(backbone: Backbone) -> dict[str, Any]:
    """``rope_parameters``."""
    found: dict[str, Any] = {"rope_type": PLAIN, "rope_theta": backbone.rope_base}
    scaling = backbone.rope_scaling
    if scaling is None:
        return found
    given = scaling.all_fields()
    named = {theirs: given[own] for own, theirs in NAMES[scaling.name].items()}
    return found | {"rope_type": scaling.name} | {k: v for k, v in named.items() if v is not None}


def ours_of(given: dict[str, Any], positions: int, source: str, meanwhile: str) -> dict[str, Any]:
    """``rope_base`` and ``rope_scaling`` of a backbone, from ``rope_parameters``.

    ``positions`` is what the config names where it says nothing of the first training. Raises
    `DepthbenchError` for kinds of scaling that are none of ours, by name.
    """
    base = {"rope_base": float(given.get("rope_theta", 10000.0))}
    part, kind = given.get("partial_rotary_factor", 1.0), given.get("rope_type", PLAIN)
    if part != 1.0:
        raise DepthbenchError(
            f"{source}: partial_rotary_factor = {part}, but our backbone turns heads whole. "
            f"{meanwhile}"
        )
    if kind == PLAIN:
        return base
    mscales = [name for name in ("mscale", "mscale_all_dim") if given.get(name)]
    if kind not in KINDS or mscales:
        what = f"rope_type = {kind}" + (f" with {mscales[0]}" if mscales else "")
        raise DepthbenchError(
            f"{source}: {what} is a scaling of its rotary embedding that our backbone does not "
            f"have. Allowed: {', '.join((PLAIN, *KINDS))}. {meanwhile}"
        )
    if "length" in KINDS[kind].model_fields:
        given = {"original_max_position_embeddings": positions} | given
    named = {own: given.get(theirs) for own, theirs in NAMES[kind].items()}
    return base | {
        "rope_scaling": {"name": kind} | {k: v for k, v in named.items() if v is not None}
    }
