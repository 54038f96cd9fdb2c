"""Names and layouts of OLMo-core's parameters, beside ours.

Each entry of a block's parameters is theirs, ours and, where the numbers lie otherwise, how to turn
them: ours is split or joined from theirs by `Joined`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

Weights = dict[str, Tensor]
BRANCHES = (("attention", "attention"), ("feed_forward", "feedforward"))
"""Theirs and ours."""
NORMS = {
    "prenorm": ("norm", None),
    "lns": ("norm", None),
    "sandwich": ("norm_in", "norm_out"),
    "keel": ("norm_pre", "norm_post"),
    "attnres": ("norm", None),
    "hc": ("norm", None),
}
"""By design: our names of the norm before a branch and of the one behind it."""


@dataclass(frozen=True)
class Joined:
    """One of our matrices that is several of theirs, below each other."""

    ours: str
    theirs: tuple[str, ...]


def matrices(block: int) -> list[Joined]:
    """Of the branches of a block."""
    ours, theirs = f"blocks.{block}.", f"blocks.{block}."
    return [
        Joined(
            f"{ours}attention.qkv.weight",
            tuple(f"{theirs}attention.{one}.weight" for one in ("w_q", "w_k", "w_v")),
        ),
        Joined(f"{ours}attention.o.weight", (f"{theirs}attention.w_out.weight",)),
        Joined(
            f"{ours}feedforward.gate_up.weight",
            tuple(f"{theirs}feed_forward.{one}.weight" for one in ("w1", "w3")),
        ),
        Joined(f"{ours}feedforward.down.weight", (f"{theirs}feed_forward.w2.weight",)),
    ]


def vectors(design: str, block: int) -> list[tuple[str, str]]:
    """Norm gains of a block: theirs and ours."""
    before, behind = NORMS[design]
    found = []
    for theirs, ours in BRANCHES:
        place = f"blocks.{block}.{ours}_connection"
        found.append((f"blocks.{block}.{theirs}_norm.weight", f"{place}.{before}.gain"))
        # keel's first site has no norm behind it
        if behind is not None and not (design == "keel" and block == 0 and theirs == "attention"):
            found.append((f"blocks.{block}.post_{theirs}_norm.weight", f"{place}.{behind}.gain"))
    return found


ENDS = [
    ("embeddings.weight", "embed.weight"),
    ("lm_head.norm.weight", "final_norm.gain"),
    ("lm_head.w_out.weight", "head.weight"),
]
MIXES = ("attn_res", "mlp_res")
"""Of AttnRes: before a block's attention and before its feed-forward."""


def mix_names(layers: int) -> list[str]:
    """Theirs of the mix before every site but the first, and of the readout's."""
    before = [f"blocks.{block}.{kind}" for block in range(layers) for kind in MIXES]
    return [*before[1:], "res"]


def hyper_connection(block: int, theirs: str) -> str:
    """Where they keep the hyper-connection of a site."""
    return f"blocks.{block}.{theirs}_hyper_connection."


def stream_weights(theirs: Weights, place: str) -> Weights:
    """Our parameters of a hyper-connection, from theirs at ``place``.

    Their first column of ``static_alpha`` and ``dynamic_alpha_proj`` reads, the others mix.
    """
    alpha, projection = theirs[f"{place}static_alpha"], theirs[f"{place}dynamic_alpha_proj"]
    beta = theirs[f"{place}dynamic_beta_proj"].reshape(-1)
    found = {
        "static_read": alpha[:, 0],
        "static_mix": alpha[:, 1:],
        "static_write": theirs[f"{place}static_beta"].reshape(-1),
        "dynamic": torch.cat([projection.T, beta[None]]),
        "scale_read": theirs[f"{place}dynamic_alpha_scale"].reshape(()),
        "scale_write": theirs[f"{place}dynamic_beta_scale"].reshape(()),
    }
    # their norm of the streams may have no gain
    gains = [f"{place}{name}.weight" for name in ("layer_norm", "norm")]
    known = [theirs[name] for name in gains if name in theirs]
    found["norm_streams.gain"] = known[0] if known else torch.ones_like(beta)
    return {name: one.contiguous() for name, one in found.items()}


def stream_weights_back(ours: Weights, place: str) -> Weights:
    """The inverse of `stream_weights`."""
    projections, beta = ours["dynamic"][:-1], ours["dynamic"][-1]
    return {
        f"{place}static_alpha": torch.cat([ours["static_read"][:, None], ours["static_mix"]], 1),
        f"{place}dynamic_alpha_proj": projections.T.contiguous(),
        f"{place}dynamic_alpha_scale": ours["scale_read"].reshape(1),
        f"{place}static_beta": ours["static_write"],
        f"{place}dynamic_beta_proj": beta,
        f"{place}dynamic_beta_scale": ours["scale_write"].reshape(1),
        f"{place}layer_norm.weight": ours["norm_streams.gain"],
    }
