"""Residual designs. To add one: a file beside this one and a line in the registry."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import SerializeAsAny
from torch import nn

from depthbench.config import by_name
from depthbench.designs.attnres import AttnRes
from depthbench.designs.base import Design, DesignConfig
from depthbench.designs.block_attnres import BlockAttnRes
from depthbench.designs.cascade import Cascade
from depthbench.designs.deepnorm import DeepNorm
from depthbench.designs.denseformer import DenseFormer
from depthbench.designs.dynamic_dense import DynamicDense
from depthbench.designs.frac import Frac
from depthbench.designs.hc import HyperConnections
from depthbench.designs.highway import Highway
from depthbench.designs.keel import Keel
from depthbench.designs.layerscale import LayerScale
from depthbench.designs.lns import LNS
from depthbench.designs.mhc import MHC
from depthbench.designs.mhc_lite import MHCLite
from depthbench.designs.mix_ln import MixLN
from depthbench.designs.moda import MoDA
from depthbench.designs.momentum import Momentum
from depthbench.designs.ngpt import NGPT
from depthbench.designs.plain import Plain
from depthbench.designs.postnorm import PostNorm
from depthbench.designs.prenorm import PreNorm
from depthbench.designs.resi_dual import ResiDual
from depthbench.designs.rezero import ReZero
from depthbench.designs.sandwich import Sandwich
from depthbench.designs.value_residual import ValueResidual
from depthbench.designs.wrapped import Wrapped
from depthbench.errors import DepthbenchError, unknown

REGISTRY: dict[str, type[Design[Any]]] = {
    "prenorm": PreNorm,
    "sandwich": Sandwich,
    "lns": LNS,
    "deepnorm": DeepNorm,
    "keel": Keel,
    "hc": HyperConnections,
    "mhc": MHC,
    "attnres": AttnRes,
    "block_attnres": BlockAttnRes,
    "moda": MoDA,
    "postnorm": PostNorm,
    "mix_ln": MixLN,
    "rezero": ReZero,
    "layerscale": LayerScale,
    "highway": Highway,
    "plain": Plain,
    "ngpt": NGPT,
    "resi_dual": ResiDual,
    "mhc_lite": MHCLite,
    "frac": Frac,
    "denseformer": DenseFormer,
    "dynamic_dense": DynamicDense,
    "value_residual": ValueResidual,
    "momentum": Momentum,
    "cascade": Cascade,
}


def design_class(name: str) -> type[Design[Any]]:
    """The registered design; an error with the nearest name otherwise."""
    if name.endswith(".py"):
        raise DepthbenchError(
            f"design '{name}': a file of your own is for depthbench check. To use it elsewhere, "
            "put it into the package's designs and its class into their registry"
        )
    if name not in REGISTRY:
        raise unknown("design", name, REGISTRY)
    return REGISTRY[name]


def add_design(kind: type[Design[Any]]) -> str:
    """Register a design for this process; its name.

    Raises `DepthbenchError` if the name is taken by another.
    """
    name = kind.Config.model_fields["name"].default
    if REGISTRY.setdefault(name, kind) is not kind:
        raise DepthbenchError(
            f"design '{name}' is there already. Give yours another name in its Config"
        )
    return name


def parse_design(spec: str | dict[str, Any] | DesignConfig) -> DesignConfig:
    """Config of a design from its name, or from a table with ``name`` and options."""
    if isinstance(spec, DesignConfig):
        return spec
    table = {"name": spec} if isinstance(spec, str) else spec
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise DepthbenchError(
            f"design {spec!r} has no name. Write 'hc' or {{ name = \"hc\", streams = 2 }}"
        )
    return design_class(table["name"]).Config.parse(table, f"design '{table['name']}'")


DesignChoice = Annotated[SerializeAsAny[DesignConfig], by_name(parse_design)]
"""A field that takes a design by name, table or config."""


def label_of(config: DesignConfig) -> str:
    """Name, plus the options that differ from the default: ``hc(mix=false)``."""
    default = type(config)(name=config.name).all_fields()
    changed = {key: v for key, v in config.all_fields().items() if v != default[key]}
    options = ",".join(f"{key}={str(v).lower()}" for key, v in changed.items())
    return f"{config.name}({options})" if options else config.name


def wrap(
    design: str | dict[str, Any] | DesignConfig,
    branches: Sequence[nn.Module],
    width: int,
    *,
    seed: int = 0,
    norm_eps: float = 1e-6,
) -> Wrapped:
    """A module that runs ``branches`` one after the other, joined by a residual design.

    Each branch maps ``(…, width)`` to the same shape: what is inside a residual block, without its
    norm and without its skip; the design brings both. Two branches make a block of the design, as
    attention and feed-forward do. Branches keep their parameters; the design's own start from
    ``seed``. What follows (a final norm, a head) stays yours.

    Raises `DepthbenchError` for designs that change attention itself, for an odd number of
    branches and for an odd width.
    """
    config = parse_design(design)
    kind = design_class(config.name)
    return Wrapped(kind, config, branches, width, seed=seed, norm_eps=norm_eps)
