"""Kinds of backbone: which branches stand at the two sites of a block."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, final

import torch
from jaxtyping import Float
from pydantic import SerializeAsAny
from torch import Tensor

from depthbench.config import by_name
from depthbench.errors import DepthbenchError, unknown
from depthbench.nn.attention import Attention
from depthbench.nn.branch import Backbone, Branch, Load, Role
from depthbench.nn.feedforward import SwiGLU
from depthbench.nn.hybrid import AttentionBesideStates, HybridBackbone
from depthbench.nn.moe import MoEBackbone, RoutedExperts, router_penalty
from depthbench.nn.ssm import SelectiveStateSpace
from depthbench.shapes import Shape

Std = Callable[[Role], float]
"""Standard deviation at the start of a branch matrix of this role."""


class BackboneKind(ABC):
    """Builds the branches of a block; what it is made of stands in its config."""

    Config: ClassVar[type[Backbone]]

    def __init__(self, config: Any) -> None:
        self.config = config

    @abstractmethod
    def attention(self, shape: Shape, std: Std) -> Branch:
        """The branch of a block's first site."""

    @abstractmethod
    def feedforward(self, shape: Shape, std: Std) -> Branch:
        """The branch of a block's second site."""

    def penalty(self, loads: Sequence[Load]) -> Float[Tensor, ""]:
        """What training adds to the loss for how routers spread the tokens; 0 without routers."""
        return torch.zeros(())


@final
class Dense(BackboneKind):
    """Attention, and a SwiGLU for every token."""

    Config = Backbone

    def attention(self, shape: Shape, std: Std) -> Attention:
        return Attention(shape, self.config, std("qk"), std("v"), std("o"))

    def feedforward(self, shape: Shape, std: Std) -> SwiGLU:
        return SwiGLU(shape, std("gate_up"), std("down"))


@final
class MoE(BackboneKind):
    """Attention, and a few of many SwiGLUs for every token."""

    Config = MoEBackbone

    def attention(self, shape: Shape, std: Std) -> Attention:
        return Attention(shape, self.config, std("qk"), std("v"), std("o"))

    def feedforward(self, shape: Shape, std: Std) -> RoutedExperts:
        return RoutedExperts(self.config, shape, std("gate_up"), std("down"))

    def penalty(self, loads: Sequence[Load]) -> Float[Tensor, ""]:
        return router_penalty(self.config, loads)


@final
class Hybrid(BackboneKind):
    """Attention beside a state-space branch, and a SwiGLU for every token."""

    Config = HybridBackbone

    def attention(self, shape: Shape, std: Std) -> AttentionBesideStates:
        sizes, eps = self.config.sizes(shape), self.config.norm_eps
        return AttentionBesideStates(
            Attention(shape, self.config, std("qk"), std("v"), std("o")),
            SelectiveStateSpace(sizes, std("v"), std("o"), eps),
        )

    def feedforward(self, shape: Shape, std: Std) -> SwiGLU:
        return SwiGLU(shape, std("gate_up"), std("down"))


BACKBONES: dict[str, type[BackboneKind]] = {"dense": Dense, "moe": MoE, "hybrid": Hybrid}


def backbone_kind(config: Backbone) -> BackboneKind:
    """The kind that ``config`` configures."""
    return BACKBONES[config.name](config)


def parse_backbone(spec: Any) -> Backbone:
    """Config of a backbone from its name, or from a table with or without ``name``."""
    if isinstance(spec, Backbone):
        return spec
    table = {"name": spec} if isinstance(spec, str) else spec
    if not isinstance(table, dict):
        raise DepthbenchError(
            f'backbone {spec!r} is no table of settings. Write {{ name = "dense" }}'
        )
    name = table.get("name", "dense")
    if name not in BACKBONES:
        raise unknown("backbone", str(name), BACKBONES)
    return BACKBONES[name].Config.parse(table, f"backbone '{name}'")


BackboneChoice = Annotated[SerializeAsAny[Backbone], by_name(parse_backbone)]
"""A field that takes a backbone by name, table or config."""
