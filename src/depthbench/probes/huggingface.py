"""Decoder-only models of Hugging Face transformers as probes see them.

Nothing of a model is patched or changed. Its own forward runs once on a batch, and hooks that are
removed again tell what each block is passed: masks and rotary embeddings of its own kind. A block
then runs in any order on that, without a cache.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from depthbench.errors import DepthbenchError
from depthbench.probes.batch import Batch
from depthbench.probes.hf_check import (
    check_blocks,
    check_causal,
    check_session,
    difference,
    read_finish,
    runs_in_turn,
    sample,
    tolerance,
    whole_blocks,
)
from depthbench.probes.hf_layout import Finish, Layout, layout_of, setting, through
from depthbench.probes.hf_prune import model_without, write_model
from depthbench.probes.hf_record import Repeats, own_forward, recorded, silenced, state_of
from depthbench.probes.hf_routers import no_routers, router_shares
from depthbench.probes.hf_versions import cache_name, experts_as_before, experts_in_turn
from depthbench.probes.load import Parts
from depthbench.probes.program import plain
from depthbench.probes.subject import Call, Decoder, Session, Subject, SubjectFacts
from depthbench.probes.weights import check_finite, hash_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@final
class HuggingFaceSession(Session[Tensor]):
    """One model on a batch. States are ``(n, t, d)``, or ``(n, t, s, d)`` with streams.

    ``attention`` and ``feedforward`` run a block with the other one's output set to zero. Where a
    norm with a bias stands behind that output, or streams are mixed, this is not nothing.
    """

    def __init__(
        self, model: "PreTrainedModel", layout: Layout, finish: Finish, batch: Batch
    ) -> None:
        super().__init__(batch, len(layout.blocks), layout.vocab)
        self.model, self.layout, self.finish = model, layout, finish
        record = recorded(model, layout.blocks, batch)
        heads = setting(model.config, "num_attention_heads")
        self.first = record.first
        self.passed = Repeats(record.passed, batch.rows, heads if isinstance(heads, int) else None)

    def open(self) -> Tensor:
        return self.first

    def run(self, call: Call, state: Tensor, copies: int) -> Tensor:
        if call.silent:
            raise DepthbenchError(
                f"block {call.block} of {type(self.model).__name__} has no parts that can be "
                f"silent ({', '.join(call.silent)})"
            )
        if call.part == "linear":
            [one] = self.maps[call.block]
            z = self.depth_state(state)
            return (z + z @ one).reshape(state.shape)
        with silenced(self._silent(call)):
            passed = self.passed.of(call.block, copies)
            return state_of(passed.call(self.layout.blocks[call.block], state), state)

    def outputs(self, call: Call, state: Tensor) -> tuple[Tensor, list[Float[Tensor, "b t d"]]]:
        after = self.run(call, state, 1)
        return after, [self.depth_state(after) - self.depth_state(state)]

    def loads(self) -> dict[int, Tensor]:
        return router_shares(self.model, self.layout.blocks, self.batch)

    def depth_state(self, state: Tensor) -> Float[Tensor, "n t w"]:
        return state.flatten(2)

    def with_depth_state(self, state: Tensor, z: Float[Tensor, "n t w"]) -> Tensor:
        return z.reshape(*z.shape[:2], *state.shape[2:])

    @contextmanager
    def differentiable(self) -> Iterator[None]:
        # nor has the grouped product of experts a forward derivative
        kind = experts_in_turn(self.model)
        try:
            with super().differentiable():
                yield
        finally:
            experts_as_before(self.model, kind)

    def readout(self, state: Tensor) -> Float[Tensor, "n t d"]:
        return through(self.layout.before, state)

    def logits(self, hidden: Float[Tensor, "*n d"]) -> Float[Tensor, "*n v"]:
        return self.finish(through(self.layout.ending, hidden))

    def join(self, states: Sequence[Tensor], copies: int) -> Tensor:
        return torch.cat(list(states))

    def take(self, state: Tensor, start: int, stop: int, copies: int) -> Tensor:
        rows = len(state) // copies
        return state[start * rows : stop * rows]

    def size(self, state: Tensor) -> int:
        return state.numel() * state.element_size()

    def own_logits(self) -> Float[Tensor, "b t v"]:
        return own_forward(self.model, self.batch)

    def _silent(self, call: Call) -> list[nn.Module]:
        """Modules of the block that give nothing in this call."""
        if call.part == "block":
            return []
        attention = self.layout.attention(call.block)
        feedforward = self.layout.feedforward(call.block)
        if not attention or not feedforward:
            block = self.layout.blocks[call.block]
            inside = ", ".join(type(one).__name__ for one in block.children())
            raise DepthbenchError(
                f"block {call.block} ({type(block).__name__}) has not one module for attention and "
                f"one for feed-forward among {inside}, so they cannot run apart"
            )
        return feedforward if call.part == "attention" else attention


@final
class HuggingFaceDecoder(Decoder):
    """One row, by the model's own forward and cache."""

    def __init__(self, model: "PreTrainedModel") -> None:
        self.model = model
        self.past: Any = None

    @torch.no_grad()
    def read(self, tokens: Sequence[int]) -> Float[Tensor, "v"]:
        row = torch.tensor([list(tokens)], device=next(self.model.parameters()).device)
        name = cache_name()
        out: Any = self.model(input_ids=row, **{name: self.past}, use_cache=True)
        self.past = out[name]
        return out.logits[0, -1]


