"""What a Hugging Face model passes its blocks, seen in its own forward through hooks."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from depthbench.errors import DepthbenchError
from depthbench.probes.batch import Batch, repeated

if TYPE_CHECKING:
    from transformers import PreTrainedModel

STATE = "hidden_states"
"""Keyword of the state, where it is passed by one."""
CACHES = frozenset({"cache", "past_key_values", "past_key_value", "layer_past"})
KEPT = 2
"""Numbers of copies whose repeated tensors are held: a walk has full calls and one rest."""

Nudge = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Passed:
    """What a block was called with beside the state."""

    by_name: bool
    """Whether the state was passed by its keyword."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def call(self, block: nn.Module, state: Tensor) -> Any:
        """The block on ``state``."""
        if self.by_name:
            return block(*self.args, **{STATE: state}, **self.kwargs)
        return block(state, *self.args, **self.kwargs)


@dataclass(frozen=True)
class Record:
    """One forward of a model."""

    first: Tensor
    """State before block 0."""
    passed: tuple[Passed, ...]
    """By block."""


def own_forward(model: nn.Module, batch: Batch) -> Float[Tensor, "b t v"]:
    """Logits by the model's own forward, without a cache.

    A mask is given for padding on the left only, with positions that start at 0 behind it.
    """
    return model(**_given(model, batch)).logits


def _given(model: nn.Module, batch: Batch) -> dict[str, Any]:
    parameters = inspect.signature(model.forward).parameters
    given: dict[str, Any] = {"input_ids": batch.tokens}
    if _takes(parameters, "use_cache"):
        given["use_cache"] = False
    if batch.padding is not None:
        given["attention_mask"] = batch.valid.long()
        if "position_ids" in parameters:
            given["position_ids"] = (batch.valid.long().cumsum(1) - 1).clamp(min=0)
    return given


def _takes(parameters: Any, name: str) -> bool:
    kinds = {one.kind for one in parameters.values()}
    return name in parameters or inspect.Parameter.VAR_KEYWORD in kinds


@torch.no_grad()
def recorded(
    model: "PreTrainedModel",
    blocks: Sequence[nn.Module],
    batch: Batch,
    nudge: Nudge | None = None,
) -> Record:
    """One forward on ``batch`` without the head; ``nudge`` changes the state before block 0.

    Raises `DepthbenchError` where a block does not run once, or gets no state.
    """
    seen: dict[int, list[tuple[Tensor, Passed]]] = {number: [] for number in range(len(blocks))}

    def watch(number: int) -> Callable[..., Any]:
        def keep(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            state, passed = _split(block, args, kwargs)
            if nudge is not None and number == 0:
                state = nudge(state)
            seen[number].append((state, passed))
            if passed.by_name:
                return passed.args, {STATE: state, **passed.kwargs}
            return (state, *passed.args), passed.kwargs

        return keep

    with ExitStack() as hooks:
        for number, block in enumerate(blocks):
            hooks.enter_context(block.register_forward_pre_hook(watch(number), with_kwargs=True))
        model.base_model(**_given(model.base_model, batch))
    for number, calls in seen.items():
        if len(calls) != 1:
            raise DepthbenchError(
                f"{type(model).__name__}: block {number} runs {len(calls)} times in one forward. "
                "Probes need blocks that run once each: name others with --blocks"
            )
    return Record(seen[0][0][0], tuple(calls[0][1] for calls in seen.values()))


def _split(
    block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Tensor, Passed]:
    rest = {name: None if name in CACHES else value for name, value in kwargs.items()}
    if args and isinstance(args[0], Tensor):
        return args[0], Passed(False, args[1:], rest)
    state = rest.pop(STATE, None)
    if not isinstance(state, Tensor):
        raise DepthbenchError(
            f"{type(block).__name__} is passed no state: neither its first argument nor "
            f"{STATE} is a tensor. Name other blocks with --blocks"
        )
    return state, Passed(True, args, rest)


def state_of(output: Any, before: Tensor) -> Tensor:
    """The state among what a block returned: the first tensor of the shape of the one before.

    Raises `DepthbenchError` if there is none.
    """
    many = list(output.values()) if isinstance(output, dict) else output
    for one in [many] if isinstance(many, Tensor) else many:
        if isinstance(one, Tensor) and one.shape == before.shape:
            return one
    raise DepthbenchError(
        f"a block returned no state of shape {tuple(before.shape)}. Name other blocks with --blocks"
    )


@final
class Repeats:
    """What the blocks were passed, for several programs side by side."""

    def __init__(self, passed: Sequence[Passed], rows: int, heads: int | None) -> None:
        """Tensors of two axes or more have rows first, or rows times ``heads`` (ALiBi)."""
        self.passed = passed
        self.sizes = {rows} if heads is None else {rows, rows * heads}
        self._known: dict[int, dict[int, Tensor]] = {}

    def of(self, block: int, copies: int) -> Passed:
        """Those of ``block``; tensors that blocks share are repeated once."""
        one = self.passed[block]
        if copies == 1:
            return one
        if copies not in self._known:
            while len(self._known) >= KEPT:
                self._known.pop(next(iter(self._known)))
            self._known[copies] = {}
        known = self._known[copies]

        def again(tensor: Tensor) -> Tensor:
            if tensor.ndim < 2 or len(tensor) not in self.sizes:
                return tensor
            if id(tensor) not in known:
                made = repeated(tensor, copies)
                assert made is not None
                known[id(tensor)] = made
            return known[id(tensor)]

        return Passed(one.by_name, mapped(one.args, again), mapped(one.kwargs, again))


def mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """``value`` with every tensor in it changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {name: mapped(one, change) for name, one in value.items()}
    if isinstance(value, (tuple, list)):
        made = [mapped(one, change) for one in value]
        return made if isinstance(value, list) else tuple(made)
    return value


def tensors_in(value: Any) -> list[Tensor]:
    """Every tensor in ``value``, in order."""
    found: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    mapped(value, keep)
    return found


@contextmanager
def silenced(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Within it, ``modules`` give zeros, or what they would add to where they add by themselves."""
    with ExitStack() as hooks:
        for module in modules:
            hooks.enter_context(module.register_forward_hook(_nothing, with_kwargs=True))
        yield


def _nothing(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
    given = dict(zip(inspect.signature(module.forward).parameters, args, strict=False)) | kwargs
    first = output if isinstance(output, Tensor) else output[0]
    residual = given.get("residual")
    kept = torch.zeros_like(first) if residual is None else residual
    return kept if isinstance(output, Tensor) else (kept, *output[1:])
