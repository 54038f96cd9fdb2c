"""Models of this package as probes see them."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from depthbench.data.tokenizer import HUB_FILE
from depthbench.designs import label_of
from depthbench.errors import DepthbenchError
from depthbench.files import write_atomic
from depthbench.hub.olmo_core import write_olmo_core
from depthbench.nn.block import Block, Trace
from depthbench.nn.branch import Context
from depthbench.nn.generate import AHEAD
from depthbench.nn.kernels import plain_kernels
from depthbench.nn.model import Model
from depthbench.probes.batch import Batch, repeated
from depthbench.probes.states import form_of, joined, size_of, taken
from depthbench.probes.subject import Call, Decoder, Session, Subject, SubjectFacts
from depthbench.probes.weights import check_finite, hash_of
from depthbench.train.checkpoint import save
from depthbench.train.config import TrialConfig

if TYPE_CHECKING:
    from depthbench.nn.cache import Cache


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
        if call.silent:
            return block.apart(state, context, call.silent)[0]
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

    def parts(self, call: Call, state: Any) -> tuple[Any, list[dict[str, Tensor]]]:
        state = self.model.design.enter(state, call.place)
        return self.block(call.block).apart(state, self.context(1), call.silent)

    @torch.no_grad()
    def loads(self) -> dict[int, Tensor]:
        batch = self.batch
        # one row after another, because padding on the right is chosen experts too
        pairs = zip(batch.tokens, batch.valid, strict=True)
        rows = [loads_of(self.model, tokens[valid][None]) for tokens, valid in pairs]
        return {block: torch.stack([row[block] for row in rows]) for block in rows[0]}

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
class OwnDecoder(Decoder):
    """One row of one of our models."""

    def __init__(self, model: Model, program: Sequence[int]) -> None:
        self.model, self.program = model, program
        self.cache: Cache | None = None

    @torch.no_grad()
    def read(self, tokens: Sequence[int]) -> Float[Tensor, "v"]:
        rest = list(tokens)
        mark = self.model.config.marks.document
        if self.model.documents_apart and mark in rest:
            # its last document is as if it ran alone
            rest = rest[len(rest) - 1 - rest[::-1].index(mark) :]
            self.cache = None
        if self.cache is None:
            self.cache = self.model.cache(1, len(rest) + AHEAD, program=self.program)
        needed = self.cache.length + len(rest)
        if needed > self.cache.room.capacity:
            self.model.grow(self.cache, max(needed, 2 * self.cache.room.capacity))
        row = torch.tensor([rest], device=self.model.embed.weight.device)
        return self.model.step(row, self.cache, last=True)[0, -1]


def loads_of(model: Model, tokens: Int[Tensor, "b t"]) -> dict[int, Float[Tensor, "experts"]]:
    """Share of all choices that went to each expert, by block with a router."""
    trace = Trace()
    found: dict[int, Tensor] = {}

    def keep(site: int, _: Tensor, y: Tensor) -> Tensor:
        if len(trace.loads) > len(found):
            found[site // 2] = trace.loads[-1].share
        return y

    model(tokens, tap=keep, trace=trace)
    return found


class Form(ABC):
    """The files that a model comes in."""

    kind: ClassVar[Literal["depthbench", "olmo-core"]]

    @abstractmethod
    def write(self, model: Model, folder: Path) -> None:
        """Write ``model`` to ``folder`` in this form."""


@final
class TrialForm(Form):
    """A trial's config and checkpoint."""

    kind: ClassVar[Literal["depthbench", "olmo-core"]] = "depthbench"

    def __init__(self, config: TrialConfig) -> None:
        self.config = config

    def write(self, model: Model, folder: Path) -> None:
        config = self.config.model_copy(update={"model": model.config})
        write_atomic(folder / "config.json", json.dumps(config.resolved(), indent=1) + "\n")
        tensors = {"model": dict(model.state_dict())}
        save(folder / "checkpoints", 0, config.id, tensors, {})


@final
class OlmoForm(Form):
    """An OLMo-core checkpoint."""

    kind: ClassVar[Literal["depthbench", "olmo-core"]] = "olmo-core"

    def __init__(self, folder: Path | None = None) -> None:
        """``folder`` is the one that it was read from: its tokenizer goes along."""
        self.folder = folder

    def write(self, model: Model, folder: Path) -> None:
        write_olmo_core(model, folder)
        if self.folder is not None and (self.folder / HUB_FILE).is_file():
            write_atomic(folder / HUB_FILE, (self.folder / HUB_FILE).read_bytes())


