"""The decoder: embedding, blocks, one final norm, an untied head, and a design in between."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from pydantic import SerializeAsAny, field_validator
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from depthbench.config import Frozen
from depthbench.designs import design_class, parse_design
from depthbench.designs.base import Connection, Design, DesignConfig, Route, Site
from depthbench.errors import DepthbenchError
from depthbench.nn.attention import Attention
from depthbench.nn.branch import Backbone, Branch, Context, Depth, Entry, Role
from depthbench.nn.feedforward import SwiGLU
from depthbench.nn.norm import RMSNorm
from depthbench.nn.parameters import Parametrised, Projection, Start, initialise, normal_rows
from depthbench.nn.rope import rotary_table
from depthbench.shapes import Shape

Tap = Callable[[int, Tensor, Tensor], Tensor]
"""``tap(site, x, y)`` returns what stands in for the output ``y`` of a branch with input ``x``."""


class ModelConfig(Frozen):
    """Everything that fixes a model's function up to its parameters."""

    shape: Shape
    design: SerializeAsAny[DesignConfig]
    backbone: Backbone = Backbone()

    @field_validator("design", mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> DesignConfig:
        try:
            return parse_design(value)
        except DepthbenchError as error:
            raise ValueError(str(error)) from None


@dataclass
class Trace:
    """What a forward saw: depth states ``z_0 … z_L`` and the route of every site, in order."""

    depth_states: list[Tensor] = field(default_factory=list)
    routes: list[tuple[int, Route]] = field(default_factory=list)


class Embedding(Parametrised):
    """Token embedding."""

    def __init__(self, vocab: int, width: int, std: float) -> None:
        super().__init__()
        self.std = std
        self.weight = nn.Parameter(torch.empty(vocab, width))

    def starts(self) -> dict[str, Start]:
        return {"weight": normal_rows([(self.weight.shape[0], self.std)])}

    def forward(self, tokens: Int[Tensor, "b t"]) -> Float[Tensor, "b t d"]:
        return nn.functional.embedding(tokens, self.weight)


class Block(nn.Module):
    """Two branches and the connections of their sites."""

    def __init__(self, number: int, config: ModelConfig, design: Design[Any]) -> None:
        super().__init__()
        shape, backbone = config.shape, config.backbone
        self.number = number

        def std(role: Role) -> float:
            deep = (2 * shape.layers) ** -0.5 if backbone.depth_scaled_init else 1.0
            return (
                backbone.init_std
                * design.branch_scale(role)
                * (deep if role in ("o", "down") else 1.0)
            )

        self.attention = Attention(shape, std("qk"), std("v"), std("o"))
        self.feedforward = SwiGLU(shape, std("gate_up"), std("down"))
        self.attention_connection = design.connection(Site(2 * number, shape.layers))
        self.feedforward_connection = design.connection(Site(2 * number + 1, shape.layers))

    def sites(self) -> Iterator[tuple[int, Branch, Connection[Any]]]:
        """Number, branch and connection of both sites."""
        yield 2 * self.number, self.attention, self.attention_connection
        yield 2 * self.number + 1, self.feedforward, self.feedforward_connection


class Model(nn.Module):
    """``logits = head(final_norm(readout(state)))`` of any design.

    Build with `Model.build`; the constructor leaves parameters as memory holds them, for use on
    the meta device and before loading.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.checkpointing = False
        shape, backbone = config.shape, config.backbone
        self.embed = Embedding(shape.vocab, shape.width, backbone.init_std)
        self.design = design_class(config.design.name)(config.design, shape, backbone)
        self.blocks = nn.ModuleList(
            Block(number, config, self.design) for number in range(shape.layers)
        )
        self.final_norm = RMSNorm(shape.width, backbone.norm_eps)
        self.head = Projection(shape.width, [(shape.vocab, backbone.init_std)])

    @classmethod
    def on_meta(cls, config: ModelConfig) -> "Model":
        """Shapes only: no memory, no numbers."""
        with torch.device("meta"):
            return cls(config)

    @classmethod
    def build(
        cls,
        config: ModelConfig,
        seed: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> "Model":
        """A model whose every parameter depends on ``(config, seed)`` alone, not on the device."""
        model = cls.on_meta(config).to(dtype).to_empty(device=device)
        initialise(model, seed)
        return model

    def forward(
        self,
        tokens: Int[Tensor, "b t"],
        *,
        program: Sequence[int] | None = None,
        tap: Tap | None = None,
        trace: Trace | None = None,
    ) -> Float[Tensor, "b t v"]:
        """Logits of the next token.

        ``program`` names the blocks to run, in order; ``tap`` edits branch outputs; ``trace``
        collects depth states and routes.
        """
        order = range(self.config.shape.layers) if program is None else self._checked(program)
        context = self._context(tokens)
        state = self.design.open(self.embed(tokens))
        if trace is not None:
            trace.depth_states.append(self.design.depth_state(state))
        for place, number in zip(places(order), order, strict=True):
            block = self.blocks[number]
            state = self._run_block(block, self.design.enter(state, place), context, tap, trace)
            if trace is not None:
                trace.depth_states.append(self.design.depth_state(state))
        return self.head(self.final_norm(self.design.readout(state)))

    def _run_block(
        self, block: nn.Module, state: Any, context: Context, tap: Tap | None, trace: Trace | None
    ) -> Any:
        whole = self.checkpointing and self.design.checkpoint_unit == "block"
        if whole and trace is None and torch.is_grad_enabled():
            return checkpoint(self._sites, block, state, context, tap, None, use_reentrant=False)
        return self._sites(block, state, context, tap, trace)

    def _sites(
        self, block: nn.Module, state: Any, context: Context, tap: Tap | None, trace: Trace | None
    ) -> Any:
        assert isinstance(block, Block)
        for site, branch, connection in block.sites():
            x, route = connection.read(state)
            y, entry = self._run_branch(branch, x, context, route.depth)
            if tap is not None:
                y = tap(site, x, y)
            state = connection.write(state, y, route, entry)
            if trace is not None:
                trace.routes.append((site, route))
        return state

    def _run_branch(
        self, branch: Branch, x: Tensor, context: Context, depth: Depth | None
    ) -> tuple[Tensor, Entry | None]:
        if (
            self.checkpointing
            and self.design.checkpoint_unit == "branch"
            and torch.is_grad_enabled()
        ):
            return checkpoint(branch, x, context, depth, use_reentrant=False)
        return branch(x, context, depth)

    def _context(self, tokens: Int[Tensor, "b t"]) -> Context:
        weight = self.embed.weight
        dtype = torch.promote_types(weight.dtype, torch.float32)
        base, shape = self.config.backbone.rope_base, self.config.shape
        return Context(*rotary_table(tokens.shape[1], shape.head_dim, base, weight.device, dtype))

    def _checked(self, program: Sequence[int]) -> Sequence[int]:
        layers = self.config.shape.layers
        for number in program:
            if not 0 <= number < layers:
                raise DepthbenchError(
                    f"program names block {number}, but the model has blocks 0 to {layers - 1}"
                )
        return program


def places(program: Sequence[int]) -> list[int]:
    """Where each block of a program runs, for designs that group neighbouring sites.

    A program that only leaves blocks out (strictly rising) keeps every block at its own place;
    any other runs its blocks at their positions.
    """
    if all(b > a for a, b in itertools.pairwise(program)):
        return list(program)
    return list(range(len(program)))
