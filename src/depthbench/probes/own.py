"""Models of this package as probes see them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor

from depthbench.designs import label_of
from depthbench.errors import DepthbenchError
from depthbench.nn.block import Block, Trace
from depthbench.nn.branch import Context
from depthbench.nn.kernels import plain_kernels
from depthbench.nn.model import Model
from depthbench.probes.batch import Batch, repeated
from depthbench.probes.states import form_of, joined, size_of, taken
from depthbench.probes.subject import Call, Session, Subject, SubjectFacts
from depthbench.probes.weights import hash_of


@final
class OwnSession(Session[Any]):
    """One of our models on a batch."""

    def __init__(self, model: Model, batch: Batch) -> None:
        super().__init__(batch, model.config.shape.layers, model.config.shape.vocab)
        self.model = model
        self.contexts: dict[int, Context] = {}

    def open(self) -> Any:
        state, self.contexts[1] = self.model.begin(self.batch.tokens, self.batch.padding)
        return state

    def run(self, call: Call, state: Any, copies: int) -> Any:
        block, context = self.block(call.block), self.context(copies)
        state = self.model.design.enter(state, call.place)
        if call.part == "block":
            return block(state, context)
        if call.part == "linear":
            z = self.model.design.depth_state(state)
            return block.replaced([z @ one for one in self.maps[call.block]], state)
        return block.site(int(call.part == "feedforward"), state, context)

    def outputs(self, call: Call, state: Any) -> tuple[Any, list[Tensor]]:
        seen: list[Tensor] = []

        def keep(_: int, __: Tensor, y: Tensor) -> Tensor:
            seen.append(y)
            return y

        state = self.model.design.enter(state, call.place)
        return self.block(call.block)(state, self.context(1), keep), seen

    def depth_state(self, state: Any) -> Float[Tensor, "n t w"]:
        return self.model.design.depth_state(state)

    def with_depth_state(self, state: Any, z: Float[Tensor, "n t w"]) -> Any:
        return self.model.design.with_depth_state(state, z)

    @contextmanager
    def differentiable(self) -> Iterator[None]:
        with super().differentiable(), plain_kernels():
            yield

    def readout(self, state: Any) -> Float[Tensor, "n t d"]:
        return self.model.design.readout(state)

    def logits(self, hidden: Float[Tensor, "*n d"]) -> Float[Tensor, "*n v"]:
        return self.model.end(hidden)

    def join(self, states: Sequence[Any], copies: int) -> Any:
        return joined(states, self.context(copies))

    def take(self, state: Any, start: int, stop: int, copies: int) -> Any:
        return taken(state, start, stop, copies, self.context(stop - start))

    def form(self, state: Any) -> Any:
        return form_of(state)

    def size(self, state: Any) -> int:
        return size_of(state)

    def own_logits(self) -> Float[Tensor, "b t v"]:
        return self.model(self.batch.tokens, padding=self.batch.padding)

    def trace(self) -> Trace:
        """What the model's own forward did at every site."""
        trace = Trace()
        self.model(self.batch.tokens, padding=self.batch.padding, trace=trace)
        return trace

    def block(self, number: int) -> Block:
        """Block ``number``."""
        block = self.model.blocks[number]
        assert isinstance(block, Block)
        return block

    def context(self, copies: int) -> Context:
        """What all blocks share when ``copies`` programs run side by side."""
        if copies not in self.contexts:
            tokens = repeated(self.batch.tokens, copies)
            padding = repeated(self.batch.padding, copies)
            assert tokens is not None
            self.contexts[copies] = self.model.context(tokens, padding)
        return self.contexts[copies]


@final
class OwnSubject(Subject):
    """A model of this package."""

    def __init__(self, model: Model, source: str, notes: Sequence[str] = ()) -> None:
        shape = model.config.shape
        self.model = model.eval()
        self.device, self.dtype = model.embed.weight.device, model.embed.weight.dtype
        backbone = model.config.backbone.name
        width = model.design.depth_state(self._opened()).shape[-1]
        self.facts = SubjectFacts(
            label=f"{label_of(model.config.design)}, {shape.layers} layers",
            kind="depthbench",
            source=source,
            model=label_of(model.config.design)
            + ("" if backbone == "dense" else f" on {backbone}"),
            layers=shape.layers,
            width=shape.width,
            streams=width // shape.width,
            vocab=shape.vocab,
            parameters=sum(one.numel() for one in model.parameters()),
            weights_hash=hash_of(model),
            notes=tuple(notes),
        )

    def session(self, batch: Batch) -> OwnSession:
        return OwnSession(self.model, batch.to(self.device))

    @torch.no_grad()
    def no_jacobian(self) -> str | None:
        state, design = self._opened(), self.model.design
        try:
            design.with_depth_state(state, design.depth_state(state))
        except DepthbenchError as error:
            return str(error)
        return None

    @torch.no_grad()
    def _opened(self) -> Any:
        return self.model.begin(torch.zeros(1, 1, dtype=torch.long, device=self.device))[0]