@final
class HuggingFaceSubject(Subject):
    """A decoder-only model of transformers."""

    def __init__(
        self,
        model: "PreTrainedModel",
        source: str,
        parts: Parts | None = None,
        notes: Sequence[str] = (),
        label: str | None = None,
        tokenizer: Callable[[], Any] | None = None,
    ) -> None:
        """``model`` is put into evaluation mode and left alone otherwise.

        ``tokenizer`` reads the one that is written beside a smaller model.

        Raises `DepthbenchError` where its parts are not found, or do not give its own logits.
        """
        check_finite(model, source)
        self.model, self.tokenizer = model.eval(), tokenizer
        first = next(model.parameters())
        self.device, self.dtype = first.device, model.dtype
        embedding: Any = model.get_input_embeddings()
        self.words = len(embedding.weight)
        """Tokens that it can read."""
        limit = setting(model.config, "max_position_embeddings")
        self.longest: int | None = limit if isinstance(limit, int) else None
        """Tokens of a row that it can read; None = any number."""
        batch = sample(self.words, self.longest, self.device)
        check_causal(model, batch)
        self.layout = layout_of(model, parts or Parts(), batch)
        check_blocks(model, self.layout, batch)
        self.finish = read_finish(model, self.layout, batch)
        session = self._checked(batch)
        state = session.open()
        self.whole = whole_blocks(self.layout, session)
        self.in_turn = self.whole is None and runs_in_turn(self.layout, session)
        kind = type(model).__name__
        layers = len(self.layout.blocks)
        self.facts = SubjectFacts(
            label=label or f"{kind}, {layers} layers",
            kind="huggingface",
            source=source,
            model=kind,
            layers=layers,
            width=state.shape[-1],
            streams=state.shape[2] if state.ndim == 4 else 1,
            vocab=self.layout.vocab,
            parameters=sum(one.numel() for one in model.parameters()),
            weights_hash=hash_of(model),
            notes=tuple(notes),
        )

    def session(self, batch: Batch) -> HuggingFaceSession:
        """Raises `DepthbenchError` for text that is too long or has padding it cannot read."""
        rows = batch.tokens.shape[1]
        if self.longest is not None and rows > self.longest:
            raise DepthbenchError(
                f"length = {rows}: the model has {self.longest} positions. Ask for at most as many "
                f"with --length {self.longest}"
            )
        if batch.padding is not None and self.left is not None:
            raise DepthbenchError(self.left)
        return self._session(batch.to(self.device))

    @property
    def module(self) -> nn.Module:
        return self.model

    def no_routers(self) -> str | None:
        return no_routers(self.layout.blocks)

    def decoder(self, program: Sequence[Call]) -> Decoder | str:
        if tuple(program) != plain(self.layers):
            return f"the cache of {type(self.model).__name__} counts its blocks in order"
        return HuggingFaceDecoder(self.model)

    def smaller(self, kept: Sequence[int]) -> "HuggingFaceSubject":
        names, facts = self.layout.names, self.facts
        assert names.blocks is not None
        model = model_without(self.model, names.blocks, kept)
        notes = (*facts.notes, f"blocks {', '.join(map(str, kept))} of {facts.layers}")
        return HuggingFaceSubject(model, facts.source, names, notes, facts.label, self.tokenizer)

    def write(self, folder: Path) -> None:
        write_model(self.model, self.tokenizer, folder)

    def _session(self, batch: Batch) -> HuggingFaceSession:
        return HuggingFaceSession(self.model, self.layout, self.finish, batch)

    @torch.no_grad()
    def _checked(self, batch: Batch) -> HuggingFaceSession:
        """A session that was held against the model's own logits, with padding on both sides."""
        session = self._session(batch)
        own = check_session(self.model, self.layout, session)
        left = sample(self.words, self.longest, self.device, left=True)
        self.left: str | None = None
        """Why padding on the left cannot be read; None where it can."""
        shifted = own_forward(self.model, left)
        if difference(shifted[left.valid], own[batch.valid]) <= tolerance(own):
            check_session(self.model, self.layout, self._session(left))
        else:
            self.left = (
                f"{type(self.model).__name__} reads a text otherwise with padding on its left. Pad "
                "on the right"
            )
        return session
