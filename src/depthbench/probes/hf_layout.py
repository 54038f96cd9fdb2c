"""Where a Hugging Face model keeps its blocks, its final norm and its head."""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from depthbench.errors import DepthbenchError, nearest
from depthbench.probes.batch import Batch
from depthbench.probes.hf_record import own_forward
from depthbench.probes.load import Parts

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

NAMING = "--blocks model.layers --norm model.norm --head lm_head"
ATTENTION = re.compile(r"Attention|Mixer|Mamba|DeltaNet|ShortConv|Recurrent")
FEEDFORWARD = re.compile(r"MLP|Mlp|MoE|Moe|FeedForward|FFN|Experts")
"""Classes of what a block holds of each kind, or of several that run side by side."""
SCALES = ("logit_scale", "logits_scaling", "lm_head_multiplier", "output_multiplier")
"""Settings by which some models multiply or divide their logits."""
CAPS = ("final_logit_softcapping", "logits_soft_cap")


@dataclass(frozen=True)
class Finish:
    """What is done to the logits behind the head: ``cap · tanh(factor · x / divisor / cap)``."""

    factor: float = 1.0
    divisor: float = 1.0
    cap: float | None = None

    def __call__(self, logits: Float[Tensor, "*n v"]) -> Float[Tensor, "*n v"]:
        if self.factor != 1:
            logits = logits * self.factor
        if self.divisor != 1:
            logits = logits / self.divisor
        return logits if self.cap is None else torch.tanh(logits / self.cap) * self.cap


@dataclass(frozen=True)
class Layout:
    """The parts of one model."""

    names: Parts
    """Where they are."""
    blocks: tuple[nn.Module, ...]
    before: tuple[nn.Module, ...]
    """Between the last block and the final norm: what makes one stream of several."""
    ending: tuple[nn.Module, ...]
    """Final norm to head."""
    vocab: int
    """Numbers that the head gives."""

    def attention(self, block: int) -> list[nn.Module]:
        """What block ``block`` has that mixes tokens."""
        return list(_children(self.blocks[block], ATTENTION))

    def feedforward(self, block: int) -> list[nn.Module]:
        """What it has that works on each token alone."""
        return list(_children(self.blocks[block], FEEDFORWARD))


def _children(block: nn.Module, kind: re.Pattern[str]) -> Iterator[nn.Module]:
    for child in block.children():
        name = type(child).__name__
        if kind.search(name) and "Norm" not in name:
            yield child


def setting(config: "PretrainedConfig", name: str) -> Any:
    """A setting of the text model by its usual name; None where it has none."""
    text = config.get_text_config()
    return text.to_dict().get(text.attribute_map.get(name, name))


@torch.no_grad()
def layout_of(model: "PreTrainedModel", parts: Parts, batch: Batch) -> Layout:
    """The parts by name, or else by structure: one forward on ``batch`` shows what ends the model.

    Raises `DepthbenchError` that says what was tried and how to name the parts.
    """
    where, blocks = _blocks(model, parts)
    tail, vocab = _tail(model, blocks, batch)
    head = _head(model, parts, tail)
    tail = tail[: [name for name, _ in tail].index(head) + 1]
    norm = _norm(type(model).__name__, parts, tail)
    place = [name for name, _ in tail].index(norm)
    modules = [module for _, module in tail]
    names = Parts(blocks=where, norm=norm, head=head)
    return Layout(names, tuple(blocks), tuple(modules[:place]), tuple(modules[place:]), vocab)


def _blocks(model: "PreTrainedModel", parts: Parts) -> tuple[str, list[nn.Module]]:
    kind, found = type(model).__name__, dict(model.named_modules())
    lists = {name: len(one) for name, one in found.items() if isinstance(one, nn.ModuleList)}
    shown = ", ".join(f"{name} ({size})" for name, size in lists.items()) or "none"
    if len(shown) > 300:
        shown = shown[:300] + " …"
    if parts.blocks is not None:
        chosen = found.get(parts.blocks)
        if not isinstance(chosen, nn.ModuleList) or not len(chosen):
            raise DepthbenchError(
                f"--blocks {parts.blocks} is no list of blocks of {kind}"
                f"{nearest(parts.blocks, lists) or '.'} Its lists: {shown}"
            )
        return parts.blocks, list(chosen)
    count = setting(model.config, "num_hidden_layers")
    fitting = [name for name, size in lists.items() if size == count]
    outer = [a for a in fitting if not any(a.startswith(f"{b}.") for b in fitting)]
    if len(outer) != 1:
        raise DepthbenchError(
            f"{kind}: {len(outer)} lists of num_hidden_layers = {count} modules, so it is unclear "
            f"which holds its blocks (its lists: {shown}). Name the parts, such as {NAMING}"
        )
    return outer[0], list(model.get_submodule(outer[0]).children())


