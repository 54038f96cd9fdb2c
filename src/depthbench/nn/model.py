"""The decoder: embedding, blocks, one final norm, a head, and a design in between."""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from depthbench.config import Frozen
from depthbench.designs import REGISTRY, DesignChoice, design_class, label_of
from depthbench.designs.base import Connection
from depthbench.errors import DepthbenchError
from depthbench.marks import Marks
from depthbench.nn.backbones import BackboneChoice
from depthbench.nn.block import Block, Tap, Trace
from depthbench.nn.branch import (
    Backbone,
    Branch,
    Context,
    Load,
    check_padding,
    document_starts,
    visible,
)
from depthbench.nn.cache import Cache, Room
from depthbench.nn.ends import Embedding, Head, OwnHead, TiedHead
from depthbench.nn.fused import Kernels
from depthbench.nn.loss import Finish
from depthbench.nn.norm import RMSNorm
from depthbench.nn.packed import pack, unpack
from depthbench.nn.parameters import initialise
from depthbench.nn.parametrization import Parametrization
from depthbench.nn.rope import rotary_table
from depthbench.shapes import Shape

if TYPE_CHECKING:
    from depthbench.nn.compiled import Compiler


class ModelConfig(Frozen):
    """Everything that fixes a model's function up to its parameters."""

    shape: Shape
    """Sizes."""
    design: DesignChoice
    """Residual design with its options."""
    backbone: BackboneChoice = Backbone()
    """What stands at the sites of a block."""
    marks: Marks = Marks()
    """Of the tokenizer, for designs that read them."""
    parametrization: Parametrization = Parametrization()
    """Factors of depth and width."""