@final
class HubForm(Form):
    """A folder of `DepthBenchForCausalLM`."""

    kind: ClassVar[Literal["depthbench", "olmo-core"]] = "depthbench"

    def __init__(self, folder: Path) -> None:
        """``folder`` is the one that it was read from: its tokenizer goes along."""
        self.folder = folder

    def write(self, model: Model, folder: Path) -> None:
        # transformers takes seconds to import
        from depthbench.hub.own_folder import notes_in, tokenizer_in, words_in, write_own

        words, vocab = words_in(self.folder), model.config.shape.vocab
        unused = range(vocab if words is None else words, vocab)
        notes = notes_in(self.folder)
        write_own(model, folder, tokenizer_in(self.folder), unused=unused, notes=notes)


def weights_without(model: Model, kept: Sequence[int]) -> dict[str, Tensor]:
    """The weights of a model with the blocks ``kept`` alone, by the names that they have there."""
    place = {number: index for index, number in enumerate(kept)}
    found: dict[str, Tensor] = {}
    tables: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        first, _, rest = name.partition(".")
        if first == "blocks":
            number, _, rest = rest.partition(".")
            if int(number) in place:
                found[f"blocks.{place[int(number)]}.{rest}"] = tensor
        elif first == "design":
            tables[rest] = tensor
        else:
            found[name] = tensor
    smaller = model.design.tables_without(tables, kept)
    return found | {f"design.{name}": table for name, table in smaller.items()}


@final
class OwnSubject(Subject):
    """A model of this package."""

    def __init__(
        self,
        model: Model,
        source: str,
        notes: Sequence[str] = (),
        form: Form | None = None,
        trial: Path | None = None,
    ) -> None:
        """``form`` is that of the files which the model came in, if it came in any.

        ``trial`` is the folder of the one that trained it.
        """
        shape = model.config.shape
        check_finite(model, source)
        self.model, self.form, self.trial = model.eval(), form, trial
        self.parts = tuple(
            dict.fromkeys(name for _, branch, _ in model.sites() for name in branch.parts)
        )
        self.device, self.dtype = model.embed.weight.device, model.embed.weight.dtype
        backbone = model.config.backbone.name
        width = model.design.depth_state(self._opened()).shape[-1]
        self.facts = SubjectFacts(
            label=f"{label_of(model.config.design)}, {shape.layers} layers",
            kind="depthbench" if form is None else form.kind,
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

    def decoder(self, program: Sequence[Call]) -> Decoder | str:
        if any(call.part != "block" or call.silent for call in program):
            return "parts of its blocks run apart, without a cache"
        order = [call.block for call in program]
        return self.model.no_cache(order) or OwnDecoder(self.model, order)

    @property
    def stream_names(self) -> tuple[str, ...]:
        return self.model.design.stream_names or super().stream_names

    @property
    def module(self) -> Model:
        return self.model

    def smaller(self, kept: Sequence[int]) -> "OwnSubject":
        config = self.model.config
        shape = config.shape.model_copy(update={"layers": len(kept)})
        small = Model.on_meta(config.model_copy(update={"shape": shape}))
        weights = weights_without(self.model, kept)
        names = small.state_dict().keys()
        missing = [name for name in names if name not in weights]
        if missing:
            raise DepthbenchError(
                f"{self.facts.label}: a model of {len(kept)} of its blocks has parameters that "
                f"this one lacks ({missing[0]}): its design ties blocks to their places"
            )
        try:
            small.load_state_dict({name: weights[name].clone() for name in names}, assign=True)
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1].strip()
            raise DepthbenchError(
                f"{self.facts.label}: a model of {len(kept)} of its blocks has parameters of "
                f"other shapes ({reason}): its design ties blocks to their places"
            ) from None
        if self.model.documents_apart:
            small.keep_documents_apart()
        notes = (*self.facts.notes, f"blocks {', '.join(map(str, kept))} of {self.facts.layers}")
        return OwnSubject(small, self.facts.source, notes, self.form)

    def write(self, folder: Path) -> None:
        if self.form is None:
            raise DepthbenchError("the model came in no files, so there is no format to write")
        self.form.write(self.model, folder)

    @torch.no_grad()
    def no_jacobian(self) -> str | None:
        state, design = self._opened(), self.model.design
        try:
            design.with_depth_state(state, design.depth_state(state))
        except DepthbenchError as error:
            return str(error)
        return None

    @torch.no_grad()
    def no_routers(self) -> str | None:
        if loads_of(self.model, torch.zeros(1, 1, dtype=torch.long, device=self.device)):
            return None
        return f"the blocks of backbone '{self.model.config.backbone.name}' have no router"

    @torch.no_grad()
    def _opened(self) -> Any:
        return self.model.begin(torch.zeros(1, 1, dtype=torch.long, device=self.device))[0]