def _tail(
    model: nn.Module, blocks: Sequence[nn.Module], batch: Batch
) -> tuple[list[tuple[str, nn.Module]], int]:
    """Outermost modules that run behind the last block, in their order; and the vocabulary."""
    names = {id(module): name for name, module in model.named_modules()}
    over, running, found = [False], list[nn.Module](), list[tuple[str, nn.Module]]()

    def enter(module: nn.Module, *_: Any) -> None:
        if over[0]:
            if not running:
                found.append((names[id(module)], module))
            running.append(module)

    def leave(module: nn.Module, *_: Any) -> None:
        if running and running[-1] is module:
            running.pop()

    def end(*_: Any) -> None:
        over[0] = True

    with ExitStack() as hooks:
        for module in model.modules():
            hooks.enter_context(module.register_forward_pre_hook(enter))
            hooks.enter_context(module.register_forward_hook(leave))
        hooks.enter_context(blocks[-1].register_forward_hook(end))
        logits = own_forward(model, batch)
    return found, logits.shape[-1]


def _head(model: "PreTrainedModel", parts: Parts, tail: Sequence[tuple[str, nn.Module]]) -> str:
    if parts.head is not None:
        return _named(type(model).__name__, "head", parts.head, tail)
    head = model.get_output_embeddings()
    known = [name for name, module in tail if module is head]
    if not tail:
        raise DepthbenchError(
            f"{type(model).__name__}: no module runs behind its last block, so it has no head. "
            f"Name the parts, such as {NAMING}"
        )
    return known[-1] if known else tail[-1][0]


def _norm(kind: str, parts: Parts, tail: Sequence[tuple[str, nn.Module]]) -> str:
    if parts.norm is not None:
        return _named(kind, "norm", parts.norm, tail)
    norms = [name for name, module in tail if "norm" in type(module).__name__.lower()]
    if not norms:
        tried = ", ".join(f"{name} ({type(module).__name__})" for name, module in tail)
        raise DepthbenchError(
            f"{kind}: no final norm among what runs behind its last block: {tried}. Name the "
            f"parts, such as {NAMING}; a model without one: --norm {tail[-1][0]}"
        )
    return norms[-1]


def _named(kind: str, part: str, given: str, tail: Sequence[tuple[str, nn.Module]]) -> str:
    names = [name for name, _ in tail]
    if given not in names:
        raise DepthbenchError(
            f"--{part} {given} does not run behind the last block of {kind}"
            f"{nearest(given, names) or '.'} What does: {', '.join(names) or 'nothing'}"
        )
    return given


def through(modules: Sequence[nn.Module], x: Tensor) -> Tensor:
    """``x`` through ``modules`` in turn."""
    for module in modules:
        output = module(x)
        x = output if isinstance(output, Tensor) else output[0]
    return x


def finish_of(
    config: "PretrainedConfig", head: Float[Tensor, "*n v"], logits: Float[Tensor, "*n v"]
) -> Finish:
    """What the model does behind its ``head``: of all that its settings allow, the closest.

    A factor that no setting names is measured: some models scale what the head reads.
    """
    values = {setting(config, name) for name in SCALES} - {None, 1}
    scales = [(float(one), 1.0) for one in values] + [(1.0, float(one)) for one in values]
    caps = {setting(config, name) for name in CAPS} - {None}
    tried = [Finish(a, b, c) for c in (*caps, None) for a, b in [(1.0, 1.0), *scales]]
    x, y = head.double(), logits.double()
    tried.append(Finish(float((x * y).sum() / (x * x).sum())))
    return min(tried, key=lambda one: float((one(head) - logits).abs().max()))