class Model(nn.Module):
    """``logits = head(final_norm(readout(state)))`` of any design.

    Build with `Model.build`; the constructor leaves parameters as memory holds them, for use on
    the meta device and before loading.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.checkpointing = self.documents_apart = self.packs_states = False
        self.compiler: Compiler | None = None
        """Compiles what repeats, where gradients are formed and nobody looks inside."""
        shape, std = config.shape, config.backbone.init_std
        self.scaling = config.parametrization.at(shape)
        backbone = config.backbone.model_copy(update={"init_std": std * self.scaling.std})
        self.embed = Embedding(shape.vocab, shape.width, std)
        self.design = design_class(config.design.name)(config.design, shape, backbone)
        if config.parametrization.kind != "standard":
            self._check_scaled()
        self.blocks = nn.ModuleList(
            Block(number, shape, backbone, self.design, self.scaling.branch)
            for number in range(shape.layers)
        )
        self.final_norm = RMSNorm(shape.width, backbone.norm_eps)
        vocab, width, factor = shape.vocab, shape.width, self.scaling.head
        self.head: Head = (
            TiedHead(vocab, width, factor)
            if config.backbone.tied_head
            else OwnHead(vocab, width, std, factor)
        )

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
        padding: Int[Tensor, "b"] | None = None,
        loads: list[Load] | None = None,
        finish: Finish | None = None,
    ) -> Float[Tensor, "b kept v"] | Float[Tensor, "b t"] | Float[Tensor, ""]:
        """Logits of the next token.

        ``program`` names the blocks to run, in order; ``tap`` edits branch outputs; ``trace``
        collects depth states and routes; ``padding`` counts the tokens on the left of each
        sequence that are no text (their logits mean nothing); ``loads`` collects what routers did;
        ``finish`` makes something else of what the head reads, or keeps fewer positions.
        """
        order = range(self.config.shape.layers) if program is None else self._checked(program)
        cos, sin = self._rotary(tokens.shape[1])
        context = self._context(tokens, cos, sin, padding=padding, loads=loads, trace=trace)
        if tap is None and trace is None and torch.is_grad_enabled():
            context = replace(context, compiled=self.compiler)
        hidden = self._hidden(tokens, context, order, tap, trace)
        if finish is not None:
            return finish(hidden, self.head.matrix(self.embed.weight), self.head.factor)
        return self.head(hidden, self.embed.weight)

    def begin(
        self, tokens: Int[Tensor, "b t"], padding: Int[Tensor, "b"] | None = None
    ) -> tuple[Any, Context]:
        """The state before the first block, and what all blocks of this forward share."""
        context = self.context(tokens, padding)
        return self.design.open(self.embed(tokens), context), context

    def context(self, tokens: Int[Tensor, "b t"], padding: Int[Tensor, "b"] | None) -> Context:
        """What all blocks share in a forward over ``tokens``."""
        return self._context(tokens, *self._rotary(tokens.shape[1]), padding=padding)

    def end(self, hidden: Float[Tensor, "*n d"]) -> Float[Tensor, "*n v"]:
        """Logits of what the design reads out: the final norm and the head."""
        return self.head(self.final_norm(hidden), self.embed.weight)

    @torch.no_grad()
    def step(
        self,
        tokens: Int[Tensor, "b t"],
        cache: Cache,
        *,
        last: bool = False,
        trace: Trace | None = None,
    ) -> Float[Tensor, "b t_or_1 v"]:
        """Logits of the next ``t`` tokens of sequences whose earlier tokens ``cache`` holds.

        They equal `forward`'s on the whole sequences, under the cache's program. ``last`` leaves
        all positions but the last out of the head; ``trace`` collects as in `forward`. Raises
        `DepthbenchError` if the cache has no room for them.
        """
        self._fits(tokens, cache)
        context = self._context(tokens, cache.cos, cache.sin, padding=cache.padding, cache=cache)
        order = range(self.config.shape.layers) if cache.program is None else cache.program
        hidden = self._hidden(tokens, context, order, None, trace)
        cache.length += tokens.shape[1]
        return self.head(hidden[:, -1:] if last else hidden, self.embed.weight)

    def use_kernels(self, kernels: Kernels) -> None:
        """From now on ``kernels`` stand in for torch's own operations, where they suit.

        They give first derivatives alone, so this is for training.
        """
        self.design.kernels = kernels
        for _, _, connection in self.sites():
            connection.kernels = kernels

    def keep_documents_apart(self) -> None:
        """From now on `forward` treats each document of a sequence as if it ran alone.

        A token attends to its own document, where positions start at 0. Decoding with `step` takes
        a sequence for one document. Raises `DepthbenchError` where that is not defined.
        """
        if self.config.marks.document is None:
            raise DepthbenchError(
                "document_mask = true, but marks.document is not set: the model must be told "
                "which token starts a document"
            )
        self.design.check_documents_apart()
        self.documents_apart = True

    def sites(self) -> Iterator[tuple[int, Branch, Connection[Any]]]:
        """Number, branch and connection of every site, in order."""
        for block in self.blocks:
            assert isinstance(block, Block)
            yield from block.sites()

    def cache(
        self,
        batch: int,
        capacity: int,
        *,
        padding: Int[Tensor, "b"] | None = None,
        dtype: torch.dtype | None = None,
        program: Sequence[int] | None = None,
    ) -> Cache:
        """An empty cache for ``batch`` sequences of up to ``capacity`` positions.

        ``padding`` counts the tokens on the left of each sequence that are no text; ``dtype`` is
        that of keys and values, the weights' unless given; ``program`` names the blocks to run.
        Raises `DepthbenchError` for a program that `no_cache` refuses.
        """
        if program is not None and (reason := self.no_cache(program)):
            raise DepthbenchError(f"{reason}. Run forward over the whole sequence instead")
        weight = self.embed.weight
        room = Room(batch, capacity, weight.device, dtype or weight.dtype, self.config.marks)
        room.check()
        check_padding(padding, batch, capacity)
        sites, runs = list(self.sites()), Counter(program or ())
        return Cache(
            room,
            *self._rotary(capacity),
            branches=[branch.new_memory(room) for _, branch, _ in sites],
            connections=[connection.new_memory(room) for _, _, connection in sites],
            design=self.design.new_memory(room),
            padding=padding,
            program=program,
            again=[
                {site: one.new_memory(room) for site, one, _ in sites if runs[site // 2] > turn}
                for turn in range(1, max(runs.values(), default=1))
            ],
        )

    def no_cache(self, program: Sequence[int]) -> str | None:
        """Why ``program`` cannot be decoded over a cache; None where it can.

        Every run of a branch has a memory of its own, but what a connection keeps of earlier
        tokens is kept once.
        """
        repeated = [block for block, runs in Counter(self._checked(program)).items() if runs > 1]
        weight = self.embed.weight
        room = Room(1, 1, weight.device, weight.dtype, self.config.marks)
        keeps = any(one.new_memory(room) is not None for _, _, one in self.sites())
        if not repeated or not keeps:
            return None
        return (
            f"block {repeated[0]} runs more than once, and design "
            f"'{label_of(self.config.design)}' keeps earlier tokens at its sites once"
        )

    def grow(self, cache: Cache, capacity: int) -> None:
        """Make room in ``cache`` for ``capacity`` positions; what it holds stays."""
        room = replace(cache.room, capacity=capacity)
        for memory in cache.memories():
            memory.grow(room)
        cache.room = room
        cache.cos, cache.sin = self._rotary(capacity)

    def _hidden(
        self,
        tokens: Int[Tensor, "b t"],
        context: Context,
        order: Sequence[int],
        tap: Tap | None,
        trace: Trace | None,
    ) -> Float[Tensor, "b t d"]:
        """What the head reads."""
        state = self.design.open(self.embed(tokens), context)
        if trace is not None:
            trace.depth_states.append(self.design.depth_state(state))
        for place, number, turn in zip(places(order), order, turns(order), strict=True):
            state = self.design.enter(state, place)
            own = context if turn == 0 else replace(context, turn=turn)
            if self.packs_states:
                # a sharded block must see all that its gradients come back through
                state, loads = unpack(self.blocks[number](pack(state), own, tap, trace))
                if context.loads is not None:
                    context.loads.extend(loads)
            else:
                state = self.blocks[number](state, own, tap, trace)
            if trace is not None:
                trace.depth_states.append(self.design.depth_state(state))
        hidden = self.final_norm(self.design.readout(state))
        if trace is not None:
            trace.read = hidden
        return hidden

    def _rotary(self, length: int) -> tuple[Tensor, Tensor]:
        weight = self.embed.weight
        dtype = torch.promote_types(weight.dtype, torch.float32)
        backbone, head_dim = self.config.backbone, self.config.shape.head_dim
        base, scaling = backbone.rope_base, backbone.rope_scaling
        return rotary_table(length, head_dim, base, weight.device, dtype, scaling)

    def _context(
        self,
        tokens: Int[Tensor, "b t"],
        cos: Float[Tensor, "n half"],
        sin: Float[Tensor, "n half"],
        *,
        padding: Int[Tensor, "b"] | None,
        cache: Cache | None = None,
        loads: list[Load] | None = None,
        trace: Trace | None = None,
    ) -> Context:
        length, past = tokens.shape[1], 0 if cache is None else cache.length
        if cache is None:
            check_padding(padding, len(tokens), length)
        starts = None
        recompute = self.checkpointing and torch.is_grad_enabled()
        if self.documents_apart and cache is None:
            starts = document_starts(tokens, self.config.marks.document, padding)
        edge = starts if starts is not None or padding is None else padding[:, None]
        if edge is None:
            cos, sin = cos[past : past + length], sin[past : past + length]
        else:
            positions = torch.arange(past, past + length, device=tokens.device)
            own = (positions - edge).clamp(min=0)
            cos, sin = cos[own], sin[own]
        return Context(
            cos,
            sin,
            tokens=tokens,
            marks=self.config.marks,
            padding=padding,
            past=past,
            cache=cache,
            mask=visible(length, past, padding, tokens.device, starts),
            starts=starts,
            loads=loads if trace is None else trace.loads,
            recompute=self.design.checkpoint_unit if recompute else None,
        )

    def _fits(self, tokens: Int[Tensor, "b t"], cache: Cache) -> None:
        room, (batch, length) = cache.room, tokens.shape
        if batch != room.batch:
            raise DepthbenchError(
                f"tokens of {batch} sequences, but the cache is for {room.batch}. "
                f"Make one with model.cache(batch={batch}, capacity=...)"
            )
        if cache.length + length > room.capacity:
            raise DepthbenchError(
                f"{length} more tokens behind {cache.length} exceed the cache's capacity of "
                f"{room.capacity}. Make one with room for {cache.length + length}"
            )

    def _check_scaled(self) -> None:
        """Raise `DepthbenchError` where a factor on branch outputs is undone or met twice."""
        kind = self.config.parametrization.kind
        if not self.design.takes_branch_factor():
            able = [name for name, one in REGISTRY.items() if one.sums_branches]
            raise DepthbenchError(
                f'parametrization.kind = "{kind}" scales branch outputs with depth, for designs '
                "whose state is their sum (sums_branches), but design "
                f"'{label_of(self.config.design)}' norms or weighs them itself. "
                f'Set kind = "standard", or take one of: {", ".join(able)}'
            )
        if self.config.backbone.depth_scaled_init:
            raise DepthbenchError(
                f'parametrization.kind = "{kind}" scales branch outputs with depth, and so does '
                "backbone.depth_scaled_init = true. Use one of the two"
            )

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


def turns(program: Sequence[int]) -> list[int]:
    """How often the block of each place of a program ran before."""
    seen: Counter[int] = Counter()
    found: list[int] = []
    for block in program:
        found.append(seen[block])
        seen[block] += 1
    return found
